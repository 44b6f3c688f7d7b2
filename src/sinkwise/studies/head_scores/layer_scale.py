"""Values of heads over what is usual in their layer, and vectors brought to one scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["over_layer", "to_unit_mean"]


def over_layer(
    values: np.ndarray, layers: np.ndarray, size: Callable[[np.ndarray], np.floating]
) -> np.ndarray:
    """Return ``(H,)`` values over `size` of their layer's values; 0 in a layer of size 0.

    Examples
    --------
    >>> over_layer(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), np.mean).tolist()
    [0.5, 1.5, 1.0]
    """
    out = np.zeros(len(values))
    for layer in np.unique(layers):
        own = layers == layer
        scale = float(size(values[own]))
        if scale != 0:
            out[own] = values[own] / scale
    return out


def to_unit_mean(values: np.ndarray, mean: float) -> np.ndarray:
    """Return `values` over a mean; as they are where that is 0, when all of them are 0.

    Examples
    --------
    >>> to_unit_mean(np.array([1.0, 3.0]), 2.0).tolist()
    [0.5, 1.5]
    """
    return values / mean if mean > 0 else values
