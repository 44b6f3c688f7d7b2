"""One order of heads shared by every distance heat map, and blocks where heads are too many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from sinkwise.report.matrices import has_matrix, matrix_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["MAX_CELLS_PER_SIDE", "HeadOrder", "shared_order"]

MAX_CELLS_PER_SIDE = 400
"""Cells per side of a heat map; with more heads, neighbours in the order are averaged."""
_OPTIMAL_UP_TO = 1200  # heads: about a second; beyond, the plain leaf order of the tree does


@dataclass(frozen=True)
class HeadOrder:
    """A permutation of the heads, the matrix it came from, and how many heads share a cell."""

    order: np.ndarray
    source: str
    per_cell: int

    def cells(self, matrix: np.ndarray) -> np.ndarray:
        """Return ``(cells, cells)``: `matrix` in this order, blocks of heads averaged.

        A head's distance to itself is left out of a block's mean; a block without any finite
        distance is NaN.
        """
        ordered = matrix[np.ix_(self.order, self.order)]
        if self.per_cell == 1:
            return ordered
        ordered = ordered.copy()
        np.fill_diagonal(ordered, np.nan)
        starts = np.arange(0, ordered.shape[0], self.per_cell)
        total = _block_sums(np.nan_to_num(ordered, nan=0.0), starts)
        count = _block_sums(np.isfinite(ordered).astype(np.float64), starts)
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def names(self, labels: list[str]) -> list[str]:
        """Return one name per cell: the head's label, or ``"L3H5 +2"`` for it and two others."""
        ordered = [labels[i] for i in self.order]
        if self.per_cell == 1:
            return ordered
        blocks = [ordered[i : i + self.per_cell] for i in range(0, len(ordered), self.per_cell)]
        return [b[0] if len(b) == 1 else f"{b[0]} +{len(b) - 1}" for b in blocks]

    def layers(self, layer: np.ndarray) -> np.ndarray:
        """Return the mean layer number of each cell's heads."""
        ordered = layer[self.order].astype(np.float64)
        starts = np.arange(0, ordered.size, self.per_cell)
        return np.add.reduceat(ordered, starts) / np.diff([*starts, ordered.size])


def shared_order(
    distances: xr.Dataset,
    *,
    candidates: tuple[str, ...] = ("content_angle", "content"),
    max_cells: int = MAX_CELLS_PER_SIDE,
) -> HeadOrder:
    """Return the leaf order of average linkage on the first of `candidates` that has values.

    The order only arranges rows and columns: similar heads stand side by side.  Pairs without
    a distance count as the farthest.  Leaves are ordered optimally (neighbours as near as the
    tree allows) up to 1,200 heads; O(heads³).
    """
    n_heads = distances.sizes["head"]
    per_cell = -(-n_heads // max_cells)
    name = next((c for c in candidates if has_matrix(distances, c)), None)
    if name is None or n_heads < 3:
        return HeadOrder(np.arange(n_heads), "layer and head number", per_cell)
    matrix = matrix_of(distances, name)
    matrix = np.where(np.isfinite(matrix), matrix, np.nanmax(matrix))
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 0.0)
    pairs = squareform(matrix, checks=False)
    tree = linkage(pairs, method="average")
    if n_heads <= _OPTIMAL_UP_TO:
        tree = optimal_leaf_ordering(tree, pairs)
    return HeadOrder(leaves_list(tree), name, per_cell)


def _block_sums(matrix: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(np.add.reduceat(matrix, starts, axis=0), starts, axis=1)
