"""From one layer's weights or logits to log-weights on the support, checked row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.checks import residue_tolerance, sum_tolerance, weight_problem

__all__ = ["Place", "apply_zero_rule", "checked_log_weights"]


@dataclass(frozen=True)
class Place:
    """Where rows stand, for messages."""

    document: int
    layer: int
    queries: np.ndarray

    def name(self, head: int, row: int) -> str:
        """Name one row."""
        return (
            f"layer {self.layer}, head {head}, query {int(self.queries[row])} of document "
            f"{self.document}"
        )


def checked_log_weights(
    values: np.ndarray,
    support: np.ndarray,
    *,
    elsewhere: np.ndarray | None,
    logits: bool,
    virtual: bool,
    dtype: str,
    place: Place,
) -> np.ndarray:
    """Return log-weights of one layer's rows, with a virtual sink's column where weights leave one.

    Parameters
    ----------
    values
        ``(heads, rows, keys)`` weights or log-weights, float32 or float64.
    support
        bool ``(rows, keys)``.
    elsewhere
        Keys of other packed documents, where mass is allowed (and cut); None without packing.
    virtual
        For weights: append what they leave of 1.  For logits the caller appends the column.
    dtype
        The dtype the values arrived in: it sets how far a row may sum from 1.
    """
    rows_seen = support.any(-1)
    if logits:
        bad = (np.isnan(values) | np.isposinf(values)) & support
        if bad.any():
            head, row, key = (int(i) for i in np.argwhere(bad)[0])
            value = values[head, row, key]
            raise RowError(
                f"{place.name(head, row)}: the log-weight of key {key} is {value}, "
                "expected a finite number. Float16 overflows like this: use float32 or bfloat16"
            )
        return values
    inside = np.where(support, values, 0)
    outside = np.where(support, 0, values)
    cross = np.zeros(values.shape[:2])
    if elsewhere is not None:
        cross = np.where(elsewhere, outside, 0).sum(-1, dtype=np.float64)
        outside = np.where(elsewhere, 0, outside)
    tolerance = sum_tolerance(dtype, values.shape[-1])
    total = inside.sum(-1, dtype=np.float64)
    stray = np.abs(outside).sum(-1, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        good = (inside >= 0).all(-1) & (total > 0) & (stray <= tolerance)
        good &= total + cross <= 1 + tolerance
        if not virtual:
            good &= total + cross >= 1 - tolerance
    good |= ~rows_seen
    if not good.all():
        head, row = (int(i) for i in np.argwhere(~good)[0])
        _explain(values, support, stray, tolerance, virtual, dtype, place, head, row)
    if virtual:
        rest = 1 - total - cross
        rest = np.where(rest > residue_tolerance(dtype, values.shape[-1]), rest, 0)
        rest = rest.astype(values.dtype)
        inside = np.concatenate([inside, rest[..., None]], -1)
    else:
        inside = inside / np.where(total > 0, total, 1).astype(values.dtype)[..., None]
    with np.errstate(divide="ignore"):
        return np.log(inside)


def _explain(
    values: np.ndarray,
    support: np.ndarray,
    stray: np.ndarray,
    tolerance: float,
    virtual: bool,
    dtype: str,
    place: Place,
    head: int,
    row: int,
) -> None:
    seen = values[head, row][support[row]]
    why = weight_problem(seen, dtype, virtual)
    hidden = np.where(support[row], 0, values[head, row])
    if why is None and not np.isfinite(hidden).all():
        key = int(np.argmin(np.isfinite(hidden)))
        why = (
            f"key {key}, which it may not see, holds {hidden[key]}, expected 0. Set masked weights "
            "to 0 (numpy.nan_to_num), or run the model in float32"
        )
    elif stray[head, row] > tolerance:
        key = int(np.argmax(np.where(support[row], 0, np.abs(values[head, row]))))
        why = (
            f"{stray[head, row]:.6g} of its mass lies on keys it may not see (most at key {key}). "
            "Either the map is not causal, or where= names too few keys; a static cache must be "
            "masked when the model runs"
        )
    raise RowError(f"{place.name(head, row)}: {why or 'is no attention row'}.")


def apply_zero_rule(
    log_weights: np.ndarray,
    support: np.ndarray,
    zeros: Literal["error", "exclude"] | float,
    *,
    causal: bool,
    name: Any,
) -> np.ndarray:
    """Apply the rule for rounding zeros: ``-inf`` inside the support.

    Parameters
    ----------
    log_weights
        ``(heads, rows, keys)``.
    name
        ``name(head, row)`` for messages.
    """
    zero = np.isneginf(log_weights) & support
    if zeros == "exclude" or not zero.any():
        return log_weights
    if zeros == "error":
        head, row, key = (int(i) for i in np.argwhere(zero)[0])
        hint = "" if causal else " If the map is causal, say so: causal=True."
        raise RowError(
            f"{name(head, row)}: the weight of key {key} is exactly 0 inside the support, and a "
            f"log-ratio to 0 is undefined.{hint} A key the query may not see is absent: where=. "
            'For zeros from rounding choose a rule: zeros="exclude" or zeros=1e-6 (replaced by '
            "that share); rows captured from a model's logits have none"
        )
    delta = float(zeros)
    count = zero.sum(-1, keepdims=True)
    if (count * delta >= 1).any():
        head, row, _ = (int(i) for i in np.argwhere(count * delta >= 1)[0])
        raise RowError(
            f"{name(head, row)}: replacing {int(count[head, row, 0])} zeros by {delta:g} takes the "
            "whole mass of the row; choose a smaller share"
        )
    visible = np.where(support, log_weights, -np.inf)
    top = visible.max(-1, keepdims=True)
    total = top + np.log(np.exp(visible - top).sum(-1, keepdims=True))
    shift = (np.log1p(-count * delta) - total).astype(log_weights.dtype)
    return np.where(zero, np.log(delta).astype(log_weights.dtype), log_weights + shift)
