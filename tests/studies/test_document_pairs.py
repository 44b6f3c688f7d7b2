"""Sums by document: what all pairs share is kept once, and changes nothing."""

import numpy as np
import pytest

from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import DocumentPairs, random_halves


def counts_of(kind, rng):
    shared = rng.integers(1, 5, size=(6, 1)).astype(float)
    if kind == "one a document":
        return shared[:, 0]
    if kind == "equal":
        return np.repeat(shared, 10, axis=1)
    return rng.integers(0, 4, size=(6, 10)).astype(float)


@pytest.mark.parametrize("kind", ["one a document", "equal", "unlike"])
def test_distances_signs_and_parts_equal_the_plain_means(kind):
    rng = np.random.default_rng(0)
    counts = counts_of(kind, rng)
    found = DocumentPairs(rng.integers(0, 9, size=(6, 10)), counts)
    full = np.broadcast_to(counts.reshape(6, -1), (6, 10))
    assert (found.counts == full).all()
    with np.errstate(invalid="ignore", divide="ignore"):
        np.testing.assert_allclose(found.distances(), found.sums.sum(0) / full.sum(0))
        halves = random_halves(6, 20, 0)
        plain = np.stack([found.sums[h].sum(0) / full[h].sum(0) for h in halves])
        np.testing.assert_allclose(found.of(halves), plain)
        places = np.array([3, 3, 9, 0]), np.array([1, 3, 0, 9])
        np.testing.assert_array_equal(
            found.signs(*places, halves), np.sign(plain[:, places[0]] - plain[:, places[1]])
        )
    some = found.at(np.array([7, 2]))
    np.testing.assert_array_equal(some.sums, found.sums[:, [7, 2]])
    np.testing.assert_array_equal(some.counts, full[:, [7, 2]])


def test_counts_that_all_pairs_share_take_no_memory_a_pair():
    shared = DocumentPairs(np.ones((3, 1000)), np.full((3, 1000), 7.0))
    assert shared.counts.strides[1] == 0
    assert DocumentPairs(np.ones((3, 0)), np.ones((3, 0))).distances().shape == (0,)
    assert np.isnan(DocumentPairs(np.zeros((2, 3)), np.zeros(2)).distances()).all()


def test_no_rows_in_a_subset_decide_nothing():
    pairs = DocumentPairs(np.array([[1.0, 2], [0, 0]]), np.array([1.0, 0]))
    halves = np.array([[True, False], [False, True]])
    signs = pairs.signs(np.array([0]), np.array([1]), halves)
    assert signs[0, 0] == -1 and np.isnan(signs[1, 0])


def test_work_on_all_cores_comes_in_order_and_raises():
    assert list(on_all_cores(lambda x: x * x, range(50))) == [x * x for x in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(on_all_cores(lambda x: 1 / x, [1, 0]))
