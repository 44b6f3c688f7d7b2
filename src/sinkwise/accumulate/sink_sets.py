"""Sums of the same rows under another sink set: what hangs on the choice of the sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkwise.distances.all_pairs import PairSums, pair_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock
from sinkwise.rowdata.sink_sets import with_sink_set
from sinkwise.rowdata.softmax import visible_softmax

__all__ = ["SINK_SET_METRICS", "SinkSetSums", "sink_set_sums"]

SINK_SET_METRICS = ("content", "js_divergence/kept", "js_divergence/dropped")
"""Pair sums kept under every sink set."""


@dataclass(frozen=True)
class SinkSetSums:
    """Sums over rows under one sink set.

    Attributes
    ----------
    pairs
        Pair sums of :data:`SINK_SET_METRICS`.
    mass, rows
        ``(heads,)`` summed sink mass, and over how many rows.
    n_rows, keys
        Query rows some head can use, and the sink keys in sight summed over them.
    """

    pairs: PairSums
    mass: np.ndarray
    rows: np.ndarray
    n_rows: int
    keys: int

    def merge(self, other: SinkSetSums) -> SinkSetSums:
        """Return the sums over the rows of both.

        Raises
        ------
        RowError
            If the two hold different numbers of heads.
        """
        if len(self.mass) != len(other.mass):
            raise RowError(f"sums of {len(self.mass)} heads met sums of {len(other.mass)} heads")
        return SinkSetSums(
            self.pairs.merge(other.pairs),
            self.mass + other.mass,
            self.rows + other.rows,
            self.n_rows + other.n_rows,
            self.keys + other.keys,
        )


def sink_set_sums(
    block: RowBlock, name: str, declared: PairSums | None = None
) -> SinkSetSums | None:
    """Sum a block's rows under the sink set called `name`.

    Parameters
    ----------
    block
        Rows of one document.
    name
        One of :data:`~sinkwise.rowdata.sink_sets.SINK_SETS`.
    declared
        The block's own pair sums, taken over where the set is the block's own sink.

    Returns
    -------
    SinkSetSums or None
        None where the document has no such key.
    """
    other = with_sink_set(block, name)
    if other is None:
        return None
    same = np.array_equal(other.sink, block.sink)
    if same and declared is not None and set(SINK_SET_METRICS) <= set(declared.sums):
        counts = ("content_rows", "rows")
        pairs = PairSums(
            declared.n_heads,
            {metric: declared.sums[metric] for metric in SINK_SET_METRICS},
            {count: declared.counts[count] for count in counts},
        )
    else:
        pairs = pair_sums(other, metrics=SINK_SET_METRICS)
    mass, rows = _sink_mass(other)
    seen = other.support & other.sink
    seen = seen.any(0) if seen.ndim == 3 else seen
    usable = other.valid.any(0)
    return SinkSetSums(pairs, mass, rows, int(usable.sum()), int(seen[usable].sum()))


def _sink_mass(block: RowBlock) -> tuple[np.ndarray, np.ndarray]:
    """Summed sink mass of every head's usable rows, and their number."""
    mass, valid = np.zeros(block.n_heads), block.valid
    for head in range(block.n_heads):
        support = block.support[head] if block.support.ndim == 3 else block.support
        weights = visible_softmax(block.log_weights[head], support)
        mass[head] = weights[valid[head]][block.sink[valid[head]]].sum()
    return mass, valid.sum(1).astype(np.float64)
