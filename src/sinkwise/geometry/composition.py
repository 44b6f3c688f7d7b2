"""From what a caller passes (weights or logits, support, sink) to one validated composition."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from sinkwise.errors import RowError
from sinkwise.geometry.checks import (
    check_logits,
    check_weights,
    check_zeros,
    residue_tolerance,
)
from sinkwise.geometry.masked import masked_log_softmax, masked_sum
from sinkwise.geometry.namespace import Array, as_arrays, as_mask, is_concrete
from sinkwise.geometry.sinks import NO_SINK, VIRTUAL, Sink, check_sink, has_virtual, sink_mask

__all__ = ["Composition", "Zeros", "compose", "compose_pair", "resolve_zeros"]

Zeros = Literal["error", "exclude"] | float
"""What log-ratios do with a rounding zero: refuse, leave the part out, or replace it by δ."""


@dataclass(frozen=True)
class Composition:
    """Rows with their support and sink set, as log-weights and as closed shares.

    Both forms are kept because each loses what the other holds: from probabilities ``log p``
    spends digits, from logits ``exp`` underflows.

    Attributes
    ----------
    xp
        The array namespace.
    log_weights
        ``(..., n_keys)``; where `support` and not `zero`, finite; elsewhere 0.
    shares
        ``(..., n_keys)``, closed over the support, 0 outside it.
    support, zero, sink
        bool, broadcast to the rows: visible keys; rounding zeros among them; the sink set.
    from_logits
        Whether the log-weights are the primary form.
    virtual
        Whether the last key is a virtual sink, one that is no token.
    """

    xp: Any
    log_weights: Array
    shares: Array
    support: Array
    zero: Array
    sink: Array
    from_logits: bool
    virtual: bool = False

    @property
    def content(self) -> Array:
        """The visible keys that are no sink."""
        return self.support & ~self.sink

    @property
    def sinks(self) -> Array:
        """The visible keys that are sinks."""
        return self.support & self.sink

    def parts(self, mask: Array) -> tuple[Array, Array]:
        """Return log-shares and shares re-closed over `mask`, both 0 outside it."""
        xp = self.xp
        if self.from_logits:
            positive = mask & ~self.zero
            return masked_log_softmax(xp, self.log_weights, positive)
        total = xp.sum(
            xp.where(mask, self.shares, xp.zeros_like(self.shares)), axis=-1, keepdims=True
        )
        alive = total > 0
        safe = xp.where(alive, total, xp.ones_like(total))
        share = xp.where(mask, self.shares / safe, xp.zeros_like(self.shares))
        positive = mask & (share > 0)
        log_share = xp.log(xp.where(positive, share, xp.ones_like(share)))
        return log_share, share

    def mass(self, mask: Array) -> Array:
        """Share of the whole row that lies on `mask`."""
        return masked_sum(self.xp, self.shares, mask)

    def over(self, support: Array) -> Composition:
        """Return the sub-composition on `support`, re-closed."""
        _, shares = self.parts(support & self.support)
        return replace(
            self, support=support & self.support, shares=shares, zero=self.zero & support
        )

    def dead(self) -> Array:
        """Rows with nothing visible: their value is NaN, their gradient finite."""
        return ~self.xp.any(self.support, axis=-1)


def compose(
    p: Array,
    *,
    sink: Sink = NO_SINK,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    check: bool = True,
    need_content: bool = False,
    name: str = "p",
    dtype: str | None = None,
) -> Composition:
    """Return the composition that the arguments describe, checked where values can be seen.

    `dtype` names the one the weights arrived in, where `p` was already raised from it: it sets
    how far a row may sum from 1.
    """
    if sink_logit is not None and not logits:
        raise RowError(
            "sink_logit= belongs to log-weights; pass logits=True with it, or for weights that "
            'sum to less than 1 pass sink="virtual"'
        )
    dtype = dtype or _dtype_name(p)
    extra = () if sink_logit is None else (sink_logit,)
    xp, (x, *rest) = as_arrays(p, *extra)
    if x.ndim == 0:
        raise RowError(
            f"`{name}` is a single number; expected an array with the keys on its last axis"
        )
    if x.shape[-1] == 0:
        raise RowError(f"`{name}` has shape {tuple(x.shape)}: rows without a key")
    support = _support(xp, x, where)
    x = xp.broadcast_to(x, support.shape)
    virtual = has_virtual(sink)
    if virtual and logits and sink_logit is None:
        raise RowError(f'sink="{VIRTUAL}" with logits=True needs the column: pass sink_logit=')
    look = check and is_concrete(x, support)
    if look:
        (check_logits if logits else check_weights)(xp, x, support, dtype, virtual, name)
    asked = sink is not NO_SINK or sink_logit is not None
    sink = sink_mask(xp, x, sink, appended=virtual or sink_logit is not None)
    if virtual or sink_logit is not None:
        column = rest[0] if rest else None
        x, support = _append(xp, x, support, column, dtype, look)
    zero = support & ((x == -math.inf) if logits else (x == 0))
    sink = xp.broadcast_to(sink, support.shape)
    if look and asked:
        check_sink(xp, support, sink, need_content, name)
    positive = support & ~zero
    if logits:
        log_weights = xp.where(positive, x, xp.zeros_like(x))
        _, shares = masked_log_softmax(xp, log_weights, positive)
    else:
        log_weights = xp.log(xp.where(positive, x, xp.ones_like(x)))
        total = xp.sum(xp.where(support, x, xp.zeros_like(x)), axis=-1, keepdims=True)
        total = xp.where(total != 0, total, xp.ones_like(total))
        shares = xp.where(support, x / total, xp.zeros_like(x))
    appended = virtual or sink_logit is not None
    return Composition(xp, log_weights, shares, support, zero, sink, logits, appended)


def compose_pair(
    p: Array,
    q: Array,
    *,
    sink: Sink = NO_SINK,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | tuple[Array, Array] | None = None,
    check: bool = True,
    need_content: bool = False,
) -> tuple[Composition, Composition]:
    """Return the two compositions of a comparison, broadcast against each other.

    `sink_logit` may be a pair, one for each side.
    """
    _, (x, y) = as_arrays(p, q)
    try:
        if tuple(x.shape[-1:]) != tuple(y.shape[-1:]):
            raise ValueError
        shape = _broadcast_shape(tuple(x.shape), tuple(y.shape))
    except ValueError:
        raise RowError(
            f"`p` has shape {tuple(x.shape)} and `q` {tuple(y.shape)}: the leading axes must "
            "broadcast and the number of keys must agree"
        ) from None
    pair = sink_logit if isinstance(sink_logit, tuple) else (sink_logit, sink_logit)
    common = {"sink": sink, "where": where, "logits": logits, "check": check}
    common["need_content"] = need_content
    a = compose(x, sink_logit=pair[0], name="p", dtype=_dtype_name(p), **common)
    b = compose(y, sink_logit=pair[1], name="q", dtype=_dtype_name(q), **common)
    shape = (*shape[:-1], a.shares.shape[-1])
    shape = _broadcast_shape(shape, _broadcast_shape(tuple(a.shares.shape), tuple(b.shares.shape)))
    return _broadcast(a, shape), _broadcast(b, shape)


def resolve_zeros(*rows: Composition, zeros: Zeros, check: bool = True) -> tuple[Composition, ...]:
    """Apply the zero rule that log-ratios need; several rows keep one common support.

    Under ``"error"`` a zero raises where values can be seen; where they can't, it becomes
    ``-inf`` and the result NaN.
    """
    xp = rows[0].xp
    if isinstance(zeros, str):
        if zeros not in ("error", "exclude"):
            raise RowError(f'zeros must be "error", "exclude" or a number, got {zeros!r}')
    elif not 0 < zeros < 1:
        raise RowError(f"a zero is replaced by a share between 0 and 1, got zeros={zeros!r}")
    if zeros == "exclude":
        common = rows[0].support & ~rows[0].zero
        for row in rows[1:]:
            common = common & row.support & ~row.zero
        return tuple(row.over(common) for row in rows)
    if zeros == "error":
        for row, name in zip(rows, ("p", "q"), strict=False):
            if check and is_concrete(row.shares):
                check_zeros(xp, row.zero, name, row.from_logits, row.virtual)
        infinite = [xp.full_like(row.log_weights, -math.inf) for row in rows]
        return tuple(
            replace(row, log_weights=xp.where(row.zero, low, row.log_weights))
            for row, low in zip(rows, infinite, strict=True)
        )
    return tuple(_replace_by(row, float(zeros)) for row in rows)


def _replace_by(row: Composition, delta: float) -> Composition:
    """Multiplicative replacement: zeros become δ, the other shares fall by the factor 1 - kδ."""
    xp = row.xp
    count = xp.sum(xp.astype(row.zero, row.shares.dtype), axis=-1, keepdims=True)
    left = 1 - count * delta
    if is_concrete(row.shares) and bool(xp.any(left <= 0)):
        most = int(xp.max(count))
        raise RowError(
            f"replacing {most} zeros of a row by {delta:g} takes {most * delta:g} of its mass; "
            f"zeros must be below 1/{most} = {1 / most:.3g}"
        )
    shares = xp.where(row.zero, xp.full_like(row.shares, delta), row.shares * left)
    positive = row.support & (shares > 0)
    log_weights = xp.log(xp.where(positive, shares, xp.ones_like(shares)))
    if row.from_logits:  # the log-weights of the others only shift: keep their digits
        log_share, _ = masked_log_softmax(xp, row.log_weights, row.support & ~row.zero)
        shifted = log_share + xp.log(xp.where(left > 0, left, xp.ones_like(left)))
        log_weights = xp.where(row.zero, log_weights, shifted)
    return replace(row, log_weights=log_weights, shares=shares, zero=row.zero & ~row.zero)


def _support(xp: Any, x: Array, where: Array | None) -> Array:
    if where is None:
        return xp.ones(x.shape, dtype=xp.bool, device=getattr(x, "device", None))
    mask = as_mask(xp, where, x)
    try:
        shape = _broadcast_shape(tuple(x.shape), tuple(mask.shape))
    except ValueError:
        raise RowError(
            f"where= has shape {tuple(mask.shape)}, which does not broadcast to the rows' "
            f"{tuple(x.shape)}"
        ) from None
    return xp.broadcast_to(mask, shape)


def _append(
    xp: Any, x: Array, support: Array, column: Array | None, dtype: str, look: bool
) -> tuple[Array, Array]:
    """Append the virtual sink's column: its logit, or what the weights leave of 1."""
    if column is None:
        rest = 1 - masked_sum(xp, x, support)
        column = xp.where(rest > residue_tolerance(dtype, x.shape[-1]), rest, xp.zeros_like(rest))
    elif look and bool(xp.any(xp.isnan(column) | (column == math.inf))):
        raise RowError("sink_logit holds NaN or +inf, expected finite log-weights")
    try:
        column = xp.broadcast_to(column, x.shape[:-1])[..., None]
    except (ValueError, RuntimeError):
        raise RowError(
            f"sink_logit has shape {tuple(column.shape)}, which does not broadcast to the rows' "
            f"{tuple(x.shape[:-1])}"
        ) from None
    x = xp.concat([x, xp.astype(column, x.dtype)], axis=-1)
    seen = xp.any(support, axis=-1, keepdims=True)
    return x, xp.concat([support, seen], axis=-1)


def _broadcast(row: Composition, shape: tuple[int, ...]) -> Composition:
    fields = ("log_weights", "shares", "support", "zero", "sink")
    return replace(row, **{f: row.xp.broadcast_to(getattr(row, f), shape) for f in fields})


def _dtype_name(p: Array) -> str:
    return str(getattr(p, "dtype", "float64")).rsplit(".", maxsplit=1)[-1]


def _broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    if any(i != j and 1 not in (i, j) for i, j in zip(a, b, strict=True)):
        raise ValueError
    return tuple(j if i == 1 else i for i, j in zip(a, b, strict=True))
