"""The table of reversals: exact rates, resolved verdicts, and what it refuses."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies import anchors as anchors_module
from sinkwise.studies import half_verdicts
from sinkwise.studies import resolved as resolved_module
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.head_matrix import square
from sinkwise.studies.resolved import resolved_rates
from sinkwise.studies.reversal import reversal_rate, sampled_reversal_rate
from sinkwise.studies.reversal_forms import (
    margin_weighted_rate,
    nearest_changed,
    neighbour_overlap,
)
from sinkwise.studies.reversal_table import REVERSAL_NAMES, reversal_table

COLUMNS = [
    "first",
    "second",
    "rate",
    "resolved_rate",
    "resolved_share",
    "resolved_level",
    "margin_weighted_rate",
    "nearest_changed",
    "neighbour_overlap",
    "neighbours",
    "exact",
    "low",
    "high",
    "bias",
    "smallest_detectable",
    "sampled_rate",
    "note",
]


def measures(rng, names, *, n_heads=9, documents=6, noise=0.1, shift=0.5):
    pairs = n_heads * (n_heads - 1) // 2
    base = rng.random(pairs)
    counts = rng.integers(5, 9, size=(documents, 1)).astype(float)
    return {
        name: DocumentPairs(
            counts
            * (base + shift * rng.random(pairs) + noise * rng.normal(size=(documents, pairs))),
            counts,
        )
        for name in names
    }


def test_one_row_for_every_two_measures_with_exact_rates():
    documents = measures(np.random.default_rng(0), REVERSAL_NAMES)
    table = reversal_table(documents, 9, halves=30)
    assert list(table.columns) == COLUMNS
    assert len(table) == 36
    assert list(zip(table["first"], table["second"], strict=True)) == list(
        itertools.combinations(REVERSAL_NAMES, 2)
    )
    for row in table.itertuples():
        d1, d2 = (square(documents[n].distances(), 9) for n in (row.first, row.second))
        assert row.rate == reversal_rate(d1, d2)
        assert row.margin_weighted_rate == pytest.approx(margin_weighted_rate(d1, d2), rel=1e-12)
        assert row.nearest_changed == nearest_changed(d1, d2)
        assert row.neighbour_overlap == neighbour_overlap(d1, d2, k=5)
        assert (row.neighbours, row.exact, row.resolved_level) == (5, True, 0.95)
        assert row.sampled_rate == pytest.approx(sampled_reversal_rate(d1, d2), abs=1e-12)
        if row.note == "":
            assert 0 <= row.low <= row.high <= 1
            # what the column says: only a rate above it stands clear of 0
            assert (row.low > 0) == (row.rate > row.smallest_detectable)
        else:
            assert np.isnan(row.low) and np.isnan(row.high)


@pytest.mark.parametrize(("n_heads", "neighbours"), [(3, 1), (4, 2), (6, 4), (7, 5), (9, 5)])
def test_with_few_heads_fewer_neighbours_are_compared(n_heads, neighbours):
    documents = measures(np.random.default_rng(n_heads), ("a", "b"), n_heads=n_heads)
    row = reversal_table(documents, n_heads, names=("a", "b")).iloc[0]
    assert row.neighbours == neighbours
    d1, d2 = (square(documents[n].distances(), n_heads) for n in "ab")
    assert row.neighbour_overlap == neighbour_overlap(d1, d2, k=neighbours)


def test_duplicated_and_constant_heads_have_ties_in_both():
    rng = np.random.default_rng(12)
    points = rng.random((8, 3))
    points[5] = points[1]
    points[6] = points[1]
    d1 = squareform(pdist(points))
    constant = np.ones_like(d1) - np.eye(8)
    sums = [squareform(d)[None] * np.array([3.0, 5, 4, 6])[:, None] for d in (d1, constant)]
    counts = np.array([[3.0], [5], [4], [6]])
    documents = {n: DocumentPairs(s, counts) for n, s in zip("ab", sums, strict=True)}
    row = reversal_table(documents, 8, names=("a", "b")).iloc[0]
    assert row.rate == pytest.approx(reversal_rate(d1, constant), abs=1e-12)
    assert np.isnan(row.resolved_rate) and row.resolved_share == 0.0
    assert np.isnan(row.margin_weighted_rate)
    itself = reversal_table({"a": documents["a"], "b": documents["a"]}, 8, names=("a", "b")).iloc[0]
    assert itself.rate == itself.margin_weighted_rate == itself.nearest_changed == 0.0
    assert itself.bias == 0.0 and itself.neighbour_overlap == 1.0


def test_rates_on_sampled_triples_agree_with_the_exact_ones(monkeypatch):
    documents = measures(np.random.default_rng(1), ("a", "b"), n_heads=20)
    exact = reversal_table(documents, 20, names=("a", "b"), halves=50).iloc[0]
    monkeypatch.setattr(half_verdicts, "_HALF_TRIPLES", 2_000)
    monkeypatch.setattr(half_verdicts, "_TILE_TRIPLES", 300)
    drawn = reversal_table(documents, 20, names=("a", "b"), halves=50).iloc[0]
    assert drawn.rate == exact.rate
    # all halves and the whole share the draw: its error in the bias is far below 0.5 / sqrt(2000)
    assert drawn.bias == pytest.approx(exact.bias, abs=0.005)


def test_rates_on_given_triples_count_ties_like_the_exact_rate():
    rng = np.random.default_rng(2)
    sums = rng.integers(0, 3, size=(2, 1, 28)).astype(float)
    documents = {n: DocumentPairs(s, np.ones((1, 1))) for n, s in zip("ab", sums, strict=True)}
    triples = half_verdicts.half_triples(8, 0)
    assert len(triples[0]) == 8 * 21
    got = half_verdicts.rates_on(documents, 8, np.ones((1, 1), bool), triples)[0]
    d1, d2 = (square(s[0], 8) for s in sums)
    assert got[0, 1] == pytest.approx(reversal_rate(d1, d2), abs=1e-15)
    assert got[0, 0] == got[1, 1] == 0.0


def resolved_by_hand(documents, n_heads, level):
    """Each triple's margin with the textbook standard error over documents of equal size."""
    t = stats.t.ppf((1 + level) / 2, next(iter(documents.values())).n_documents - 1)
    verdicts = []
    for d in documents.values():
        per_document = d.sums / d.counts
        found = {}
        for a in range(n_heads):
            for b, c in itertools.combinations([i for i in range(n_heads) if i != a], 2):
                margins = [
                    square(x, n_heads)[a, b] - square(x, n_heads)[a, c] for x in per_document
                ]
                clear = abs(np.mean(margins)) > t * stats.sem(margins)
                found[a, b, c] = np.sign(np.mean(margins)) * clear
        verdicts.append(np.array(list(found.values())))
    both = (verdicts[0] != 0) & (verdicts[1] != 0)
    return (verdicts[0] != verdicts[1])[both].mean(), both.mean()


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_resolved_verdicts_equal_triple_by_triple(level):
    rng = np.random.default_rng(3)
    pairs = 7 * 6 // 2
    documents = {
        n: DocumentPairs(rng.random(pairs) + 0.2 * rng.normal(size=(5, pairs)), np.ones((5, 1)))
        for n in "ab"
    }
    got = resolved_rates(documents, 7, level=level)
    rate, share = resolved_by_hand(documents, 7, level)
    assert got.exact
    assert got.share[0, 1] == pytest.approx(share, abs=1e-12)
    assert got.rate[0, 1] == pytest.approx(rate, abs=1e-12)
    assert got.rate[0, 0] == 0.0
    assert 0 < share < got.share[0, 0] < 1


