"""The exact reversal rate against all triples written out, and what it refuses."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform
from scipy.stats import kendalltau

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies import reversal
from sinkwise.studies.reversal import reversal_rate, sample_triples, sampled_reversal_rate


def all_triples_rate(d1, d2):
    total, n = 0.0, len(d1)
    for a in range(n):
        for b, c in itertools.combinations([i for i in range(n) if i != a], 2):
            s1, s2 = np.sign(d1[a, b] - d1[a, c]), np.sign(d2[a, b] - d2[a, c])
            if s1 == s2:
                score = 0.0
            elif s1 == 0 or s2 == 0:
                score = 0.5
            else:
                score = 1.0
            total += score
    return total / (n * (n - 1) * (n - 2) / 2)


def correlated(rng, n, noise):
    a = rng.random(n * (n - 1) // 2)
    return squareform(a), squareform(a + noise * rng.random(len(a)))


@st.composite
def tied_pairs_of_matrices(draw):
    n = draw(st.sampled_from([3, 4, 5, 6, 7, 8, 9, 18, 35]))
    values = st.lists(st.integers(0, 4), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2)
    return tuple(squareform(np.array(draw(values), dtype=float)) for _ in range(2))


@settings(max_examples=200, deadline=None)
@given(tied_pairs_of_matrices())
def test_exact_rate_equals_all_triples_with_ties(matrices):
    d1, d2 = matrices
    assert reversal_rate(d1, d2) == pytest.approx(all_triples_rate(d1, d2), abs=1e-15)
    assert reversal_rate(d1, d2) == reversal_rate(d2, d1)
    assert reversal_rate(d1, d1) == 0.0


@pytest.mark.parametrize("n", [3, 4, 5, 16, 17, 18, 33, 34, 50, 66])
def test_exact_rate_without_ties_at_sizes_around_powers_of_two(n):
    d1, d2 = correlated(np.random.default_rng(n), n, 0.7)
    assert reversal_rate(d1, d2) == pytest.approx(all_triples_rate(d1, d2), abs=1e-15)


def test_rate_in_tiles_of_anchors_is_the_same(monkeypatch):
    d1, d2 = correlated(np.random.default_rng(0), 23, 0.5)
    whole = reversal_rate(d1, d2)
    monkeypatch.setattr(reversal, "_TILE_ELEMENTS", 50)
    assert reversal_rate(d1, d2) == whole


def test_rate_is_kendall_where_nothing_is_tied():
    # tau-b equals tau-a without ties
    d1, d2 = correlated(np.random.default_rng(2), 40, 0.5)
    off = ~np.eye(40, dtype=bool)
    taus = [kendalltau(d1[a][off[a]], d2[a][off[a]]).statistic for a in range(40)]
    assert reversal_rate(d1, d2) == pytest.approx((1 - np.mean(taus)) / 2, abs=1e-14)


def test_known_ends_of_the_scale():
    d = squareform(np.random.default_rng(1).permutation(45).astype(float) + 1)
    reversed_order = 100 - d
    np.fill_diagonal(reversed_order, 0)
    assert reversal_rate(d, reversed_order) == 1.0
    constant = np.ones((10, 10)) - np.eye(10)
    assert reversal_rate(d, constant) == 0.5
    assert reversal_rate(constant, constant) == 0.0
    assert reversal_rate(d, np.exp(d) - np.eye(10)) == 0.0  # monotone: the order is the same


def test_sampled_rate_is_near_the_exact_one_and_seeded():
    d1, d2 = correlated(np.random.default_rng(4), 60, 0.6)
    sampled = sampled_reversal_rate(d1, d2)
    assert sampled == sampled_reversal_rate(d1, d2, samples=50_000, seed=0)
    assert sampled != sampled_reversal_rate(d1, d2, seed=1)
    # four standard errors of a share over 50,000 draws
    assert abs(sampled - reversal_rate(d1, d2)) < 4 * 0.5 / np.sqrt(50_000)


def test_sampled_triples_are_even_over_all_triples():
    a, b, c = sample_triples(4, 24_000, seed=0)
    assert ((a != b) & (a != c) & (b != c)).all()
    counts = np.unique(np.stack([a, b, c]), axis=1, return_counts=True)[1]
    assert len(counts) == 24  # 4 x 3 x 2 ordered triples, 1,000 draws each expected
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_F2_float32_rounding_is_symmetrised_and_real_asymmetry_raises():
    d1, d2 = correlated(np.random.default_rng(5), 12, 0.5)
    noisy = d1.astype(np.float32)
    noisy[3, 7] += np.float32(1e-7)
    before = noisy.copy()
    assert reversal_rate(noisy, d2) == pytest.approx(reversal_rate(d1, d2), abs=1e-12)
    np.testing.assert_array_equal(noisy, before)
    broken = d1.copy()
    broken[3, 7] += 2e-3
    with pytest.raises(RowError, match=r"first distance matrix must be symmetric.*head 3.*head 7"):
        reversal_rate(broken, d2)


def test_condensed_matrices_are_read_as_such():
    d1, d2 = correlated(np.random.default_rng(6), 12, 0.5)
    assert reversal_rate(squareform(d1), squareform(d2)) == reversal_rate(d1, d2)


def test_nan_names_the_heads():
    d, heads = np.ones((6, 6)) - np.eye(6), [HeadId(i // 3, i % 3) for i in range(6)]
    bad = d.copy()
    bad[4, :4] = bad[:4, 4] = np.nan
    with pytest.raises(RowError, match=r"layer 1, head 1 has the most such values, 4 of 6"):
        reversal_rate(d, bad, heads=heads)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 4)), r"shape \(3, 4\)"),
        (np.zeros((2, 3, 3)), r"shape \(2, 3, 3\)"),
        (np.ones(4), "no number of pairs"),
        (np.ones((4, 4)), "on its diagonal"),
        (np.zeros((2, 2)), "2 heads, expected at least 3"),
        (np.zeros((3, 3), dtype=complex), "complex"),
        (np.ones((5, 5)) - np.eye(5), "first distance matrix has 4 heads and the second 5"),
    ],
)
def test_refused_matrices(matrix, message):
    good = np.ones((4, 4)) - np.eye(4)
    with pytest.raises(RowError, match=message):
        reversal_rate(good, matrix)


def test_rounding_on_the_diagonal_is_zeroed():
    d1, d2 = correlated(np.random.default_rng(7), 8, 0.5)
    assert reversal_rate(d1 + 2e-16 * np.eye(8), d2) == reversal_rate(d1, d2)


def test_samples_below_one_are_refused():
    with pytest.raises(RowError, match="samples is 0"):
        sampled_reversal_rate(np.ones((4, 4)) - np.eye(4), np.ones((4, 4)) - np.eye(4), samples=0)
