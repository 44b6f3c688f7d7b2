"""Margin-weighted reversals and changes among neighbours, against plain loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.studies.reversal_forms import (
    margin_weighted_rate,
    margin_weighted_rates,
    nearest_changed,
    nearest_heads,
    neighbour_overlap,
)


def two(seed, n=9, noise=0.6):
    rng = np.random.default_rng(seed)
    a = rng.random(n * (n - 1) // 2)
    return squareform(a), squareform(a + noise * rng.random(len(a)))


def test_weighted_rate_equals_all_triples():
    d1, d2 = two(0)
    flipped = total = 0.0
    for a in range(9):
        for b, c in itertools.combinations([i for i in range(9) if i != a], 2):
            product = (d1[a, b] - d1[a, c]) * (d2[a, b] - d2[a, c])
            total += abs(product)
            flipped += abs(product) * (product < 0)
    assert margin_weighted_rate(d1, d2) == pytest.approx(flipped / total, rel=1e-12)
    assert margin_weighted_rate(d1, d1) == pytest.approx(0.0, abs=1e-15)
    assert margin_weighted_rate(d1, 7 * d2) == pytest.approx(flipped / total, rel=1e-12)


def test_weighted_rates_of_several_matrices_at_once_and_of_sampled_anchors():
    many = dict(zip("abc", (*two(5, 90), two(6, 90)[0]), strict=True))
    found = margin_weighted_rates(many)
    for (i, x), (j, y) in itertools.product(enumerate("abc"), repeat=2):
        # more than one tile of others
        assert found[i, j] == pytest.approx(margin_weighted_rate(many[x], many[y]), abs=1e-12)
    some = margin_weighted_rates(many, exact_up_to=50)
    assert not np.allclose(some, found, atol=1e-9)
    np.testing.assert_allclose(some, found, atol=0.02)
    np.testing.assert_array_equal(some, margin_weighted_rates(many, exact_up_to=50, seed=0))


def weighted_by_hand(d1, d2):
    weight = flipped = 0.0
    for a in range(len(d1)):
        x, y = np.delete(d1[a], a), np.delete(d2[a], a)
        products = np.subtract.outer(x, x) * np.subtract.outer(y, y)
        weight += np.abs(products).sum()
        flipped -= products[products < 0].sum()
    return weight, flipped


def test_weighted_rate_of_many_tiles_of_others():
    d1, d2 = two(7, 90)
    d2[:45] *= 3  # tiles differ in weight
    d2 = np.maximum(d2, d2.T)
    weight, flipped = weighted_by_hand(d1, d2)
    assert margin_weighted_rate(d1, d2) == pytest.approx(flipped / weight, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 12), st.integers(1, 4))
def test_weighted_rate_is_the_share_of_the_weight_with_ties_and_any_units(seed, n, levels):
    rng = np.random.default_rng(seed)
    d1, d2 = (squareform(rng.integers(1, levels + 2, n * (n - 1) // 2) + 0.0) for _ in range(2))
    weight, flipped = weighted_by_hand(d1, d2)
    got = margin_weighted_rate(1e-5 * d1, 1e5 * d2)
    assert np.isnan(got) if weight == 0 else got == pytest.approx(flipped / weight, abs=1e-12)


def test_equally_near_heads_come_in_their_order():
    d = np.ones((5, 5)) - np.eye(5)
    np.testing.assert_array_equal(nearest_heads(d, 2)[[0, 1, 4]], [[1, 2], [0, 2], [0, 1]])
    assert d[0, 1] == 1.0  # untouched


def test_weighted_rate_without_margins_is_nan():
    constant = np.ones((4, 4)) - np.eye(4)
    assert np.isnan(margin_weighted_rate(constant, two(1, 4)[0]))


def test_near_ties_hardly_weigh():
    d = squareform(np.arange(1.0, 11.0))
    near = squareform([1.0, 2.000001, 2.0, 4, 5, 6, 7, 8, 9, 10])
    assert 0 < margin_weighted_rate(d, near) < 1e-6


@pytest.mark.parametrize("k", [1, 3, 8])
def test_neighbours_equal_sorted_lists(k):
    d1, d2 = two(2)
    shares = []
    for a in range(9):
        near = [
            set(sorted((i for i in range(9) if i != a), key=lambda i, d=d, a=a: d[a, i])[:k])
            for d in (d1, d2)
        ]
        shares.append(len(near[0] & near[1]) / k)
    assert neighbour_overlap(d1, d2, k=k) == pytest.approx(np.mean(shares))
    if k == 1:
        assert 0 < nearest_changed(d1, d2) == pytest.approx(1 - np.mean(shares))


def test_refused_requests():
    d1, d2 = two(3)
    with pytest.raises(RowError, match="k is 9, expected 1 to 8"):
        neighbour_overlap(d1, d2, k=9)
    with pytest.raises(RowError, match="9 heads and the second 4"):
        nearest_changed(d1, two(4, 4)[0])