def test_resolved_verdicts_in_tiles_are_the_same(monkeypatch):
    documents = measures(np.random.default_rng(14), ("a", "b"), n_heads=40, noise=0.4)
    tiled = resolved_rates(documents, 40)
    monkeypatch.setattr(anchors_module, "_TILE", 100)
    whole = resolved_rates(documents, 40)
    np.testing.assert_array_equal(tiled.share, whole.share)
    np.testing.assert_array_equal(tiled.rate, whole.rate)


def test_resolved_verdicts_of_sampled_anchors_are_near_all(monkeypatch):
    documents = measures(np.random.default_rng(4), ("a", "b"), n_heads=40, noise=0.4)
    every = resolved_rates(documents, 40)
    monkeypatch.setattr(resolved_module, "EXACT_UP_TO", 25)
    some = resolved_rates(documents, 40)
    assert every.exact and not some.exact
    np.testing.assert_allclose(some.share, every.share, atol=0.05)
    assert some.rate[0, 1] == pytest.approx(every.rate[0, 1], abs=0.05)


def test_pairs_that_a_single_document_holds_are_never_resolved():
    documents = measures(np.random.default_rng(13), ("a", "b"), noise=1e-6)
    counts = np.array(documents["a"].counts)
    counts[1:, 3] = 0
    sums = np.where(counts > 0, documents["a"].sums, 0)
    one = {"a": DocumentPairs(sums, counts)}
    # head 0 with head 4: every verdict from either of them that takes the pair is left out
    expected = 1 - 2 * 7 / (9 * 28)
    assert resolved_rates(one, 9).share[0, 0] == pytest.approx(expected, abs=1e-12)


