"""Sums of where attention goes, against loops over every cell."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkwise.accumulate.placement import (
    OFFSET_EDGES,
    PlacementSums,
    offset_bins,
    placement_sums,
)
from sinkwise.distances.all_pairs import pair_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId, KeyLabels, RowBlock, make_block

N_BINS = 2 * len(OFFSET_EDGES)


def block_of(seed, *, causal=True, per_head=False, zeros=False, norms=True):
    rng = np.random.default_rng(seed)
    heads, keys = 3, 12
    queries = np.sort(rng.choice(np.arange(3, keys), 5, replace=False))
    z = rng.normal(size=(heads, 5, keys)) * 3
    support = np.arange(keys) <= queries[:, None] if causal else np.ones((5, keys), bool)
    if per_head:
        support = np.broadcast_to(support, z.shape).copy()
        support[2, :, 1] = False
    if zeros:
        z[0, 1, 2] = -np.inf
    labels = KeyLabels(
        np.arange(keys), None, None, rng.random((heads, keys)) + 0.1 if norms else None
    )
    return make_block(
        document=0,
        log_weights=z,
        support=support,
        sink=np.arange(keys) == 0,
        queries=queries,
        heads=[HeadId(0, h) for h in range(heads)],
        keys=labels,
    )


def by_hand(block):
    out = PlacementSums.zero(block.n_heads)
    mass, seen = np.zeros((2, block.n_heads, block.n_keys))
    for h in range(block.n_heads):
        for r in range(block.n_rows):
            support = block.support[h, r] if block.support.ndim == 3 else block.support[r]
            keys = np.flatnonzero(support)
            p = np.exp(block.log_weights[h, r, keys])
            p = p / p.sum()
            content = [k for k in keys if not block.sink[r, k]]
            above = [k for k in content if np.isfinite(block.log_weights[h, r, k])]
            centre = np.mean([block.log_weights[h, r, k] for k in above])
            out.rows[h] += 1
            for k, share in zip(keys, p, strict=True):
                mass[h, k] += share
                seen[h, k] += 1
                if k in content:
                    bin_ = int(offset_bins(np.array(block.queries[r] - k)))
                    out.offset_mass[h, bin_] += share
                    out.zero_cells[h] += k not in above
                    if k in above:
                        x = block.log_weights[h, r, k] - centre
                        out.offset_clr[h, bin_] += x
                        out.squares[h] += x * x
            if block.keys.value_norms is not None:
                weighted = p * block.keys.value_norms[h, keys]
                out.value_sink_mass[h] += weighted[block.sink[r, keys]].sum() / weighted.sum()
                out.value_rows[h] += 1
    return replace(out, column_mass=mass, column_rows=seen)


def gram_by_hand(block, head):
    """Sum over rows of the Gram matrix of the row-centred indicators of the bins."""
    total = np.zeros((N_BINS, N_BINS))
    for r in range(block.n_rows):
        support = block.support[head, r] if block.support.ndim == 3 else block.support[r]
        content = np.flatnonzero(support & ~block.sink[r])
        onto = np.zeros((len(content), N_BINS))
        onto[np.arange(len(content)), offset_bins(block.queries[r] - content)] = 1
        onto -= onto.mean(0)
        total += onto.T @ onto
    return total


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("norms", [True, False])
def test_every_sum_against_a_loop_over_cells(causal, per_head, zeros, norms):
    block = block_of(4, causal=causal, per_head=per_head, zeros=zeros, norms=norms)
    found, want = placement_sums(block), by_hand(block)
    for name, value in vars(want).items():
        if name not in ("offset_gram", "group"):
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-12)
    assert len(found.offset_gram) == (2 if per_head else 1)
    for head in range(3):
        gram = found.offset_gram[found.group[head]]
        np.testing.assert_allclose(gram, gram_by_hand(block, head), rtol=1e-12, atol=1e-12)


def test_bins_part_all_offsets_and_are_named():
    offsets = np.arange(-70_000, 70_001)
    bins = offset_bins(offsets)
    assert bins.min() >= 0 and bins.max() < N_BINS
    assert (bins[offsets < 0] >= len(OFFSET_EDGES)).all()
    assert (bins[offsets >= 0] < len(OFFSET_EDGES)).all()
    assert [int(offset_bins(np.array(low))) for low in OFFSET_EDGES] == list(range(N_BINS // 2))


def test_heads_that_see_the_same_in_one_document_and_not_in_another_part():
    alike, apart = placement_sums(block_of(1)), placement_sums(block_of(2, per_head=True))
    merged = alike.merge(apart)
    assert merged.group[0] == merged.group[1] != merged.group[2]
    for head in range(3):
        want = alike.offset_gram[alike.group[head]] + apart.offset_gram[apart.group[head]]
        np.testing.assert_allclose(merged.offset_gram[merged.group[head]], want)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 5))
def test_any_split_of_the_rows_merges_to_the_whole(seed, at):
    block = block_of(seed)
    z, support = block.log_weights, block.support
    parts = [
        RowBlock(0, z[:, s], support[s], block.sink[s], block.queries[s], {}, False, block.keys)
        for s in (slice(at), slice(at, None))
    ]
    merged = placement_sums(parts[0]).merge(placement_sums(parts[1]))
    for name, value in vars(placement_sums(block)).items():
        np.testing.assert_allclose(getattr(merged, name), value, rtol=1e-12, atol=1e-12)


def test_documents_of_two_lengths_merge_and_other_heads_do_not():
    a, b = PlacementSums.zero(2), PlacementSums.zero(3)
    with pytest.raises(RowError, match="2 heads"):
        a.merge(b)


def test_a_virtual_sink_has_no_column_and_takes_its_share():
    z = np.log(np.array([[[0.1, 0.2, 0.3, 0.4]]]))
    block = make_block(
        document=0,
        log_weights=z,
        support=np.ones((1, 4), bool),
        sink=np.array([False, False, False, True]),
        queries=np.array([2]),
        heads=[HeadId(0, 0)],
        virtual=True,
    )
    found = placement_sums(block)
    np.testing.assert_allclose(found.column_mass, [[0.1, 0.2, 0.3]])
    np.testing.assert_allclose(found.offset_mass[0, :3], [0.3, 0.2, 0.1])


def test_squares_are_those_of_the_content_distance_from_uniform():
    """‖clr‖² of a head is its squared content distance from a head that is flat."""
    block = block_of(9)
    flat = np.concatenate([block.log_weights[:1], np.zeros_like(block.log_weights[:1])])
    both = RowBlock(0, flat, block.support, block.sink, block.queries)
    found = pair_sums(both, metrics=("content_sq",)).sums["content_sq"]
    np.testing.assert_allclose(placement_sums(block).squares[0], found[0], rtol=1e-10)
