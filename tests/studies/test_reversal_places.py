"""Where reversals happen: counts per pair against loops, and bins that hold every pair."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies import reversal_places as places_module
from sinkwise.studies.reversal import reversal_rate
from sinkwise.studies.reversal_places import (
    REVERSAL_PLACES_COLUMNS,
    pair_reversal_shares,
    reversal_places,
)


def two(rng, n, levels=None):
    pairs = n * (n - 1) // 2
    draw = rng.random if levels is None else lambda m: rng.integers(1, levels, m).astype(float)
    return squareform(draw(pairs)), squareform(draw(pairs))


def shares_by_hand(d1, d2):
    n = len(d1)
    share = np.full((n, n), np.nan)
    for i, j in itertools.permutations(range(n), 2):
        scores = []
        for a, b in ((i, j), (j, i)):
            for c in set(range(n)) - {a, b}:
                s1, s2 = np.sign(d1[a, b] - d1[a, c]), np.sign(d2[a, b] - d2[a, c])
                scores.append(abs(s1 - s2) / 2)
        share[i, j] = np.mean(scores)
    return share


def grid(layers, width):
    return [HeadId(layer, i) for layer in range(layers) for i in range(width)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 9), st.sampled_from([None, 2, 3, 6]))
def test_shares_equal_all_verdicts_of_a_pair_and_average_to_the_rate(seed, n, levels):
    d1, d2 = two(np.random.default_rng(seed), n, levels)
    share = pair_reversal_shares(d1, d2)
    np.testing.assert_allclose(share, shares_by_hand(d1, d2), atol=1e-15)
    np.testing.assert_array_equal(share, share.T)
    assert np.nanmean(share) == pytest.approx(reversal_rate(d1, d2), abs=1e-14)


def test_verdicts_in_tiles_are_the_same(monkeypatch):
    d1, d2 = two(np.random.default_rng(1), 23, 6)
    whole = pair_reversal_shares(d1, d2)
    monkeypatch.setattr(places_module, "_TILE_ELEMENTS", 60)
    np.testing.assert_array_equal(pair_reversal_shares(d1, d2), whole)


def test_sampled_anchors_give_what_they_saw_and_no_more():
    d1, d2 = two(np.random.default_rng(2), 40)
    whole = pair_reversal_shares(d1, d2)
    some = pair_reversal_shares(d1, d2, exact_up_to=25)
    known = np.isfinite(some)
    # a pair is unknown where neither head was drawn: 15 heads were not
    assert (~known).sum() == 15 * 14 + 40
    both = known.all(1)
    assert both.sum() == 0
    np.testing.assert_allclose(some[known].mean(), np.nanmean(whole), atol=0.02)
    np.testing.assert_array_equal(some, pair_reversal_shares(d1, d2, exact_up_to=25, seed=0))


def test_bins_hold_every_pair_once_and_average_to_the_rate():
    rng = np.random.default_rng(3)
    d1, d2 = two(rng, 12)
    heads = grid(4, 3)
    mass = rng.random(12)
    found = reversal_places(d1, d2, heads, mass, bins=5)
    assert tuple(found.columns) == REVERSAL_PLACES_COLUMNS
    rate = reversal_rate(d1, d2)
    for _, kind in found.groupby("by"):
        assert kind.pairs.sum() == 66
        assert np.average(kind.rate, weights=kind.pairs) == pytest.approx(rate, abs=1e-14)
    by_layer = found[found.by == "layer_distance"]
    assert by_layer.low.tolist() == by_layer.high.tolist() == [0, 1, 2, 3]
    assert by_layer.pairs.tolist() == [4 * 3, 3 * 9, 2 * 9, 9]
    by_gap = found[found.by == "sink_mass_gap"]
    assert len(by_gap) == 5 and by_gap.pairs.between(12, 14).all()
    share = squareform(np.nan_to_num(pair_reversal_shares(d1, d2)))
    gap = np.abs(mass[:, None] - mass)[np.triu_indices(12, 1)]
    for i, row in enumerate(by_gap.itertuples()):
        inside = (gap <= row.high) & ((gap >= row.low) if i == 0 else (gap > row.low))
        assert row.pairs == inside.sum()
        assert row.rate == pytest.approx(share[inside].mean(), abs=1e-14)


def test_reversals_show_where_they_are_put():
    rng = np.random.default_rng(4)
    heads = grid(3, 10)
    layer = np.array([h.layer for h in heads])
    apart = np.abs(layer[:, None] - layer)
    d1, noise = two(rng, 30)
    d2 = d1 + np.where(apart == 2, noise, 0)
    found = reversal_places(d1, d2, heads, 0.1 + 0.4 * layer, bins=4)
    for _, kind in found.groupby("by"):  # here the two say the same
        assert kind.pairs.tolist() == [3 * 45, 2 * 100, 100]
        assert kind.rate.iloc[2] > 1.5 * kind.rate.iloc[:2].max()
    gap = found[found.by == "sink_mass_gap"]
    assert gap.high.tolist() == pytest.approx([0.0, 0.4, 0.8])


def test_equal_sink_masses_are_one_bin_and_missing_ones_a_row_of_their_own():
    d1, d2 = two(np.random.default_rng(5), 5)
    mass = np.array([0.5, 0.5, 0.5, 0.5, np.nan])
    found = reversal_places(d1, d2, grid(1, 5), mass)
    gap = found[found.by == "sink_mass_gap"]
    assert gap.pairs.tolist() == [6, 4]
    assert (gap.low.iloc[0], gap.high.iloc[0]) == (0.0, 0.0) and np.isnan(gap.low.iloc[1])


def test_refused_requests():
    d1, d2 = two(np.random.default_rng(6), 5)
    with pytest.raises(RowError, match=r"sink_mass has shape \(4,\), expected \(5,\)"):
        reversal_places(d1, d2, grid(1, 5), np.ones(4))
    with pytest.raises(RowError, match="bins is 0"):
        reversal_places(d1, d2, grid(1, 5), np.ones(5), bins=0)
    d1[1, 2] = d1[2, 1] = np.nan
    with pytest.raises(RowError, match="is nan between layer 0, head 1 and layer 0, head 2"):
        reversal_places(d1, d2, grid(1, 5), np.ones(5))
