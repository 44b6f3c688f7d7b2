"""Heads as points in the plane, placed so that their distances are kept as well as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh, orthogonal_procrustes
from scipy.spatial.distance import pdist, squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_matrix import as_head_matrix

__all__ = ["HeadMap", "aligned_with", "head_map", "raw_stress"]


class HeadMap(NamedTuple):
    """Coordinates ``(heads, dimensions)`` with the stress that exactly these coordinates have."""

    coordinates: np.ndarray
    stress: float


def raw_stress(matrix: np.ndarray, coordinates: np.ndarray) -> float:
    """Return the summed squared error of the map's distances, each pair of heads once."""
    wanted = squareform(as_head_matrix(matrix), checks=False)
    return float(((pdist(coordinates) - wanted) ** 2).sum())


def head_map(
    matrix: np.ndarray,
    *,
    dimensions: int = 2,
    max_iterations: int = 300,
    tolerance: float = 1e-9,
    heads: Sequence[HeadId] | None = None,
) -> HeadMap:
    """Place heads as points by metric multidimensional scaling.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` or condensed ``(pairs,)`` distances.
    dimensions
        Of the map.
    max_iterations, tolerance
        Stop after this many rounds, or when one lowers the stress by a smaller share.
    heads
        Names for messages.

    Returns
    -------
    HeadMap
        Coordinates, centred, and their raw stress (sum over pairs of squared errors), computed
        from the coordinates that are returned.

    Notes
    -----
    Classical scaling gives the start, majorisation (SMACOF) refines it, and stress never rises.
    Deterministic.  O(heads^3) once and O(heads^2) a round; five matrices of ``(heads, heads)``
    float64, 160 MB for 2,000 heads.

    References
    ----------
    Borg and Groenen (2005), Modern Multidimensional Scaling, chapter 8.

    Examples
    --------
    >>> import numpy as np
    >>> d = np.abs(np.subtract.outer([0, 3, 5.0], [0, 3, 5.0]))
    >>> round(head_map(d).stress, 12)
    0.0
    """
    wanted = as_head_matrix(matrix, heads=heads)
    if dimensions < 1:
        raise RowError(f"dimensions is {dimensions}, expected 1 or more")
    from threadpoolctl import threadpool_limits

    # products this thin are done before threads of the linear algebra have met
    with threadpool_limits(1, user_api="blas"):
        points = _classical_scaling(wanted, dimensions)
        points, stress = _majorised(wanted, points, max_iterations, tolerance)
    return HeadMap(points - points.mean(0), stress)


def _majorised(
    wanted: np.ndarray, points: np.ndarray, max_iterations: int, tolerance: float
) -> tuple[np.ndarray, float]:
    """Lower the stress by SMACOF; return the points and their stress."""
    apart = squareform(wanted, checks=False)
    there = pdist(points)
    stress = float(((there - apart) ** 2).sum())
    for _ in range(max_iterations):
        ratio = np.divide(apart, there, out=np.zeros_like(apart), where=there > 0)
        pull = squareform(ratio, checks=False)
        better = (pull.sum(1)[:, None] * points - pull @ points) / len(points)
        there = pdist(better)
        new_stress = float(((there - apart) ** 2).sum())
        if new_stress >= stress:
            break
        done = stress - new_stress <= tolerance * stress
        points, stress = better, new_stress
        if done:
            break
    return points, stress


def aligned_with(reference: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Return a map turned and mirrored, and scaled to the same spread, to lie as `reference` does.

    A map's orientation and units mean nothing, so two of them can be looked at side by side only
    once they are laid over each other (Procrustes).  Distances within the map keep their ratios.

    Parameters
    ----------
    reference, coordinates
        ``(heads, dimensions)`` of the same heads.

    Returns
    -------
    numpy.ndarray
        ``(heads, dimensions)``, centred like the reference.

    Examples
    --------
    >>> import numpy as np
    >>> square_of = np.array([[0, 0], [1, 0], [1, 1], [0, 1.0]])
    >>> turned = 3 * square_of @ np.array([[0, -1], [1, 0.0]]) + 5
    >>> bool(np.allclose(aligned_with(square_of, turned), square_of))
    True
    """
    centre = reference.mean(0)
    target, points = reference - centre, coordinates - coordinates.mean(0)
    spread = float(np.linalg.norm(points))
    if spread == 0:
        return np.tile(centre, (len(points), 1))
    turn, _ = orthogonal_procrustes(points, target)
    turned: np.ndarray = points @ turn * (float(np.linalg.norm(target)) / spread) + centre
    return turned


def _classical_scaling(wanted: np.ndarray, dimensions: int) -> np.ndarray:
    """Leading principal coordinates, padded with zeros where there are fewer heads."""
    squares = wanted**2
    centred = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    n = len(wanted)
    values, vectors = eigh(centred, subset_by_index=[max(0, n - dimensions), n - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    # an eigenvector's sign is arbitrary: make its largest entry positive
    largest = np.abs(vectors).argmax(0)
    vectors = vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    points = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.pad(points, ((0, 0), (0, dimensions - points.shape[1])))
