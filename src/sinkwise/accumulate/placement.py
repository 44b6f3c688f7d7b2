"""Where attention goes: sums by key, by offset from query to key, and weighted by value norms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock

__all__ = [
    "MOST_POSITIONS",
    "OFFSET_EDGES",
    "PlacementSums",
    "offset_bins",
    "placement_sums",
]

MOST_POSITIONS = 4096
"""Keys whose column is summed, from the start of a document: sinks are early keys."""

OFFSET_EDGES: tuple[int, ...] = (
    *range(64),
    *(2**octave + quarter * 2 ** (octave - 2) for octave in range(6, 16) for quarter in range(4)),
)
"""Least offsets (query position minus key position) of the bins; each ends before the next.

One bin an offset up to 63, then four to an octave; the last has no end.
"""


_PER_HEAD = ("zero_cells", "squares", "rows", "value_sink_mass", "value_rows")


@dataclass(frozen=True)
class PlacementSums:
    """Sums over rows of where every head's attention goes.

    Attributes
    ----------
    column_mass
        ``(heads, positions)``: summed weight of each key, over the rows that see it.
    column_rows
        ``(heads, positions)``: how many rows see it.
    offset_mass
        ``(heads, 2 · bins)``: summed weight of content keys by offset, those behind the query
        first, then those ahead (:data:`OFFSET_EDGES`; the query's own key is behind).
    offset_clr
        ``(heads, 2 · bins)``: summed centred log-ratio of the content by offset.
    offset_gram
        ``(groups, 2 · bins, 2 · bins)``: Gram matrix of the row-centred indicators of the bins,
        summed over the rows of the heads of a group, which see the same keys.
    group
        int ``(heads,)``: the group of each head.
    zero_cells
        ``(heads,)``: cells (a row and a key) left out of the log-ratios as rounding zeros.
    squares
        ``(heads,)``: summed squared content dispersion.
    rows
        ``(heads,)``: usable rows.
    value_sink_mass, value_rows
        ``(heads,)``: summed sink mass of weights times value norms, and over how many rows; 0
        rows where the norms are not known.
    """

    column_mass: np.ndarray
    column_rows: np.ndarray
    offset_mass: np.ndarray
    offset_clr: np.ndarray
    offset_gram: np.ndarray
    group: np.ndarray
    zero_cells: np.ndarray
    squares: np.ndarray
    rows: np.ndarray
    value_sink_mass: np.ndarray
    value_rows: np.ndarray

    @classmethod
    def zero(cls, n_heads: int) -> PlacementSums:
        """Return the sums of no rows, the neutral element of :meth:`merge`."""
        bins = 2 * len(OFFSET_EDGES)
        return cls(
            column_mass=np.zeros((n_heads, 0)),
            column_rows=np.zeros((n_heads, 0)),
            offset_mass=np.zeros((n_heads, bins)),
            offset_clr=np.zeros((n_heads, bins)),
            offset_gram=np.zeros((1, bins, bins)),
            group=np.zeros(n_heads, dtype=np.int64),
            **{name: np.zeros(n_heads) for name in _PER_HEAD},
        )

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return len(self.rows)

    def merge(self, other: PlacementSums) -> PlacementSums:
        """Return the sums over the rows of both; the longer document decides the positions.

        Raises
        ------
        RowError
            If the two hold different numbers of heads.
        """
        if self.n_heads != other.n_heads:
            raise RowError(
                f"placement sums of {self.n_heads} heads met those of {other.n_heads}: merge only "
                "sums of one model and one choice of heads"
            )
        both = np.stack([self.group, other.group])
        pairs, group = np.unique(both, axis=1, return_inverse=True)
        added = {
            f.name: _padded_sum(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
            if f.name not in ("offset_gram", "group")
        }
        return PlacementSums(
            **added,
            offset_gram=self.offset_gram[pairs[0]] + other.offset_gram[pairs[1]],
            group=group.reshape(-1),
        )


def offset_bins(offsets: np.ndarray) -> np.ndarray:
    """Return the bin of every offset (query minus key position), those ahead after those behind.

    Examples
    --------
    >>> offset_bins(np.array([0, 1, 5, 6, -1])) - np.array([0, 0, 0, 0, len(OFFSET_EDGES)])
    array([0, 1, 5, 6, 1])
    """
    bins = np.searchsorted(OFFSET_EDGES, np.abs(offsets), side="right") - 1
    return np.where(offsets < 0, bins + len(OFFSET_EDGES), bins)


def placement_sums(block: RowBlock) -> PlacementSums:
    """Sum where the attention of every head goes, over its usable rows.

    Parameters
    ----------
    block
        Rows of one document.  A rounding zero has weight 0 and no log-ratio: it is a cell of
        nobody, and the others are centred without it.

    Notes
    -----
    O(heads · rows · keys) in float64, with memory for one row of all heads.

    Examples
    --------
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> p = np.array([[[0.7, 0.1, 0.2]]])
    >>> block = make_block(document=0, log_weights=np.log(p), support=np.ones((1, 3), bool),
    ...                    sink=np.array([True, False, False]), queries=np.array([2]),
    ...                    heads=[HeadId(0, 0)])
    >>> sums = placement_sums(block)
    >>> sums.column_mass.round(3), sums.offset_mass[0, :3].round(3)
    (array([[0.7, 0.1, 0.2]]), array([0.2, 0.1, 0. ]))
    """
    positions = block.key_positions
    tracked = (positions >= 0) & (positions < MOST_POSITIONS)
    n_positions = int(positions[tracked].max(initial=-1)) + 1
    columns = np.zeros((2, block.n_heads, n_positions))
    norms = None if block.keys is None else block.keys.value_norms
    n_bins = 2 * len(OFFSET_EDGES)
    group = _support_groups(block)
    zero = PlacementSums.zero(block.n_heads)
    total = replace(
        zero,
        column_mass=columns[0],
        column_rows=columns[1],
        offset_gram=np.zeros((group.max(initial=0) + 1, n_bins, n_bins)),
        group=group,
    )
    for row in range(block.n_rows):
        bins = offset_bins(block.queries[row] - positions)
        for heads, support in _groups(block, row):
            z = block.log_weights[heads, row][:, support].astype(np.float64)
            weights = np.exp(z - z.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            known = tracked[support]
            places = positions[support][known]
            total.column_mass[np.ix_(heads, places)] += weights[:, known]
            total.column_rows[np.ix_(heads, places)] += 1.0
            total.rows[heads] += 1.0

            content = ~block.sink[row, support]
            of = bins[support][content]
            onto = np.zeros((len(of), n_bins))
            onto[np.arange(len(of)), of] = 1.0
            total.offset_mass[heads] += weights[:, content] @ onto
            clr, finite = _content_clr(z[:, content])
            total.offset_clr[heads] += clr @ onto
            total.zero_cells[heads] += (~finite).sum(-1)
            total.squares[heads] += np.einsum("hk,hk->h", clr, clr)
            cells = np.bincount(of, minlength=n_bins).astype(np.float64)
            for number in np.unique(group[heads]):
                gram = total.offset_gram[number]
                gram[np.diag_indices(n_bins)] += cells
                active = np.flatnonzero(cells)
                gram[np.ix_(active, active)] -= np.outer(cells[active], cells[active]) / len(of)
            if norms is not None:
                weighted = weights * norms[heads][:, support]
                whole = weighted.sum(-1)
                sink = weighted[:, ~content].sum(-1)
                total.value_sink_mass[heads] += np.divide(
                    sink, whole, out=np.zeros_like(sink), where=whole > 0
                )
                total.value_rows[heads] += whole > 0
    return total


def _support_groups(block: RowBlock) -> np.ndarray:
    """Number the heads by what they see on all usable rows together, int ``(heads,)``."""
    seen = block.valid[:, :, None]
    if block.support.ndim == 3:
        seen = block.support & seen
    flat = np.packbits(np.asarray(seen).reshape(block.n_heads, -1), axis=-1)
    return np.unique(flat, axis=0, return_inverse=True)[1].reshape(-1)


def _groups(block: RowBlock, row: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Usable heads of a row that see the same keys, with those keys."""
    heads = np.flatnonzero(block.valid[:, row])
    if not len(heads):
        return
    if block.support.ndim == 2:
        yield heads, np.flatnonzero(block.support[row])
        return
    support = block.support[heads, row]
    distinct, label = np.unique(support, axis=0, return_inverse=True)
    for number, keys in enumerate(distinct):
        yield heads[label.reshape(-1) == number], np.flatnonzero(keys)


def _content_clr(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred log-weights with 0 at rounding zeros, and which parts are above zero."""
    finite = np.isfinite(z)
    if finite.all():
        return z - z.mean(-1, keepdims=True), finite
    parts = np.maximum(finite.sum(-1, keepdims=True), 1)
    known = np.where(finite, z, 0.0)
    return np.where(finite, known - known.sum(-1, keepdims=True) / parts, 0.0), finite


def _padded_sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if first.shape == second.shape:
        total: np.ndarray = first + second
        return total
    width = max(first.shape[-1], second.shape[-1])
    out = np.zeros((len(first), width))
    out[:, : first.shape[-1]] += first
    out[:, : second.shape[-1]] += second
    return out
