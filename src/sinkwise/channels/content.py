"""The content channel of one row: how the rest is shared, and how sharply."""

from __future__ import annotations

from sinkwise.geometry.composition import Zeros, compose, resolve_zeros
from sinkwise.geometry.logratio import clr_over, norm
from sinkwise.geometry.masked import safe_sqrt
from sinkwise.geometry.namespace import Array
from sinkwise.geometry.sinks import Sink

__all__ = ["content", "content_dispersion"]


def content(
    p: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    check: bool = True,
) -> Array:
    """Content composition π: the sink set removed, the rest re-closed.

    Parameters
    ----------
    p, sink, where, logits, sink_logit, check
        As in :func:`~sinkwise.channels.mass.sink_mass`.

    Returns
    -------
    Array
        The shape of `p` (one column more with a virtual sink): 0 at the sink and at absent
        keys, the rest closed.  With ``logits=True`` the log of that: ``-inf`` there.  A row
        whose content is all zero is NaN.

    Raises
    ------
    RowError
        On rows that are no composition, a sink that a row can't see, or no content part.

    Notes
    -----
    From logits the shares keep their digits at any sink mass.  O(n) per row.

    Examples
    --------
    >>> content([0.8, 0.15, 0.05], sink=0).round(12)
    array([0.  , 0.75, 0.25])
    """
    row = compose(
        p,
        sink=sink,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
        need_content=True,
    )
    xp = row.xp
    log_share, share = row.parts(row.content)
    value = share
    if logits:
        low = xp.full_like(share, -float("inf"))
        value = xp.where(row.content & ~row.zero, log_share, low)
    empty = ~xp.any(row.content & (share > 0), axis=-1, keepdims=True)
    return xp.where(empty, xp.full_like(value, float("nan")), value)


def content_dispersion(
    p: Array,
    *,
    sink: Sink,
    per_part: bool = False,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Content dispersion ``‖clr π‖``: how far the content is from uniform.

    Parameters
    ----------
    p, sink, where, logits, sink_logit, check
        As in :func:`~sinkwise.channels.mass.sink_mass`.
    per_part
        Divide by √n: the root-mean-square log-ratio to the geometric mean, comparable across
        row lengths.
    zeros
        As in :func:`~sinkwise.channels.mass.sink_balance`.

    Returns
    -------
    Array
        ``(...)`` in nats, 0 for uniform content; NaN where no content part is left.

    Raises
    ------
    RowError
        As :func:`~sinkwise.channels.mass.sink_balance`.

    Notes
    -----
    Scales with temperature: the logits times a give a times the dispersion.  O(n) per row.

    Examples
    --------
    >>> float(content_dispersion([0.8, 0.15, 0.05], sink=0).round(4))
    0.7768
    """
    row = compose(
        p,
        sink=sink,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
        need_content=True,
    )
    (row,) = resolve_zeros(row, zeros=zeros, check=check)
    xp = row.xp
    value = norm(xp, clr_over(row, row.content))
    n = xp.sum(xp.astype(row.content, value.dtype), axis=-1)
    if per_part:
        value = value / safe_sqrt(xp, xp.where(n > 0, n, xp.ones_like(n)))
    return xp.where(n > 0, value, xp.full_like(value, float("nan")))
