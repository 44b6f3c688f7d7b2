"""Log-ratio quantities of one composition: a few lines of mathematics each, nothing checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinkwise.geometry.composition import Composition
from sinkwise.geometry.masked import masked_mean, masked_sum, safe_sqrt
from sinkwise.geometry.namespace import Array, epsilon

__all__ = ["clr_over", "direction_of", "norm", "sink_balance_of"]


def clr_over(row: Composition, mask: Array) -> Array:
    """Centred log-ratio over the keys of `mask`, 0 elsewhere: ``(..., n_keys)``.

    The maximum goes first, so that equal parts give an exact 0 whatever the logits' offset.
    """
    xp, x = row.xp, row.log_weights
    low = xp.full_like(x, -float("inf"))
    top = xp.max(xp.where(mask, x, low), axis=-1, keepdims=True)
    top = xp.where(top == -float("inf"), xp.zeros_like(top), top)
    x = xp.where(mask, x - top, xp.zeros_like(x))
    return xp.where(mask, x - masked_mean(xp, x, mask), xp.zeros_like(x))


def norm(xp: Any, v: Array) -> Array:
    """Euclidean norm over the last axis, its gradient 0 at the zero vector."""
    return safe_sqrt(xp, xp.sum(v * v, axis=-1))


def sink_balance_of(row: Composition) -> Array:
    """Sink balance ``√(rn/(r+n)) (mean_S log p − mean_C log p)``; NaN where a side is empty."""
    xp, x = row.xp, row.log_weights
    sinks, content = row.sinks, row.content
    r = xp.sum(xp.astype(sinks, x.dtype), axis=-1)
    n = xp.sum(xp.astype(content, x.dtype), axis=-1)
    gap = (masked_mean(xp, x, sinks) - masked_mean(xp, x, content))[..., 0]
    both = (r > 0) & (n > 0)
    scale = safe_sqrt(xp, r * n / xp.where(both, r + n, xp.ones_like(r)))
    return xp.where(both, scale * gap, xp.full_like(gap, float("nan")))


@dataclass(frozen=True)
class Direction:
    """A clr vector as norm and unit vector; a uniform composition has no direction."""

    norm: Array
    unit: Array
    uniform: Array


def direction_of(row: Composition, mask: Array) -> Direction:
    """Return norm and direction of the clr over `mask`.

    Uniform means that all log-weights agree to rounding: their clr is not above 4 ulp of the
    largest log-weight (taken relative to the maximum) in root mean square.
    """
    xp = row.xp
    clr = clr_over(row, mask)
    size = norm(xp, clr)
    spread = xp.max(xp.where(mask, xp.abs(clr), xp.zeros_like(clr)), axis=-1)
    n = masked_sum(xp, xp.ones_like(clr), mask)
    ulp = 4 * epsilon(xp, clr) * xp.where(spread > 1, spread, xp.ones_like(spread))
    uniform = size * size <= n * ulp * ulp
    safe = xp.where(uniform, xp.ones_like(size), size)[..., None]
    unit = xp.where(uniform[..., None], xp.zeros_like(clr), clr / safe)
    return Direction(size, unit, uniform)
