"""One row of every head, kept whole, so that a reader can see what two heads do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from sinkwise.rowdata import RowBlock

__all__ = ["MOST_ELEMENTS", "ExampleRow", "example_row"]

MOST_ELEMENTS = 1 << 22
"""Heads times keys above which no row is kept (16 MiB in float32)."""


@dataclass(frozen=True)
class ExampleRow:
    """The same query's row of every head.

    Attributes
    ----------
    query
        Its position in the document.
    log_weights
        float32 ``(heads, keys)``: log-weights normalised over the support; ``-inf`` outside it.
    sink
        bool ``(keys,)``.
    positions
        int ``(keys,)``: places of the keys in the document; -1 for a virtual sink.
    """

    query: int
    log_weights: np.ndarray
    sink: np.ndarray
    positions: np.ndarray


def example_row(block: RowBlock) -> ExampleRow | None:
    """Return the row of a block's last query, None for a block without rows or too wide a row.

    The last query sees the most keys.
    """
    if block.n_rows == 0 or block.n_heads * block.n_keys > MOST_ELEMENTS:
        return None
    row = int(np.argmax(block.queries))
    support = block.support[..., row, :]
    z = np.where(support, block.log_weights[:, row].astype(np.float64), -np.inf)
    with np.errstate(invalid="ignore"):  # a head that sees nothing has no row
        z = z - logsumexp(z, axis=-1, keepdims=True)
    return ExampleRow(
        int(block.queries[row]),
        np.where(np.isnan(z), -np.inf, z).astype(np.float32),
        block.sink[row].copy(),
        block.key_positions,
    )