def test_verdicts_that_are_all_noise_are_resolved_at_the_stated_level():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(12, 40 * 39 // 2))
    documents = {n: DocumentPairs(5 + noise, np.ones((12, 1))) for n in "ab"}
    share = resolved_rates(documents, 40, level=0.9).share[0, 0]
    # 780 independent pairs stand behind the 30,000 margins
    assert share == pytest.approx(0.1, abs=0.03)


def test_without_noise_everything_is_resolved():
    documents = measures(np.random.default_rng(6), ("a", "b"), noise=0.0)
    row = reversal_table(documents, 9, names=("a", "b")).iloc[0]
    assert row.resolved_share == 1.0
    assert row.resolved_rate == pytest.approx(row.rate, abs=1e-12)
    assert row.low == pytest.approx(row.rate) and row.high == pytest.approx(row.rate)


def test_a_measure_against_itself_never_reverses():
    d = measures(np.random.default_rng(7), ("a",))["a"]
    row = reversal_table({"a": d, "b": d}, 9, names=("a", "b")).iloc[0]
    assert row.rate == row.resolved_rate == row.sampled_rate == row.bias == 0.0


@pytest.mark.parametrize("documents", [1, 2, 3])
def test_few_documents_have_rates_but_no_interval(documents):
    found = measures(np.random.default_rng(8), ("a", "b"), documents=documents)
    row = reversal_table(found, 9, names=("a", "b")).iloc[0]
    assert row.note == "too few documents"
    assert 0 <= row.rate <= 1
    assert np.isnan([row.low, row.high, row.bias, row.smallest_detectable]).all()
    assert np.isnan(row.resolved_share) == (documents < 2)


def test_a_half_without_rows_of_a_pair_has_no_interval():
    documents = measures(np.random.default_rng(9), ("a", "b"))
    counts = documents["a"].counts.copy()
    counts[1:, 3] = 0
    sums = np.where(counts > 0, documents["a"].sums, 0)
    documents["a"] = DocumentPairs(sums, counts)
    row = reversal_table(documents, 9, names=("a", "b")).iloc[0]
    assert row.note == "too few documents" and np.isfinite(row.rate)


def test_pairs_without_rows_name_their_heads():
    documents = measures(np.random.default_rng(10), ("a", "b"), n_heads=4)
    counts = documents["b"].counts.copy()
    counts[:, 4] = 0  # heads 1 and 3
    documents["b"] = DocumentPairs(documents["b"].sums, counts)
    heads = [HeadId(0, 0), HeadId(0, 1), HeadId(1, 0), HeadId(1, 1)]
    with pytest.raises(RowError, match=r"b is (nan|inf|-inf) between layer 0, head 1 and layer 1"):
        reversal_table(documents, 4, names=("a", "b"), heads=heads)


@pytest.mark.parametrize(
    ("names", "n_heads", "message"),
    [
        (("a", "c"), 9, "no distances named 'c'; there are a, b"),
        (("a",), 9, "two or more"),
        (("a", "b"), 8, "36 pairs, expected 28 of 8 heads"),
    ],
)
def test_refused_requests(names, n_heads, message):
    with pytest.raises(RowError, match=message):
        reversal_table(measures(np.random.default_rng(0), ("a", "b")), n_heads, names=names)


def test_different_numbers_of_documents_are_refused():
    rng = np.random.default_rng(0)
    documents = measures(rng, ("a",)) | measures(rng, ("b",), documents=5)
    with pytest.raises(RowError, match="numbers of documents differ"):
        reversal_table(documents, 9, names=("a", "b"))
