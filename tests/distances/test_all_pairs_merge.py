"""Sums of any split of the rows, merged in any order, are the sums of the whole."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinkwise.distances.all_pairs import PairSums, pair_sums
from sinkwise.rowdata import HeadId, RowBlock, make_block

RECIPES = (
    {"causal": True},
    {"causal": True, "windows": (3, 30)},
    {"zeros": 0.3},
    {"sinks": (0, 4), "dtype": np.float64},
)


def _take(block: RowBlock, rows: list[int]) -> RowBlock:
    return make_block(
        document=block.document,
        log_weights=block.log_weights[:, rows],
        support=block.support[..., rows, :],
        sink=block.sink[rows],
        queries=block.queries[rows],
        heads=[HeadId(0, h) for h in range(block.n_heads)],
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_split_merges_to_one_pass(data, block_of):
    recipe = data.draw(st.sampled_from(RECIPES))
    block = block_of(data.draw(st.integers(0, 5)), heads=5, rows=8, keys=14, **recipe)
    order = data.draw(st.permutations(range(block.n_rows)))
    cuts = sorted(data.draw(st.lists(st.integers(0, block.n_rows), max_size=4)))
    parts = [
        pair_sums(_take(block, list(order[start:stop])))
        for start, stop in zip([0, *cuts], [*cuts, block.n_rows], strict=True)
    ]  # empty parts among them
    parts = data.draw(st.permutations(parts))
    total = PairSums.zero(block.n_heads)
    for part in parts:
        total = total.merge(part)
    whole = pair_sums(block)
    for name, value in whole.sums.items():
        # one row at a time in either case: only the order of float64 additions differs
        np.testing.assert_allclose(total.sums[name], value, rtol=1e-12, atol=1e-15, err_msg=name)
    for name, value in whole.counts.items():
        np.testing.assert_array_equal(total.counts[name], value, name)


def test_merging_with_nothing_changes_nothing(block_of):
    sums = pair_sums(block_of())
    same = PairSums.zero(sums.n_heads).merge(sums)
    for name, value in sums.sums.items():
        np.testing.assert_array_equal(same.sums[name], value)
