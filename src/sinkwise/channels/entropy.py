"""Shannon entropy of a row, split exactly between the sink, the content and within the sink."""

from __future__ import annotations

from typing import Any, NamedTuple

from sinkwise.geometry.composition import Composition, compose, compose_pair
from sinkwise.geometry.masked import xlogx
from sinkwise.geometry.namespace import Array, as_arrays
from sinkwise.geometry.sinks import Sink

__all__ = [
    "EntropyChange",
    "EntropyParts",
    "EntropySplit",
    "change_of_parts",
    "entropy",
    "entropy_change",
    "entropy_parts",
    "entropy_split",
    "split_of_parts",
]


class EntropyParts(NamedTuple):
    """All that the entropy of a row and its changes depend on, each field ``(...)``."""

    sink_mass: Array
    """``s``."""
    content_mass: Array
    """``1 − s``, as the sum of the content: it keeps its digits at ``s → 1``."""
    content_entropy: Array
    """``H(π)`` in nats; NaN where the content is all zero."""
    sink_entropy: Array
    """``H(p_S / s)`` in nats, 0 for one sink key."""


class EntropySplit(NamedTuple):
    """Entropy of rows in nats, each field ``(...)``: ``total = sink + content + within_sink``."""

    total: Array
    sink: Array
    """``H_b(s)``: is the mass on the sink or not."""
    content: Array
    """``(1 − s) H(π)``."""
    within_sink: Array
    """``s H(p_S / s)``, 0 for one sink key."""
    content_entropy: Array
    """``H(π)``, blind to the sink; NaN where the content is all zero."""


class EntropyChange(NamedTuple):
    """Change of entropy in nats, each field ``(...)``: ``total = sink + content + within_sink``."""

    total: Array
    sink: Array
    content: Array
    within_sink: Array


def entropy(
    p: Array, *, where: Array | None = None, logits: bool = False, check: bool = True
) -> Array:
    """Shannon entropy of each row in nats, ``0 log 0 = 0``.

    Parameters
    ----------
    p, where, logits, check
        As in :func:`~sinkwise.channels.mass.sink_mass`; a log-weight of ``-inf`` is a weight
        of 0.

    Returns
    -------
    Array
        ``(...)``, between 0 and log n.  NaN where no key is visible, when unchecked.

    Raises
    ------
    RowError
        On rows that are no composition: scores from before the softmax are refused.

    Notes
    -----
    Gradients are finite, masked rows included.  O(n) per row.

    Examples
    --------
    >>> float(entropy([0.0, 0.0, float("-inf")], logits=True).round(4))
    0.6931
    """
    row = compose(p, where=where, logits=logits, check=check)
    return _entropy_over(row, row.support)


def entropy_split(
    p: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    check: bool = True,
) -> EntropySplit:
    """Split the entropy of each row: ``H(p) = H_b(s) + (1−s) H(π) + s H(p_S/s)``.

    Parameters
    ----------
    p, sink, where, logits, sink_logit, check
        As in :func:`~sinkwise.channels.mass.sink_mass`.

    Returns
    -------
    EntropySplit
        Named fields ``(...)`` in nats.

    Raises
    ------
    RowError
        On rows that are no composition, a sink that a row can't see, or no content part.

    Notes
    -----
    No zero rule is needed.  ``1 − s`` is the sum of the content, and from logits π keeps its
    digits at any sink mass.  O(n) per row.

    Examples
    --------
    >>> split = entropy_split([0.8, 0.15, 0.05], sink=0)
    >>> [round(float(x), 4) for x in split]
    [0.6129, 0.5004, 0.1125, 0.0, 0.5623]
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
    return _split(row)


def entropy_change(
    p0: Array,
    p1: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> EntropyChange:
    """Attribute the change of entropy between two rows of one query to its channels.

    Symmetric in the two rows (attributing from 1 to 0 gives the negative), exact, and 0 for a
    channel that did not change.

    Parameters
    ----------
    p0, p1
        ``(..., n_keys)`` the same rows before and after (two checkpoints, two settings).
    sink, where, logits, check
        As in :func:`~sinkwise.channels.mass.sink_mass`; the support is shared.
    sink_logit
        As there, or a pair with one for each side.

    Returns
    -------
    EntropyChange
        Named fields ``(...)`` in nats; they add up to the total to rounding.  NaN in all
        fields where the content of one side is all zero: it has no π.

    Raises
    ------
    RowError
        As :func:`entropy_split`.

    Notes
    -----
    Split each row, then average: the parts still add up to the mean change.  O(n) per row.

    Examples
    --------
    >>> change = entropy_change([0.2, 0.4, 0.4], [0.8, 0.1, 0.1], sink=0)
    >>> [round(float(x), 4) for x in change]
    [-0.4159, -0.4159, 0.0, 0.0]
    """
    a, b = compose_pair(
        p0,
        p1,
        sink=sink,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
        need_content=True,
    )
    return change_of_parts(_parts(a), _parts(b))


def entropy_parts(
    p: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    check: bool = True,
) -> EntropyParts:
    """Reduce each row to the four numbers that its entropy and every change of it depend on.

    Keep these of each row at each checkpoint: any two can be attributed later, by
    :func:`change_of_parts`, without the rows.

    Parameters
    ----------
    p, sink, where, logits, sink_logit, check
        As in :func:`~sinkwise.channels.mass.sink_mass`.

    Returns
    -------
    EntropyParts
        Named fields ``(...)``.  NaN in all where no key is visible, when unchecked.

    Raises
    ------
    RowError
        As :func:`entropy_split`.

    Notes
    -----
    Differentiable, gradients finite.  From logits no field loses its digits at ``s → 1``; the
    content mass underflows where ``1 − s`` is below the dtype's smallest number.  O(n) per row.

    Examples
    --------
    >>> parts = entropy_parts([0.8, 0.15, 0.05], sink=0)
    >>> [round(float(x), 4) for x in parts]
    [0.8, 0.2, 0.5623, 0.0]
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
    parts = _parts(row)
    nan = row.xp.full_like(parts.sink_mass, float("nan"))
    return EntropyParts(*(row.xp.where(row.dead(), nan, x) for x in parts))


