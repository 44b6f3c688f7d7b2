"""What rows must be before any mathematics: checks that name row, value and way out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.namespace import Array, to_numpy

__all__ = [
    "check_logits",
    "check_weights",
    "check_zeros",
    "residue_tolerance",
    "row_name",
    "sum_tolerance",
    "weight_problem",
]


def sum_tolerance(dtype: str, n_keys: int) -> float:
    """How far a row of this dtype may sum from 1 by rounding alone.

    Rounding every weight moves the sum by at most half a unit in the last place of the whole:
    2⁻⁹ in bfloat16 and 2⁻¹² in float16, doubled for a softmax that rounded too; float16 also
    loses up to 2⁻²⁵ a key to underflow.  In float32 and float64 softmax is good to 1e-6.
    """
    if dtype == "bfloat16":
        return 2.0**-8
    if dtype == "float16":
        return 2.0**-11 + n_keys * 2.0**-25
    return 1e-5


def residue_tolerance(dtype: str, n_keys: int) -> float:
    """What a row that sums to 1 may leave of 1 by rounding: no virtual sink's mass."""
    if dtype in ("bfloat16", "float16"):
        return sum_tolerance(dtype, n_keys)
    eps = float(np.finfo(dtype if dtype == "float32" else "float64").eps)
    return eps * (4 + n_keys**0.5)


def weight_problem(row: np.ndarray, dtype: str, virtual: bool) -> str | None:
    """Say what keeps one row of visible weights from being attention, or None."""
    if row.size == 0:
        return (
            "no key is visible. Leave the row out: a row whose keys are all masked is not attention"
        )
    if not np.isfinite(row).all():
        bad = row[~np.isfinite(row)][0]
        return (
            f"holds {bad}. A NaN usually comes from float16 overflow or from a fully masked "
            "row; run the model in float32 or bfloat16, or mask the row with where="
        )
    low, high, total = float(row.min()), float(row.max()), float(row.sum(dtype=np.float64))
    tolerance = sum_tolerance(dtype, row.size)
    if low < 0:
        return (
            f"minimum {low:.6g}, but attention weights lie between 0 and 1. If these are scores "
            "from before the softmax, pass logits=True"
        )
    if total == 0:
        return "sums to 0: every weight is zero. Leave the row out"
    if total > 1 + tolerance:
        if high > 1 + tolerance or dtype in ("float32", "float64"):
            return (
                f"sums to {total:.6g} with maximum {high:.6g}, expected 1. Dropout on attention "
                "weights scales them like this: call model.eval() first. If these are scores "
                "from before the softmax, pass logits=True; if they are counts, or were rounded to "
                "half precision, close them yourself: sw.closure(p)"
            )
        return f"sums to {total:.6g}, expected 1 to within {tolerance:.2g} for {dtype}"
    if total < 1 - tolerance and not virtual:
        return (
            f"sums to {total:.6g}, expected 1. With a learned sink (or softmax-off-by-one) the "
            'rest is the sink: pass sink="virtual". If keys were cut away, or half precision '
            "rounded the weights, close the rows yourself: sw.closure(p)"
        )
    return None


def check_weights(xp: Any, x: Array, support: Array, dtype: str, virtual: bool, name: str) -> None:
    """Raise at the first row whose visible weights are no composition."""
    inside = xp.where(support, x, xp.zeros_like(x))
    total = xp.sum(inside, axis=-1)
    tolerance = sum_tolerance(dtype, x.shape[-1])
    good = xp.all(inside >= 0, axis=-1) & (total > 0) & (total <= 1 + tolerance)
    if not virtual:
        good = good & (total >= 1 - tolerance)
    _raise_first(good, x, support, name, lambda row: weight_problem(row, dtype, virtual))


def check_logits(xp: Any, x: Array, support: Array, dtype: str, virtual: bool, name: str) -> None:
    """Raise at the first row whose visible log-weights are NaN, ``+inf`` or all ``-inf``."""
    inside = xp.where(support, x, xp.full_like(x, -math.inf))
    good = xp.isfinite(xp.max(inside, axis=-1))
    _raise_first(good, x, support, name, _logit_problem)


def _logit_problem(row: np.ndarray) -> str | None:
    if row.size == 0 or np.isneginf(row).all():
        return "no key is visible. Leave the row out"
    bad = row[np.isnan(row) | np.isposinf(row)]
    if bad.size == 0:
        return None
    return (
        f"holds the log-weight {bad[0]}, expected a finite number (or -inf for a weight of 0). "
        "It usually means that float16 overflowed: compute logits in float32"
    )


def check_zeros(xp: Any, zero: Array, name: str, logits: bool, virtual: bool) -> None:
    """Raise at the first rounding zero: log-ratios are undefined there."""
    if not bool(xp.any(zero)):
        return
    *row, key = (int(i) for i in np.argwhere(to_numpy(zero))[0])
    if virtual and key == zero.shape[-1] - 1:
        raise RowError(
            f"{row_name(tuple(row))} of `{name}`: nothing is left for the virtual sink, the row "
            "sums to 1 to rounding, and a log-ratio to 0 is undefined. If there is no learned "
            "sink, name a key as the sink"
        )
    what = "log-weight is -inf" if logits else "weight is exactly 0"
    raise RowError(
        f"{row_name(tuple(row))} of `{name}`: the {what} at key {key}, inside the support, and a "
        "log-ratio to 0 is undefined. A key the query may not see (causal, window, padding) is "
        'absent: pass where=. A zero from rounding needs a rule: zeros="exclude" (the common '
        "support of the rows) or zeros=1e-6 (replaced by that share); from logits there are none"
    )


def _raise_first(good: Array, x: Array, support: Array, name: str, problem: Any) -> None:
    good = np.atleast_1d(to_numpy(good))
    if good.all():
        return
    values, mask = to_numpy(x), to_numpy(support)
    for index in np.argwhere(~good):
        at = tuple(int(i) for i in index) if values.ndim > 1 else ()
        why = problem(values[at][mask[at]])
        if why is not None:
            raise RowError(f"{row_name(at)} of `{name}`: {why}.")


def row_name(row: tuple[int, ...]) -> str:
    """Name a row by its index among the leading axes."""
    return "the row" if not row else f"row {row if len(row) > 1 else row[0]}"
