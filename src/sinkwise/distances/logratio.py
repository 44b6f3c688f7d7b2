"""Log-ratio distances between rows: Aitchison, content, angle, and the exact split."""

from __future__ import annotations

from typing import Any, NamedTuple

from sinkwise.geometry.composition import Composition, Zeros, compose_pair, resolve_zeros
from sinkwise.geometry.logratio import clr_over, direction_of, norm, sink_balance_of
from sinkwise.geometry.masked import safe_sqrt
from sinkwise.geometry.namespace import Array
from sinkwise.geometry.sinks import Sink

__all__ = [
    "DistanceSplit",
    "aitchison_distance",
    "content_angle",
    "content_distance",
    "distance_split",
]


class DistanceSplit(NamedTuple):
    """Aitchison distance and its channels, each field ``(...)`` in nats.

    ``total² = content² + balance² + within_sink²`` and ``content² = dispersion² + direction²``.
    """

    total: Array
    content: Array
    balance: Array
    """Signed gap of the sink balances, p minus q: how much to the sink."""
    within_sink: Array
    """Distance within the sink set, 0 for one sink key."""
    dispersion: Array
    """Signed gap of the content dispersions, p minus q: how sharply."""
    direction: Array
    """What is left of the content distance: on which keys."""


def aitchison_distance(
    p: Array,
    q: Array,
    *,
    where: Array | None = None,
    logits: bool = False,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Aitchison distance ``‖clr p − clr q‖`` of whole rows.

    Parameters
    ----------
    p, q
        ``(..., n_keys)`` weights, or log-weights with ``logits=True``; leading axes broadcast.
    where
        Support that both rows share.
    logits
        `p` and `q` hold log-weights, normalised or not.
    zeros
        What to do with a weight of exactly 0 inside the support: ``"error"``, ``"exclude"``
        (the two rows' common support) or a share δ to replace it by.
    check
        Check the rows; skipped under ``jit``, ``vmap`` and ``torch.compile``.

    Returns
    -------
    Array
        ``(...)`` in nats.  A metric.  Gradient 0 where the rows agree.

    Raises
    ------
    RowError
        On rows that are no composition and on zeros without a rule.

    Notes
    -----
    O(n) per pair.  Unchanged when one logit bias vector is added to both rows.

    References
    ----------
    Aitchison (1986), The Statistical Analysis of Compositional Data.

    Examples
    --------
    >>> float(aitchison_distance([0.8, 0.1, 0.1], [0.2, 0.4, 0.4]).round(4))
    2.2638
    """
    a, b = compose_pair(p, q, where=where, logits=logits, check=check)
    a, b = resolve_zeros(a, b, zeros=zeros, check=check)
    gap = _clr_gap(a, b, a.support & b.support)
    return _nan_where(a, ~a.xp.any(a.support & b.support, axis=-1), norm(a.xp, gap))


def content_distance(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    per_part: bool = False,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Content distance ``d⊥``: the Aitchison distance of the two contents, blind to the sink.

    Parameters
    ----------
    p, q, where, logits, zeros, check
        As in :func:`aitchison_distance`.
    sink
        The sink set, as in :func:`~sinkwise.channels.mass.sink_mass`.
    sink_logit
        ``(...)`` log-weight of a virtual sink, or a pair with one for each side.
    per_part
        Divide by √n, comparable across row lengths.

    Returns
    -------
    Array
        ``(...)`` in nats.  A pseudometric on whole rows: 0 for rows that differ in their sink
        alone.  NaN where no common content part is left.

    Raises
    ------
    RowError
        As :func:`aitchison_distance`; where the sink is hidden or there is no content.

    Notes
    -----
    It mixes how sharp with which keys: two flat rows are near whatever their keys.  See
    :func:`content_angle` and :func:`distance_split`.  O(n) per pair.

    Examples
    --------
    >>> float(content_distance([0.9, 0.08, 0.02], [0.2, 0.64, 0.16], sink=0).round(9))
    0.0
    """
    a, b = _pair(p, q, sink, where, logits, sink_logit, zeros, check)
    xp = a.xp
    mask = a.content & b.content
    value = norm(xp, _clr_gap(a, b, mask))
    if per_part:
        n = xp.sum(xp.astype(mask, value.dtype), axis=-1)
        value = value / safe_sqrt(xp, xp.where(n > 0, n, xp.ones_like(n)))
    return _nan_where(a, ~xp.any(mask, axis=-1), value)


def content_angle(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Angle between the two contents' clr vectors: which keys, blind to sink and temperature.

    Parameters
    ----------
    p, q, sink, where, logits, sink_logit, zeros, check
        As in :func:`content_distance`.

    Returns
    -------
    Array
        ``(...)`` in radians, from 0 to π; NaN where a content is uniform to rounding, for it
        has no direction.

    Raises
    ------
    RowError
        As :func:`content_distance`.

    Notes
    -----
    Computed as ``2 atan2(‖u − v‖, ‖u + v‖)`` on unit vectors: arccos would lose half the
    digits of a small angle.  O(n) per pair.

    Examples
    --------
    >>> float(content_angle([0.7, 0.2, 0.1], [0.1, 0.8, 0.1], sink=0).round(9))
    0.0
    """
    a, b = _pair(p, q, sink, where, logits, sink_logit, zeros, check)
    xp = a.xp
    mask = a.content & b.content
    u, v = direction_of(a, mask), direction_of(b, mask)
    none = u.uniform | v.uniform
    angle = _angle(xp, u.unit, v.unit, none)
    return xp.where(none, xp.full_like(angle, float("nan")), angle)


def distance_split(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    zeros: Zeros = "error",
    check: bool = True,
) -> DistanceSplit:
    """Split the Aitchison distance exactly: sink balance, dispersion, direction, within sink.

    Parameters
    ----------
    p, q, sink, where, logits, sink_logit, zeros, check
        As in :func:`content_distance`.

    Returns
    -------
    DistanceSplit
        Named fields ``(...)`` in nats; `balance` and `dispersion` are signed, p minus q.

    Raises
    ------
    RowError
        As :func:`content_distance`.

    Notes
    -----
    A uniform content has no direction: its `direction` is 0 and the dispersion gap is the
    whole content distance.  O(n) per pair.

    Examples
    --------
    >>> split = distance_split([0.8, 0.15, 0.05], [0.5, 0.1, 0.4], sink=0)
    >>> round(float(split.balance), 4), round(float(split.dispersion), 4)
    (1.0672, -0.2034)
    >>> round(float(split.total**2), 4)
    4.2262
    >>> round(float(split.balance**2 + split.dispersion**2 + split.direction**2), 4)
    4.2262
    """
    a, b = _pair(p, q, sink, where, logits, sink_logit, zeros, check)
    xp = a.xp
    content, sinks = a.content & b.content, a.sinks & b.sinks
    distance = norm(xp, _clr_gap(a, b, content))
    balance = sink_balance_of(a) - sink_balance_of(b)
    within = norm(xp, _clr_gap(a, b, sinks))
    u, v = direction_of(a, content), direction_of(b, content)
    none = u.uniform | v.uniform
    chord = norm(xp, xp.where(none[..., None], xp.zeros_like(u.unit), u.unit - v.unit))
    direction = safe_sqrt(xp, u.norm * v.norm) * chord
    total = safe_sqrt(xp, distance**2 + balance**2 + within**2)
    empty = ~xp.any(content, axis=-1)
    parts = (total, distance, balance, within, u.norm - v.norm, direction)
    return DistanceSplit(*(_nan_where(a, empty, part) for part in parts))


def _pair(
    p: Array,
    q: Array,
    sink: Sink,
    where: Array | None,
    logits: bool,
    sink_logit: Any,
    zeros: Zeros,
    check: bool,
) -> tuple[Composition, Composition]:
    a, b = compose_pair(
        p,
        q,
        sink=sink,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
        need_content=True,
    )
    a, b = resolve_zeros(a, b, zeros=zeros, check=check)
    return a, b


def _clr_gap(a: Composition, b: Composition, mask: Array) -> Array:
    return clr_over(a, mask) - clr_over(b, mask)


def _angle(xp: Any, u: Array, v: Array, none: Array) -> Array:
    chord, other = norm(xp, u - v), norm(xp, u + v)
    safe = xp.where(none, xp.ones_like(other), other)  # atan2(0, 0) has no gradient
    return 2 * xp.atan2(chord, safe)


def _nan_where(row: Composition, empty: Array, value: Array) -> Array:
    return row.xp.where(empty, row.xp.full_like(value, float("nan")), value)
