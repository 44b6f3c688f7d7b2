"""Maps laid over each other: turns, mirror images and scale go, distances keep their ratios."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from sinkwise.studies.head_map import aligned_with


@given(st.integers(0, 1000), st.floats(0.1, 10), st.floats(0, 6.28), st.booleans())
def test_a_turned_mirrored_scaled_map_comes_back(seed, scale, angle, mirrored):
    points = np.random.default_rng(seed).normal(size=(7, 2))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = scale * points @ turn * (np.array([1, -1]) if mirrored else 1) + 3
    np.testing.assert_allclose(aligned_with(points, moved), points, atol=1e-9)


def test_distances_keep_their_ratios():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 9, 2))
    laid = aligned_with(a, b)
    ratio = pdist(laid) / pdist(b)
    np.testing.assert_allclose(ratio, ratio[0])
    np.testing.assert_allclose(laid.mean(0), a.mean(0))
    # no other turn brings it nearer
    for angle in np.linspace(0.1, 6, 20):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        other = (laid - laid.mean(0)) @ turn + laid.mean(0)
        assert ((other - a) ** 2).sum() >= ((laid - a) ** 2).sum() - 1e-12


def test_a_map_of_one_point_lies_at_the_centre():
    laid = aligned_with(np.array([[0, 0], [2, 2.0]]), np.ones((2, 2)))
    assert laid.tolist() == [[1, 1], [1, 1]]
