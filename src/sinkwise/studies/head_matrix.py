"""What counts as a distance matrix between heads: checked once, for every study."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId

__all__ = ["as_head_matrix", "as_two_head_matrices", "condensed_pair", "n_pairs", "square"]

_ASYMMETRY = 1e-3  # above it the two triangles are different measurements, not rounding
_DIAGONAL = 1e-6  # a computed self-distance of 2e-16 is rounding, 0.01 is not


def n_pairs(n_heads: int) -> int:
    """Return the number of unordered pairs of heads."""
    return n_heads * (n_heads - 1) // 2


def condensed_pair(n_heads: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the place of pairs in SciPy's condensed order, whichever head is named first."""
    i, j = np.minimum(first, second), np.maximum(first, second)
    places: np.ndarray = i * (2 * n_heads - i - 1) // 2 + (j - i - 1)
    return places


def square(condensed: np.ndarray, n_heads: int) -> np.ndarray:
    """Return the symmetric matrix with a zero diagonal of one condensed vector."""
    if n_heads < 2:
        return np.zeros((n_heads, n_heads))
    matrix: np.ndarray = squareform(np.asarray(condensed, dtype=np.float64), checks=False)
    return matrix


def as_head_matrix(
    matrix: np.ndarray,
    *,
    name: str = "the distance matrix",
    heads: Sequence[HeadId] | None = None,
    at_least: int = 2,
) -> np.ndarray:
    """Return a distance matrix between heads as a new exactly symmetric float64 array.

    Parameters
    ----------
    matrix
        ``(heads, heads)``, or condensed ``(pairs,)`` in the order of
        :func:`scipy.spatial.distance.squareform`.  Never modified.
    name
        How messages call it.
    heads
        Names for messages; without them heads are numbered.
    at_least
        The fewest heads that the caller's question needs.

    Returns
    -------
    numpy.ndarray
        float64 ``(heads, heads)``; rounding asymmetry averaged out, diagonal exactly 0.

    Raises
    ------
    RowError
        If the shape is neither square nor condensed, a value is NaN or infinite (naming the
        heads), the asymmetry exceeds 1e-3 (of the largest distance, where that is below 1), a
        head is at a distance from itself, or there are fewer than `at_least` heads.
    """
    values = np.asarray(matrix)
    if values.dtype.kind not in "fiu":
        raise RowError(f"{name} has dtype {values.dtype}, expected real numbers")
    values = values.astype(np.float64, copy=False)
    if values.ndim == 1:
        n_heads = round(float(1 + np.sqrt(1 + 8 * len(values))) / 2)
        if len(values) == 0 or n_pairs(n_heads) != len(values):
            raise RowError(
                f"{name} is a vector of {len(values)} values, which is no number of pairs "
                "H(H-1)/2: pass the (heads, heads) matrix or its condensed form "
                "(scipy.spatial.distance.squareform)"
            )
        values = square(values, n_heads)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise RowError(
            f"{name} has shape {values.shape}, expected (heads, heads) distances between heads; "
            "for rows of attention take sinkwise.head_distances(rows, metric=...) first"
        )
    n_heads = values.shape[0]
    if heads is not None and len(heads) != n_heads:
        raise RowError(f"{name} has {n_heads} heads but {len(heads)} head names came with it")
    if n_heads < at_least:
        raise RowError(
            f"{name} has {n_heads} heads, expected at least {at_least}: with fewer there is "
            "nothing to compare"
        )
    _refuse_non_finite(values, name, heads)
    scale = float(np.abs(values).max())
    gap = np.abs(values - values.T)
    if gap.max() > _ASYMMETRY * min(1.0, scale):
        i, j = divmod(int(gap.argmax()), n_heads)
        raise RowError(
            f"{name} must be symmetric: from {_label(heads, i)} to {_label(heads, j)} it is "
            f"{values[i, j]:.6g}, back it is {values[j, i]:.6g}. Rounding is averaged away up to "
            f"{_ASYMMETRY:g}; if both directions were measured, pass (d + d.T) / 2"
        )
    diagonal = np.abs(np.diagonal(values))
    if diagonal.max() > _DIAGONAL * min(1.0, scale):
        i = int(diagonal.argmax())
        raise RowError(
            f"{name} has {values[i, i]:.6g} on its diagonal, at {_label(heads, i)}: a head is at "
            "distance 0 from itself. Were these similarities? Pass 1 - similarity, or a copy "
            "after numpy.fill_diagonal(d, 0)"
        )
    symmetric: np.ndarray = (values + values.T) / 2
    np.fill_diagonal(symmetric, 0.0)
    return symmetric


def as_two_head_matrices(
    d1: np.ndarray, d2: np.ndarray, heads: Sequence[HeadId] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return two matrices over the same three heads or more, as :func:`as_head_matrix` does."""
    first = as_head_matrix(d1, name="the first distance matrix", heads=heads, at_least=3)
    second = as_head_matrix(d2, name="the second distance matrix", heads=heads, at_least=3)
    if first.shape != second.shape:
        raise RowError(
            f"the first distance matrix has {len(first)} heads and the second {len(second)}: "
            "verdicts are compared between two measures of the same heads"
        )
    return first, second


def _refuse_non_finite(values: np.ndarray, name: str, heads: Sequence[HeadId] | None) -> None:
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    i, j = (int(k) for k in np.argwhere(bad)[0])
    per_head = bad.sum(1)
    worst = int(per_head.argmax())
    raise RowError(
        f"{name} is {values[i, j]} between {_label(heads, i)} and {_label(heads, j)}, expected a "
        f"finite number; {_label(heads, worst)} has the most such values, {per_head[worst]} of "
        f"{len(values)}. Heads without a common support (a sliding window beside full attention) "
        "or an all-zero row give NaN: leave such heads out, for example d[keep][:, keep]"
    )


def _label(heads: Sequence[HeadId] | None, i: int) -> str:
    if heads is None:
        return f"head {i}"
    return f"layer {heads[i].layer}, head {heads[i].index}"
