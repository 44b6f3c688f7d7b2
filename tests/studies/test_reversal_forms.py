"""Margin-weighted reversals and changes among neighbours, against plain loops."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.studies.reversal_forms import (
    margin_weighted_rate,
    nearest_changed,
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
