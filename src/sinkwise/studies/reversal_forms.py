"""Which reversals matter: weighted by margin, and among the nearest heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.anchors import EXACT_UP_TO, Anchor, draw_anchors, pair_tiles
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.head_matrix import as_two_head_matrices

__all__ = [
    "margin_weighted_rate",
    "margin_weighted_rates",
    "nearest_changed",
    "nearest_heads",
    "neighbour_overlap",
    "neighbour_overlaps",
]


def margin_weighted_rate(
    d1: np.ndarray, d2: np.ndarray, *, heads: Sequence[HeadId] | None = None
) -> float:
    """Return the reversal rate with every triple weighted by the product of its two margins.

    Flips among near-ties are harmless, and weigh next to nothing here: a triple (a; b, c) weighs
    ``|d1[a, b] - d1[a, c]| · |d2[a, b] - d2[a, c]|``, a tie in either matrix nothing.

    Parameters
    ----------
    d1, d2
        ``(heads, heads)`` symmetric distances, or condensed ``(pairs,)``; units don't matter.
    heads
        Names for messages.

    Returns
    -------
    float
        In [0, 1]; NaN where every triple is tied in one of the two.

    Raises
    ------
    RowError
        As in :func:`~sinkwise.studies.reversal.reversal_rate`.

    Notes
    -----
    Over all triples whatever the number of heads: O(heads^3) time, O(heads^2) memory.

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> round(margin_weighted_rate(d1, d2), 4)  # margins 1·1 (flipped), 2·1, 1·2
    0.2
    """
    first, second = as_two_head_matrices(d1, d2, heads)
    pair = {"first": first, "second": second}
    return float(margin_weighted_rates(pair, exact_up_to=len(first))[0, 1])


def margin_weighted_rates(
    matrices: Mapping[str, np.ndarray], *, exact_up_to: int = EXACT_UP_TO, seed: int = 0
) -> np.ndarray:
    """Return the margin-weighted rates between every two of several matrices at once.

    Parameters
    ----------
    matrices
        ``(heads, heads)`` by name, as :func:`~sinkwise.studies.head_matrix.as_head_matrix`
        returns them.
    exact_up_to
        Heads up to which all triples count; beyond, so many seeded anchors with as many others
        less one.
    seed
        Of that draw.

    Returns
    -------
    numpy.ndarray
        ``(names, names)``; NaN where every triple is tied in one of the two.

    Notes
    -----
    With D the margins of an anchor's others by all matrices, one product ``|D| |D|^T`` gives all
    weights; the signed ones are covariances.  O(names^2 · heads^3) arithmetic on all cores,
    O(names · heads) memory.
    """
    stacked = list(matrices.values())
    n_heads = len(stacked[0])

    def weights(anchor: Anchor) -> tuple[np.ndarray, np.ndarray]:
        x = np.stack([matrix[anchor.head, anchor.others] for matrix in stacked])
        centred = x - x.mean(1, keepdims=True)
        agreement = 2 * x.shape[1] * (centred @ centred.T)  # over ordered pairs of the others
        weight = np.zeros_like(agreement)
        for rows, columns, times in pair_tiles(x.shape[1]):
            margins = np.abs(x[:, rows, None] - x[:, None, columns]).reshape(len(x), -1)
            weight += times * (margins @ margins.T)
        return weight, agreement

    total = np.zeros((len(stacked), len(stacked)))
    agreement = np.zeros_like(total)
    for weight_here, agreement_here in on_all_cores(
        weights, draw_anchors(n_heads, exact_up_to, seed)
    ):
        total += weight_here
        agreement += agreement_here
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.clip((total - agreement) / (2 * total), 0.0, 1.0)
    return np.where(total > 0, rate, np.nan)


def nearest_changed(
    d1: np.ndarray, d2: np.ndarray, *, heads: Sequence[HeadId] | None = None
) -> float:
    """Return the share of heads whose nearest other head differs between two matrices.

    Of heads equally near, the one with the lower number counts as the nearest.

    Parameters
    ----------
    d1, d2, heads
        As in :func:`margin_weighted_rate`.

    Notes
    -----
    O(heads^2).

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> round(nearest_changed(d1, d2), 4)
    0.3333
    """
    return 1.0 - neighbour_overlap(d1, d2, k=1, heads=heads)


def neighbour_overlap(
    d1: np.ndarray, d2: np.ndarray, *, k: int, heads: Sequence[HeadId] | None = None
) -> float:
    """Return how much of each head's `k` nearest the two matrices share, averaged over heads.

    Parameters
    ----------
    d1, d2, heads
        As in :func:`margin_weighted_rate`.
    k
        Neighbours per head; ties at the edge go to the lower head number.

    Returns
    -------
    float
        In [0, 1]; ``k / (heads - 1)`` for unrelated matrices.

    Notes
    -----
    O(k · heads^2).

    Examples
    --------
    >>> import numpy as np
    >>> d = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    >>> neighbour_overlap(d, d, k=2)
    1.0
    """
    first, second = as_two_head_matrices(d1, d2, heads)
    if not 1 <= k < len(first):
        raise RowError(f"k is {k}, expected 1 to {len(first) - 1} neighbours of {len(first)} heads")
    return float(neighbour_overlaps([nearest_heads(first, k), nearest_heads(second, k)])[0, 1])


def neighbour_overlaps(nearest: Sequence[np.ndarray]) -> np.ndarray:
    """Return the shares of neighbours that every two matrices have in common.

    Parameters
    ----------
    nearest
        What :func:`nearest_heads` says of each matrix, with the same `k`.

    Returns
    -------
    numpy.ndarray
        ``(matrices, matrices)`` in [0, 1], 1 on the diagonal.
    """
    n_heads, k = nearest[0].shape
    row = np.arange(n_heads)[:, None]
    marked = np.zeros((len(nearest), n_heads, n_heads), dtype=bool)
    for mark, found in zip(marked, nearest, strict=True):
        mark[row, found] = True
    overlap = np.ones((len(nearest), len(nearest)))
    for i, j in combinations(range(len(nearest)), 2):
        overlap[i, j] = overlap[j, i] = marked[i][row, nearest[j]].sum() / (k * n_heads)
    return overlap


def nearest_heads(matrix: np.ndarray, k: int) -> np.ndarray:
    """Return each head's `k` nearest others, int ``(heads, k)``, nearest first.

    Of heads equally near the one with the lower number comes first.
    """
    left = matrix.copy()
    np.fill_diagonal(left, np.inf)
    row = np.arange(len(matrix))
    found = np.empty((len(matrix), k), dtype=np.int64)
    for place in range(k):
        found[:, place] = left.argmin(1)
        left[row, found[:, place]] = np.inf
    return found
