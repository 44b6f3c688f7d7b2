"""A differentiable floor under the content entropy of rows, blind to their sink."""

from __future__ import annotations

from numbers import Real
from typing import Any

from sinkwise.errors import RowError
from sinkwise.geometry.composition import compose
from sinkwise.geometry.masked import masked_entropy
from sinkwise.geometry.namespace import Array, is_concrete
from sinkwise.geometry.sinks import Sink

__all__ = ["check_floor", "content_entropy_floor", "relative_content_entropy", "shortfall"]


def content_entropy_floor(
    logits: Array,
    *,
    sink: Sink,
    floor: float,
    where: Array | None = None,
    check: bool = True,
) -> Array:
    """Mean over rows of how far the content entropy lies below a floor; a penalty to minimise.

    For a row with m content keys, ``max(0, floor − H(π) / log m)``: H(π) is the entropy of the
    content re-closed without the sink, log m the most it can be.  Rows of any length count
    alike.  The sink's logit has no part in it, so its gradient is exactly 0: what the row gives
    to the sink is left to the model.

    Parameters
    ----------
    logits
        ``(..., n_keys)`` log-weights, normalised or not, of any array library with gradients.
    sink
        The sink set: an index, a tuple of indices, or a boolean mask that broadcasts to the rows.
    floor
        Share of log m below which a row is penalised, above 0 and at most 1.
    where
        Support, bool, broadcast to `logits`: the keys each row may see.
    check
        Check the rows; skipped under ``jit``, ``vmap`` and ``torch.compile``.  Unchecked, a row
        that sees no sink is left out, a NaN makes the penalty NaN, and without a row that counts
        it is 0.

    Returns
    -------
    Array
        One number between 0 and `floor`; float32 or float64 as the rows.

    Raises
    ------
    RowError
        On a floor outside its range, rows that are no log-weights, a sink that a row can't see,
        or no row with two content keys.

    Notes
    -----
    Rows with fewer than two content keys have no entropy to hold up and are left out.  The
    penalty holds, it does not rescue: ``∂H/∂z_j = −π_j (log π_j + H)`` vanishes as π becomes
    one-hot, so begin before the content has collapsed.  A logit of ``-inf`` inside the support is
    a weight of 0 and counts in m.  O(n) per row.

    Examples
    --------
    Half of log 2 is asked for; the first row is uniform on its content, the second one-hot.

    >>> import numpy as np
    >>> rows = np.array([[9.0, 0.0, 0.0], [0.0, 50.0, 0.0]])
    >>> float(content_entropy_floor(rows, sink=0, floor=0.5).round(4))
    0.25
    >>> float(content_entropy_floor(rows + [99.0, 0, 0], sink=0, floor=0.5).round(4))
    0.25
    """
    check_floor(floor)
    row = compose(logits, sink=sink, where=where, logits=True, check=check)
    xp = row.xp
    share, counted = relative_content_entropy(
        xp, row.log_weights, row.content, row.sinks, positive=row.content & ~row.zero
    )
    number = xp.sum(xp.astype(counted, share.dtype))
    if check and is_concrete(row.shares) and not bool(number > 0):
        raise RowError(
            f"not one of the rows of shape {tuple(share.shape)} has two content keys, so there is "
            "no content entropy to hold up: leave out the first rows of a causal map, and check "
            "that `sink` isn't every key"
        )
    total = xp.sum(shortfall(xp, share, counted, floor))
    return total / xp.where(number > 0, number, xp.ones_like(number))


def check_floor(floor: float) -> None:
    """Raise unless `floor` is a share of the largest entropy.

    Raises
    ------
    RowError
        If it is no number, or not above 0 and at most 1.
    """
    if isinstance(floor, bool) or not isinstance(floor, Real) or not 0 < floor <= 1:
        raise RowError(
            f"floor={floor!r} arrived, expected a share of the largest content entropy, above 0 "
            "and at most 1: type floor=0.3 to hold H(π) at 30 % of the log of the number of "
            "content keys"
        )


def relative_content_entropy(
    xp: Any, log_weights: Array, content: Array, sinks: Array, *, positive: Array
) -> tuple[Array, Array]:
    """Return ``H(π) / log m`` of each row, and which rows count.

    Both are ``(...)``.  A row counts with a sink that it sees and two content keys or more; the
    others are 0, and so are their gradients.

    Parameters
    ----------
    content, sinks
        bool, broadcast to the rows: the visible keys that are content, and that are sinks.
    positive
        The content keys whose weight isn't 0.
    """
    m = xp.sum(xp.astype(content, log_weights.dtype), axis=-1)
    counted = (m >= 2) & xp.any(sinks, axis=-1)
    most = xp.log(xp.where(counted, m, xp.full_like(m, 2.0)))
    h = masked_entropy(xp, log_weights, positive)
    return xp.where(counted, h / most, xp.zeros_like(h)), xp.broadcast_to(counted, h.shape)


def shortfall(xp: Any, share: Array, counted: Array, floor: float) -> Array:
    """How far each share lies below the floor, 0 above it and in rows that don't count."""
    missing = floor - share
    zeros = xp.zeros_like(share)
    return xp.where(counted & ~(missing < 0), missing, zeros)  # NaN stays NaN
