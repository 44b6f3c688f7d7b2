"""Which heads borrow from which, against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.exchanged_pairs import closest_pairs, random_distances, sampled_pairs

HEADS = [HeadId(layer, index) for layer, n in ((0, 4), (2, 3), (5, 5)) for index in range(n)]


def _by_hand(distances, heads, number, *, within=None):
    """Take the closest pair whose later head doesn't borrow yet, again and again."""
    found = {}
    while len(found) < number:
        usable = [
            (distances[donor, borrower], donor, borrower)
            for borrower in range(len(heads))
            for donor in range(borrower)
            if borrower not in found
            and np.isfinite(distances[donor, borrower])
            and (within is None or heads[borrower].layer == heads[donor].layer == within)
        ]
        _, donor, borrower = min(usable)
        found[borrower] = donor
    return found


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), share=st.sampled_from([0.1, 0.2, 0.3, 0.5]))
def test_the_closest_pairs_are_those_found_by_hand(seed, share):
    distances = random_distances(len(HEADS), seed)
    distances = np.round(distances, 1)  # ties
    found = dict(closest_pairs(distances, HEADS, share, "model"))
    assert found == _by_hand(distances, HEADS, round(share * len(HEADS)))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), share=st.sampled_from([0.3, 0.5]))
def test_within_layers_each_gives_its_own_share(seed, share):
    distances = random_distances(len(HEADS), seed)
    found = dict(closest_pairs(distances, HEADS, share, "layer"))
    expected = {}
    for layer, n in ((0, 4), (2, 3), (5, 5)):
        expected |= _by_hand(distances, HEADS, min(round(share * n), n - 1), within=layer)
    assert found == expected


def test_pairs_without_a_distance_are_never_taken():
    distances = random_distances(len(HEADS), 0)
    distances[:, 3] = distances[3, :] = np.nan
    found = closest_pairs(distances, HEADS, 0.5, "model")
    assert all(3 not in pair for pair in found) and len(found) == 6


@pytest.mark.parametrize(
    ("share", "scope", "words"),
    [
        (0.0, "model", "expected a share"),
        (1.0, "model", "expected a share"),
        (0.01, "model", "comes to no head"),
        (0.97, "model", "not enough pairs"),
        (0.1, "block", 'expected "model" or "layer"'),
    ],
)
def test_shares_that_say_nothing_are_refused(share, scope, words):
    with pytest.raises(RowError, match=words):
        closest_pairs(random_distances(len(HEADS), 0), HEADS, share, scope)


def test_distances_of_other_heads_are_refused():
    with pytest.raises(RowError, match=r"expected \(12, 12\)"):
        closest_pairs(np.zeros((3, 3)), HEADS, 0.5, "model")


def test_a_sample_covers_the_range_of_each_distance_and_the_depth_of_the_model():
    n = 60
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n)) * 1.0)
    pairs = sampled_pairs({"near": near, "far": near.max() - near}, n, 48, donors=4, seed=3)
    assert len(pairs) == len(set(pairs)) == 48
    assert all(donor < borrower for borrower, donor in pairs)
    borrowers = sorted({borrower for borrower, _ in pairs})
    assert len(borrowers) == 12
    assert all(4 + i * 56 // 12 <= b < 4 + (i + 1) * 56 // 12 for i, b in enumerate(borrowers))
    gaps = np.array([(b - d) / b for b, d in pairs])
    counts = np.histogram(gaps, bins=3, range=(0, 1))[0]
    assert counts.min() >= 8, counts
    drawn = [sampled_pairs({"near": near}, n, 48, seed=seed) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_first_donor_of_each_borrower_is_the_nearest():
    distances = random_distances(20, 5)
    pairs = sampled_pairs({"one": distances}, 20, 20, donors=4, seed=0)
    for borrower, donor in pairs[::4]:
        assert donor == int(distances[borrower, :borrower].argmin())


def test_heads_too_few_to_sample_are_refused():
    with pytest.raises(RowError, match="no head has 4 earlier heads"):
        sampled_pairs({"one": random_distances(4, 0)}, 4, 8, seed=0)
    with pytest.raises(RowError, match="no distance arrived"):
        sampled_pairs({}, 4, 8, seed=0)
