"""Random rows for the benchmarks."""

from __future__ import annotations

import numpy as np

from sinkwise.rowdata import HeadId, RowBlock, make_block


def random_block(
    heads: int, rows: int, keys: int, *, seed: int = 0, causal: bool = False
) -> RowBlock:
    """float32 rows with a strong sink at key 0; causal ones from queries spread over the text."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((heads, rows, keys), dtype=np.float32)
    x *= 2
    x[:, :, 0] += 5
    queries = np.full(rows, keys - 1)
    if causal:
        queries = np.sort(rng.choice(np.arange(3, keys), rows, replace=False))
    return make_block(
        document=0,
        log_weights=x,
        support=np.arange(keys) <= queries[:, None],
        sink=np.arange(keys) == 0,
        queries=queries,
        heads=[HeadId(h // 12, h % 12) for h in range(heads)],
    )
