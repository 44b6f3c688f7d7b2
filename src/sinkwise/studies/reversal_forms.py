"""Which reversals matter: weighted by margin, and among the nearest heads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_matrix import as_two_head_matrices

__all__ = ["margin_weighted_rate", "nearest_changed", "neighbour_overlap"]


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

    Notes
    -----
    O(heads^3) time, O(heads^2) memory.

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> round(margin_weighted_rate(d1, d2), 4)  # margins 1·1 (flipped), 2·1, 1·2
    0.2
    """
    first, second = as_two_head_matrices(d1, d2, heads)
    weight = agreement = 0.0
    for a in range(len(first)):
        x, y = np.delete(first[a], a), np.delete(second[a], a)
        products = np.subtract.outer(x, x) * np.subtract.outer(y, y)
        agreement += float(products.sum())
        weight += float(np.abs(products).sum())
    return (weight - agreement) / (2 * weight) if weight > 0 else float("nan")


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
    O(heads^2 log heads).

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
    shared = _nearest(first, k) & _nearest(second, k)
    return float(shared.sum() / (k * len(first)))


def _nearest(matrix: np.ndarray, k: int) -> np.ndarray:
    """Mark each row's `k` nearest other heads, bool ``(heads, heads)``."""
    others = matrix.copy()
    np.fill_diagonal(others, np.inf)
    order = np.argsort(others, axis=1, kind="stable")[:, :k]
    marked = np.zeros(matrix.shape, dtype=bool)
    np.put_along_axis(marked, order, True, axis=1)
    return marked
