"""Any split of the rows into shards, in any order, gives what one pass gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkwise.accumulate.documents import DocumentSums, document_sums, merge_documents
from sinkwise.accumulate.placement import PlacementSums
from sinkwise.accumulate.profile import ProfileSums
from sinkwise.distances.all_pairs import PairSums
from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock

METRICS = ("content", "aitchison", "cosine/kept", "js_divergence/dropped")


def document(number, rows, seed):
    rng = np.random.default_rng([seed, number])
    keys = 9
    z = rng.normal(size=(3, rows, keys)) * 2
    queries = np.sort(rng.choice(np.arange(3, 40), rows, replace=False))
    support = np.arange(keys)[None] <= queries[:, None]
    sink = np.zeros((rows, keys), bool)
    sink[:, 0] = True
    return RowBlock(number, z, support, sink, queries, {"sink_not_visible": number + 2})


def cut(block, at):
    """Two blocks with the rows before and from `at`, each with some of the excluded rows."""
    z, support, sink, queries = block.log_weights, block.support, block.sink, block.queries
    excluded = block.excluded["sink_not_visible"]
    return tuple(
        RowBlock(
            block.document,
            z[:, rows],
            support[rows],
            sink[rows],
            queries[rows],
            {"sink_not_visible": number},
        )
        for rows, number in ((slice(at), excluded - 1), (slice(at, None), 1))
    )


def assert_equal_sums(got, want):
    assert list(got) == list(want)
    for number, sums in want.items():
        assert got[number].n_rows == sums.n_rows
        assert got[number].excluded == sums.excluded
        for mine, theirs in ((got[number].profile, sums.profile), (got[number].pairs, sums.pairs)):
            assert set(mine.sums) == set(theirs.sums)
            for name in theirs.counts:
                np.testing.assert_array_equal(mine.counts[name], theirs.counts[name])
            for name in theirs.sums:
                # at most 12 terms added in another order, each a matrix product's entry: the
                # terms themselves move by their last digits when the product's shape changes
                np.testing.assert_allclose(
                    mine.sums[name], theirs.sums[name], rtol=1e-11, atol=1e-11
                )


@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_any_split_and_order_equals_one_pass(data, seed):
    sizes = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    documents = [document(d, n, seed) for d, n in enumerate(sizes)]
    want = document_sums(documents, metrics=METRICS)

    pieces = []
    for block in documents:
        first, second = cut(block, data.draw(st.integers(0, block.n_rows)))
        pieces += [first, second]
    pieces = data.draw(st.permutations(pieces))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pieces)), min_size=2, max_size=2)))
    shards = [pieces[: cuts[0]], pieces[cuts[0] : cuts[1]], pieces[cuts[1] :]]  # some are empty
    a, b, c = (document_sums(s, metrics=METRICS) for s in data.draw(st.permutations(shards)))

    assert_equal_sums(document_sums(pieces, metrics=METRICS), want)
    assert_equal_sums(merge_documents(merge_documents(a, b), c), want)
    assert_equal_sums(merge_documents(a, merge_documents(c, b)), want)
    # merging goes on after results were read
    for sums in a.values():
        sums.profile.means()
    assert_equal_sums(merge_documents(c, merge_documents(b, a)), want)


def test_the_empty_shard_is_neutral():
    sums = document_sums([document(0, 4, 0)], metrics=METRICS)
    assert document_sums([]) == {}
    assert_equal_sums(merge_documents({}, sums), sums)
    assert_equal_sums(merge_documents(sums, {}), sums)


def test_different_documents_do_not_merge():
    zero = [
        DocumentSums(d, 0, ProfileSums.zero(2), PairSums(2, {}, {}), PlacementSums.zero(2))
        for d in (0, 1)
    ]
    with pytest.raises(RowError, match="document 0 met sums of document 1"):
        zero[0].merge(zero[1])
