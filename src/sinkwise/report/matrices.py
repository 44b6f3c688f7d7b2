"""Distance matrices of an audit by the names that figures use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkwise.errors import RowError

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["condensed", "has_matrix", "matrix_of"]


def has_matrix(distances: xr.Dataset, name: str) -> bool:
    """Whether `distances` holds the matrix `name` with at least one finite pair of heads."""
    metric, _, convention = name.partition("/")
    if metric not in distances:
        return False
    if convention and convention not in distances["convention"].to_numpy():
        return False
    return bool(np.isfinite(condensed(matrix_of(distances, name))).any())


def matrix_of(distances: xr.Dataset, name: str) -> np.ndarray:
    """Return one matrix ``(heads, heads)``; `name` as in ``"content"`` or ``"cosine/kept"``.

    Raises
    ------
    RowError
        If the dataset holds no such matrix.
    """
    metric, _, convention = name.partition("/")
    if metric not in distances:
        known = sorted(map(str, distances.data_vars))
        raise RowError(
            f"no distance named {name!r} arrived; expected one of {known}, "
            'with "/kept" or "/dropped" behind cosine, js_divergence and euclidean'
        )
    array = distances[metric]
    if convention:
        array = array.sel(convention=convention)
    return np.asarray(array.to_numpy(), dtype=np.float64)


def condensed(matrix: np.ndarray) -> np.ndarray:
    """Return the pairs above the diagonal, ``(pairs,)``."""
    return matrix[np.triu_indices(matrix.shape[0], 1)]
