"""The worst head pairs: ranks by hand, and gaps that shrink to the truth on other documents."""

import numpy as np
import pytest
from scipy.stats import rankdata

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.worst_pairs import WORST_PAIRS_COLUMNS, rank_shares, worst_pairs


def measure(rng, truth, noise, documents=8):
    sums = truth + noise * rng.normal(size=(documents, len(truth)))
    return DocumentPairs(sums, np.ones(documents))


def test_pairs_are_those_with_the_largest_rank_gaps_both_ways():
    rng = np.random.default_rng(0)
    first, second = (measure(rng, rng.random(66), 0.01) for _ in range(2))
    heads = [HeadId(layer, i) for layer in range(3) for i in range(4)]
    found = worst_pairs(first, second, 12, n=4, names=("a", "b"), heads=heads)
    assert tuple(found.columns) == WORST_PAIRS_COLUMNS
    gap = (rankdata(second.distances()) - rankdata(first.distances())) / 66
    one, two = np.triu_indices(12, 1)
    for name, sign in (("a", 1), ("b", -1)):
        rows = found[found.near_in == name]
        order = np.argsort(-sign * gap)[:4]
        assert rows.place.tolist() == [1, 2, 3, 4]
        assert rows["head"].tolist() == one[order].tolist()
        assert rows.other.tolist() == two[order].tolist()
        np.testing.assert_allclose(rows.gap, sign * gap[order], atol=1e-15)
        np.testing.assert_allclose(rows.share_far - rows.share_near, rows.gap, atol=1e-15)
        assert rows.label.tolist() == [heads[i].label for i in one[order]]
    # noise is small: other documents see the same
    np.testing.assert_allclose(found.held_out_gap, found.gap, atol=0.05)


def test_without_a_true_difference_the_held_out_gap_is_about_0():
    raw, held = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = rng.random(20 * 19 // 2)
        found = worst_pairs(measure(rng, truth, 0.5), measure(rng, truth, 0.5), 20, n=5)
        raw.append(found.gap.mean())
        held.append(found.held_out_gap.mean())
    assert np.mean(raw) > 0.35
    # twelve studies: the mean is 0 within three standard errors
    assert abs(np.mean(held)) < 3 * np.std(held, ddof=1) / np.sqrt(12)
    assert abs(np.mean(held)) < 0.03


def test_a_true_stranger_stays_one_on_other_documents():
    rng = np.random.default_rng(1)
    truth = rng.random(190)
    moved = truth.copy()
    moved[7], moved[11] = 2.0, -1.0
    found = worst_pairs(measure(rng, truth, 0.05), measure(rng, moved, 0.05), 20, n=3)
    top = found[found.place == 1].set_index("near_in")
    assert top.gap["first"] == pytest.approx(1 - rank_shares(truth)[7], abs=0.05)
    assert (top.held_out_gap > 0.8 * top.gap).all() and (top.picked_again == 1).all()
    rest = found[found.place == 3]
    assert (rest.held_out_gap < 0.8 * rest.gap).all()


def test_held_out_gap_is_what_the_picks_show_on_the_other_half():
    rng = np.random.default_rng(2)
    first, second = (measure(rng, rng.random(15), 0.3, documents=4) for _ in range(2))
    found = worst_pairs(first, second, 6, n=2, partings=1, seed=3)
    from sinkwise.studies.document_halves import random_halves

    half = random_halves(4, 1, 3)
    gaps = [(rankdata(second.of(h)[0]) - rankdata(first.of(h)[0])) / 15 for h in (half, ~half)]
    for name, sign in (("first", 1), ("second", -1)):
        rows = found[found.near_in == name]
        for place in range(len(rows)):
            expected = np.mean(
                [
                    sign * gaps[1 - k][np.argsort(-sign * gaps[k], kind="stable")[place]]
                    for k in (0, 1)
                ]
            )
            assert rows.held_out_gap.iloc[place] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("documents", [1, 3])
def test_too_few_documents_are_said(documents):
    rng = np.random.default_rng(3)
    one, two = (measure(rng, rng.random(15), 0.1, documents) for _ in range(2))
    found = worst_pairs(one, two, 6, n=2)
    assert (found.note == "too few documents").all() and len(found) == 4
    assert found.held_out_gap.isna().all() and found.picked_again.isna().all()
    assert found.gap.notna().all()


def test_a_measure_against_itself_has_no_worst_pair():
    one = measure(np.random.default_rng(4), np.arange(15.0), 0.1)
    found = worst_pairs(one, one, 6)
    assert len(found) == 0 and tuple(found.columns) == WORST_PAIRS_COLUMNS


def test_three_heads_and_ties():
    one = DocumentPairs(np.tile([1.0, 1.0, 2.0], (4, 1)), np.ones(4))
    two = DocumentPairs(np.tile([2.0, 1.0, 1.0], (4, 1)), np.ones(4))
    found = worst_pairs(one, two, 3)
    assert found[["head", "other", "gap"]].values.tolist() == [
        [0, 1, pytest.approx(0.5)],
        [1, 2, pytest.approx(0.5)],
    ]
    assert found.held_out_gap.tolist() == pytest.approx(found.gap.tolist())
    assert rank_shares(np.array([1.0, 1.0, 2.0])).tolist() == pytest.approx([1 / 3, 1 / 3, 5 / 6])


def test_pairs_without_rows_in_a_half_are_not_picked_there(recwarn):
    rng = np.random.default_rng(5)
    one, two = (measure(rng, rng.random(15), 0.1) for _ in range(2))
    counts = np.ones((8, 15))
    counts[1:, 4] = 0
    one, two = (DocumentPairs(np.where(counts > 0, m.sums, 0), counts) for m in (one, two))
    found = worst_pairs(one, two, 6)
    assert np.isfinite(found.held_out_gap).all()
    assert not recwarn.list


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is 0, expected at least 1"),
        ({"partings": 0}, "partings is 0"),
        ({"names": ("a", "a")}, "both measures are called 'a'"),
        ({"n_heads": 5}, "15 pairs, expected 10 of 5 heads"),
    ],
)
def test_refused_requests(options, message):
    one = measure(np.random.default_rng(6), np.arange(15.0), 0.1)
    with pytest.raises(RowError, match=message):
        worst_pairs(one, one, **{"n_heads": 6, **options})


def test_undefined_distances_name_their_heads():
    one = measure(np.random.default_rng(7), np.arange(15.0), 0.1)
    counts = np.ones((8, 15))
    counts[:, 0] = 0
    with pytest.raises(RowError, match=r"second is .* between head 0 and head 1"):
        worst_pairs(one, DocumentPairs(one.sums, counts), 6)