def split_of_parts(parts: EntropyParts) -> EntropySplit:
    """Return the split of each row's entropy: :func:`entropy_split` of rows kept as parts.

    Parameters
    ----------
    parts
        Of :func:`entropy_parts`; fields of one shape.

    Returns
    -------
    EntropySplit
        Named fields ``(...)`` in nats.  A row without content mass has content 0 and no H(π).

    Examples
    --------
    >>> split = split_of_parts(entropy_parts([0.8, 0.15, 0.05], sink=0))
    >>> [round(float(x), 4) for x in split]
    [0.6129, 0.5004, 0.1125, 0.0, 0.5623]
    """
    xp, (s, rest, h, k) = as_arrays(*parts)
    binary = _binary_entropy(xp, s, rest)
    content = xp.where(rest > 0, rest, xp.zeros_like(rest)) * xp.where(
        xp.isnan(h), xp.zeros_like(h), h
    )
    within = s * k
    return EntropySplit(binary + content + within, binary, content, within, h)


def change_of_parts(before: EntropyParts, after: EntropyParts) -> EntropyChange:
    """Attribute the change between rows kept as parts: the formula of :func:`entropy_change`.

    Parameters
    ----------
    before, after
        Of :func:`entropy_parts`, the same rows on both sides.

    Returns
    -------
    EntropyChange
        Named fields ``(...)`` in nats; they add up to the total to rounding.  NaN in all
        fields where one side has no π.

    Examples
    --------
    >>> before = entropy_parts([0.2, 0.4, 0.4], sink=0)
    >>> change = change_of_parts(before, entropy_parts([0.8, 0.1, 0.1], sink=0))
    >>> [round(float(x), 4) for x in change]
    [-0.4159, -0.4159, 0.0, 0.0]
    """
    xp, (s0, rest0, h0, k0, s1, rest1, h1, k1) = as_arrays(*before, *after)
    # 1 − s as the content sum on both sides, so that Δs keeps its digits near s = 1
    ds = xp.where(s0 + s1 > 1, rest0 - rest1, s1 - s0)
    binary = _binary_entropy(xp, s1, rest1) - _binary_entropy(xp, s0, rest0)
    sink_part = binary - ds * (h0 + h1) / 2 + ds * (k0 + k1) / 2
    content_part = (rest0 + rest1) / 2 * (h1 - h0)
    within = (s0 + s1) / 2 * (k1 - k0)
    within = xp.where(xp.isnan(content_part), content_part, within)
    return EntropyChange(sink_part + content_part + within, sink_part, content_part, within)


def _parts(row: Composition) -> EntropyParts:
    return EntropyParts(
        sink_mass=row.mass(row.sinks),
        content_mass=row.mass(row.content),
        content_entropy=_entropy_over(row, row.content),
        sink_entropy=_entropy_over(row, row.sinks, empty=0.0),
    )


def _split(row: Composition) -> EntropySplit:
    split = split_of_parts(_parts(row))
    nan = row.xp.full_like(split.total, float("nan"))
    total, sink, content, within = (row.xp.where(row.dead(), nan, x) for x in split[:4])
    return EntropySplit(total, sink, content, within, split.content_entropy)


def _binary_entropy(xp: Any, s: Array, rest: Array) -> Array:
    """``−s log s − (1−s) log(1−s)``; the larger share's log by log1p of the smaller."""
    large, small = xp.where(s > rest, s, rest), xp.where(s > rest, rest, s)
    small = xp.where(small < 0.5, small, xp.full_like(small, 0.5))  # rounding aside it is
    return -(large * xp.log1p(-small) + xlogx(xp, small))


def _entropy_over(row: Composition, mask: Array, empty: float = float("nan")) -> Array:
    """Entropy of the row re-closed over `mask`; `empty` where it has no mass there."""
    xp = row.xp
    log_share, share = row.parts(mask)
    value = -xp.sum(share * log_share, axis=-1)
    value = xp.where(value > 0, value, xp.where(xp.isnan(value), value, xp.zeros_like(value)))
    some = xp.any(mask & (share > 0), axis=-1)
    return xp.where(some, value, xp.full_like(value, empty))
