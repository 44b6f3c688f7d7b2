"""Sums over masked keys whose values and gradients stay finite, whatever the mask holds.

A masked entry is replaced *before* the logarithm, never after: the gradient of
``where(mask, log(x), 0)`` at ``x = 0`` is ``0 * inf``.
"""

from __future__ import annotations

from typing import Any

from sinkwise.geometry.namespace import Array

__all__ = [
    "masked_entropy",
    "masked_log_softmax",
    "masked_logsumexp",
    "masked_mean",
    "masked_sum",
    "safe_sqrt",
    "xlogx",
]


def masked_sum(xp: Any, x: Array, mask: Array) -> Array:
    """Sum over the last axis where `mask` holds."""
    return xp.sum(xp.where(mask, x, xp.zeros_like(x)), axis=-1)


def masked_mean(xp: Any, x: Array, mask: Array) -> Array:
    """Mean over the last axis where `mask` holds, with that axis kept; 0 where it never does."""
    count = xp.sum(xp.astype(mask, x.dtype), axis=-1, keepdims=True)
    total = xp.sum(xp.where(mask, x, xp.zeros_like(x)), axis=-1, keepdims=True)
    return total / xp.where(count > 0, count, xp.ones_like(count))


def masked_logsumexp(xp: Any, x: Array, mask: Array) -> Array:
    """log-sum-exp over the last axis under `mask`, axis kept; ``-inf`` where it never holds."""
    top = _masked_max(xp, x, mask)
    ones = xp.ones_like(x)
    e = xp.where(mask, xp.exp(xp.where(mask, x - top, -ones)), xp.zeros_like(x))
    total = xp.sum(e, axis=-1, keepdims=True)
    alive = total > 0
    value = top + xp.log(xp.where(alive, total, xp.ones_like(total)))
    return xp.where(alive, value, xp.full_like(value, -float("inf")))


def masked_log_softmax(xp: Any, x: Array, mask: Array) -> tuple[Array, Array]:
    """Return log-shares (0 where masked) and shares (0 where masked) over the masked keys."""
    lse = masked_logsumexp(xp, x, mask)
    lse = xp.where(xp.isfinite(lse), lse, xp.zeros_like(lse))
    log_share = xp.where(mask, x - lse, xp.zeros_like(x))
    return log_share, xp.where(mask, xp.exp(log_share), xp.zeros_like(x))


def masked_entropy(xp: Any, x: Array, mask: Array) -> Array:
    """Entropy in nats of the softmax over the masked keys, ``(...)``; 0 where there are none.

    With d the distance below the maximum, ``log Σ eᵈ − Σ eᵈ d / Σ eᵈ``: two terms that are never
    negative, so nothing cancels, and one exponential a key.
    """
    below = xp.where(mask, x - _masked_max(xp, x, mask), xp.zeros_like(x))
    e = xp.where(mask, xp.exp(below), xp.zeros_like(x))
    total = xp.sum(e, axis=-1)
    total = xp.where(total == 0, xp.ones_like(total), total)  # NaN stays NaN
    return xp.log(total) - xp.sum(e * below, axis=-1) / total


def _masked_max(xp: Any, x: Array, mask: Array) -> Array:
    """The maximum under the mask, axis kept, as a constant for gradients where that matters not."""
    low = xp.full_like(x, -float("inf"))
    top = xp.max(xp.where(mask, x, low), axis=-1, keepdims=True)
    return xp.where(xp.isfinite(top) | xp.isnan(top), top, xp.zeros_like(top))


def safe_sqrt(xp: Any, x: Array) -> Array:
    """Square root of max(x, 0), its gradient 0 at 0."""
    positive = x > 0
    root = xp.sqrt(xp.where(positive, x, xp.ones_like(x)))
    return xp.where(positive, root, xp.where(xp.isnan(x), x, xp.zeros_like(x)))


def xlogx(xp: Any, x: Array) -> Array:
    """``x log x`` with the value 0 at 0, and gradient 0 there."""
    positive = x > 0
    safe = xp.where(positive, x, xp.ones_like(x))
    return xp.where(positive, safe * xp.log(safe), xp.where(xp.isnan(x), x, xp.zeros_like(x)))
