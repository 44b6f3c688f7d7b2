"""Weights from log-weights over what a query may see."""

from __future__ import annotations

import numpy as np

__all__ = ["visible_softmax"]


def visible_softmax(log_weights: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Return weights ``(..., keys)`` that sum to 1 over the support, in float64.

    Parameters
    ----------
    log_weights
        ``(..., keys)``, unnormalised; what stands outside the support is never read.
    support
        bool, broadcastable.

    Returns
    -------
    numpy.ndarray
        0 outside the support; all 0 for a row that sees nothing, or nothing above zero.

    Examples
    --------
    >>> z = np.array([[0.0, 0.0, 9.0], [1.0, 2.0, 3.0]])
    >>> visible_softmax(z, np.array([[True, True, False], [False, False, False]])).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    z = np.where(support, log_weights.astype(np.float64), -np.inf)
    top = z.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(z - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=weights, where=total > 0)
