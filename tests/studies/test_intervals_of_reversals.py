"""Intervals of reversal rates: how they are made, when they are withheld, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from sinkwise.errors import RowError
from sinkwise.studies.document_halves import (
    TOO_FEW,
    DocumentPairs,
    halves_interval,
    random_halves,
)
from sinkwise.studies.reversal import reversal_rate
from sinkwise.studies.reversal_table import reversal_table


def test_halves_hold_half_of_the_documents_in_any_combination():
    halves = random_halves(8, 2_000, seed=0)
    assert (halves.sum(1) == 4).all()
    # each document is in half of the halves, to five standard errors
    assert np.abs(halves.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(2_000)
    assert len(np.unique(halves, axis=0)) == 70  # 8 choose 4
    assert (random_halves(9, 10, seed=1).sum(1) == 4).all()


def test_interval_is_the_debiased_value_and_its_spread():
    halves = np.array([0.29, 0.31, 0.33, 0.31])
    got = halves_interval(0.3, halves, 8)
    half_width = stats.t.ppf(0.975, 7) * np.sqrt(2) * halves.std(ddof=1)
    assert got.bias == pytest.approx(0.01)
    assert got.half_width == pytest.approx(half_width)
    assert (got.low, got.high) == pytest.approx((0.29 - half_width, 0.29 + half_width))
    assert got.note == ""


def test_interval_stays_within_the_possible_values():
    got = halves_interval(0.01, np.array([0.0, 0.01, 0.02, 0.01]), 8)
    assert got.low == 0.0 and got.half_width > 0.01


@pytest.mark.parametrize(
    ("halves", "documents", "drowned"),
    [
        (np.array([0.35, 0.351, 0.349]), 8, False),  # bias 0.05, hardly any spread
        (np.array([0.29, 0.31, 0.3]), 3, False),
        (np.array([0.29, np.nan, 0.3]), 8, False),
        (np.array([0.29, 0.31, 0.3]), 8, True),
    ],
)
def test_no_interval_where_noise_reaches_the_differences(halves, documents, drowned):
    got = halves_interval(0.3, halves, documents, drowned=drowned)
    assert np.isnan(got.low) and np.isnan(got.high)
    assert got.note == TOO_FEW == "too few documents"


def test_distances_of_halves_pool_rows():
    pairs = DocumentPairs(np.array([[2.0, 4.0], [9.0, 3.0], [5.0, 5.0]]), np.array([1, 3, 2]))
    np.testing.assert_allclose(pairs.distances(), [16 / 6, 12 / 6])
    np.testing.assert_allclose(pairs.of(np.array([[True, True, False]])), [[11 / 4, 7 / 4]])


def test_documents_of_wrong_shape_are_refused():
    with pytest.raises(RowError, match=r"expected \(documents, pairs\)"):
        DocumentPairs(np.zeros(3), np.ones(3))
    with pytest.raises(RowError, match="do not fit"):
        DocumentPairs(np.zeros((3, 2)), np.ones((4, 2)))


def correlated_study(rng, *, n_heads, documents, shift, noise, shared):
    """Two measures: true matrices, and per-document ones with (partly shared) noise."""
    pairs = n_heads * (n_heads - 1) // 2
    a = np.exp(0.5 * rng.normal(size=pairs))
    b = a * np.exp(shift * rng.normal(size=pairs))
    na = rng.normal(size=(documents, pairs))
    nb = shared * na + np.sqrt(1 - shared**2) * rng.normal(size=(documents, pairs))
    # lognormal noise has one mean factor for all pairs, so the order in the limit is the truth's
    counts = np.ones((documents, 1))
    return (a, b), {
        "cosine/kept": DocumentPairs(a * np.exp(noise * na), counts),
        "cosine/dropped": DocumentPairs(b * np.exp(noise * nb), counts),
    }


def coverage(studies, seed, **kind):
    """Share of the given intervals that hold the truth, and the share of studies given one."""
    hits = []
    for i in range(studies):
        (a, b), documents = correlated_study(np.random.default_rng([seed, i]), **kind)
        row = reversal_table(documents, kind["n_heads"], halves=60, seed=i).iloc[0]
        if row.note == "":
            hits.append(row.low <= reversal_rate(a, b) <= row.high)
    return np.mean(hits) if hits else 1.0, len(hits) / studies


def test_coverage_of_reversal_intervals():
    # of 30 intervals, each covering 0.95, fewer than 25 hit once in 300 seeds
    kind = {"n_heads": 16, "documents": 8, "shift": 0.3, "noise": 0.2, "shared": 0.9}
    covered, given = coverage(30, 0, **kind)
    assert covered >= 25 / 30
    assert given >= 0.8


def test_noise_that_saturates_gets_no_interval():
    # the rate is 0.03 in truth, 0.1 as measured, and the halves, as noisy as the whole, show
    # little bias: only the flips within one measure tell that noise made the rate
    kind = {"n_heads": 16, "documents": 8, "shift": 0.05, "noise": 1.0, "shared": 0.9}
    _, given = coverage(20, 1, **kind)
    assert given <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("documents", [8, 32])
@pytest.mark.parametrize("shift", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_coverage_from_small_to_overwhelming_noise(documents, shift, noise, shared):
    covered, given = coverage(
        60, 2, n_heads=30, documents=documents, shift=shift, noise=noise, shared=shared
    )
    # where intervals are rare, few of them decide; of 18 at 0.95 fewer than 14 hit once in 640
    # seeds, and the least cover measured was 0.88
    if given >= 0.3:
        assert covered >= 0.76
