"""Classical distances between rows, each under a named sink convention.

``"kept"`` compares whole rows; ``"dropped"`` removes the sink set and re-closes the rest;
``"zeroed"`` sets the sink to 0 without re-closing, which is what a mask does.
"""

from __future__ import annotations

from typing import Any, Literal

from sinkwise.errors import RowError
from sinkwise.geometry.composition import Composition, compose_pair
from sinkwise.geometry.masked import safe_sqrt
from sinkwise.geometry.namespace import Array, as_arrays, is_concrete, to_numpy
from sinkwise.geometry.sinks import Sink

__all__ = [
    "CONVENTIONS",
    "Convention",
    "cosine_distance",
    "euclidean_distance",
    "js_distance",
    "js_divergence",
    "kl_divergence",
]

Convention = Literal["kept", "dropped", "zeroed"]
CONVENTIONS = ("kept", "dropped", "zeroed")


def cosine_distance(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    convention: Convention,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> Array:
    """Cosine distance ``1 − ⟨p, q⟩ / (‖p‖ ‖q‖)``.

    Parameters
    ----------
    p, q
        ``(..., n_keys)`` weights, or log-weights with ``logits=True``; leading axes broadcast.
    sink
        The sink set: an index, a tuple, a boolean mask or ``"virtual"``.
    convention
        ``"kept"``, ``"dropped"`` or ``"zeroed"`` (for cosine the same as dropped).
    where
        Support that both rows share.
    logits
        `p` and `q` hold log-weights, normalised or not.
    sink_logit
        ``(...)`` log-weight of a virtual sink, or a pair with one for each side.
    check
        Check the rows; skipped under ``jit``, ``vmap`` and ``torch.compile``.

    Returns
    -------
    Array
        ``(...)`` between 0 and 1, exactly 0 for equal rows; NaN where a side's content is all
        zero and the sink is not kept.  Keeps its digits at sink masses up to 1 in rounding.

    Raises
    ------
    RowError
        On rows that are no composition, an unknown convention, or content that is all zero.

    Notes
    -----
    Not a metric.  No zero rule is needed.  O(n) per pair.

    Examples
    --------
    >>> p, q = [0.8, 0.2, 0.0], [0.8, 0.0, 0.2]
    >>> float(cosine_distance(p, q, sink=0, convention="kept").round(4))
    0.0588
    >>> float(cosine_distance(p, q, sink=0, convention="dropped").round(4))
    1.0
    """
    a, x, y, _ = _under(p, q, sink, convention, where, logits, sink_logit, check)
    xp = a.xp
    u, v = _unit(xp, x), _unit(xp, y)
    # the leading key apart: its unit coordinates differ in second order of all the others'
    lead = _lead(xp, u + v)
    rest = ~lead
    zeros = xp.zeros_like(u)
    gap = xp.where(rest, u - v, zeros)
    uu = xp.sum(xp.where(rest, u * u, zeros), axis=-1)
    vv = xp.sum(xp.where(rest, v * v, zeros), axis=-1)
    top = xp.sum(xp.where(lead, u + v, zeros), axis=-1)
    lead_gap = (vv - uu) / xp.where(top > 0, top, xp.ones_like(top))
    value = (xp.sum(gap * gap, axis=-1) + lead_gap * lead_gap) / 2
    return _nan_if_empty(xp, x, y, value)


def euclidean_distance(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    convention: Convention,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> Array:
    """Euclidean distance ``‖p − q‖``.

    Parameters
    ----------
    p, q, sink, convention, where, logits, sink_logit, check
        As in :func:`cosine_distance`.

    Returns
    -------
    Array
        ``(...)`` between 0 and √2; a metric on the rows compared.  Gradient 0 where they agree.

    Raises
    ------
    RowError
        As :func:`cosine_distance`.

    Notes
    -----
    O(n) per pair.

    Examples
    --------
    >>> float(euclidean_distance([0.8, 0.2], [0.6, 0.4], sink=0, convention="kept").round(4))
    0.2828
    """
    a, x, y, gap = _under(p, q, sink, convention, where, logits, sink_logit, check)
    return _nan_if_empty(a.xp, x, y, safe_sqrt(a.xp, a.xp.sum(gap * gap, axis=-1)), convention)


def js_divergence(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    convention: Convention,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> Array:
    """Jensen–Shannon divergence in nats (natural logarithm; the *square* of the JS distance).

    Parameters
    ----------
    p, q, sink, convention, where, logits, sink_logit, check
        As in :func:`cosine_distance`.

    Returns
    -------
    Array
        ``(...)`` between 0 and log 2, never negative, exactly 0 for equal rows.

    Raises
    ------
    RowError
        As :func:`cosine_distance`.

    Notes
    -----
    With m = (p+q)/2 and x = (p−q)/(p+q) it is ``½ Σ m φ(x)``, where
    ``φ(x) = (1+x) log(1+x) + (1−x) log(1−x)``: every term is at least 0, so nothing cancels.
    Zeros need no rule.  Under ``"zeroed"`` the same sum over rows that are not closed.
    O(n) per pair.

    Examples
    --------
    >>> p, q = [0.3, 0.3, 0.4], [0.5, 0.5, 0.0]
    >>> float(js_divergence(p, q, sink=0, convention="kept").round(5))
    0.1639
    """
    a, x, y, gap = _under(p, q, sink, convention, where, logits, sink_logit, check)
    return _nan_if_empty(a.xp, x, y, _js(a.xp, x, y, gap), convention)


def js_distance(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    convention: Convention,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> Array:
    """Jensen–Shannon distance: the square root of :func:`js_divergence`, a metric.

    Parameters
    ----------
    p, q, sink, convention, where, logits, sink_logit, check
        As in :func:`cosine_distance`.

    Returns
    -------
    Array
        ``(...)`` between 0 and √log 2.  Gradient 0 where the rows agree.

    Raises
    ------
    RowError
        As :func:`cosine_distance`.

    Notes
    -----
    O(n) per pair.

    Examples
    --------
    >>> p, q = [0.3, 0.3, 0.4], [0.5, 0.5, 0.0]
    >>> float(js_distance(p, q, sink=0, convention="kept").round(5))
    0.40484
    """
    value = js_divergence(
        p,
        q,
        sink=sink,
        convention=convention,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
    )
    xp, (value,) = as_arrays(value)
    return safe_sqrt(xp, value)


def kl_divergence(
    p: Array,
    q: Array,
    *,
    sink: Sink,
    convention: Convention,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Any = None,
    check: bool = True,
) -> Array:
    """Kullback–Leibler divergence ``Σ p log(p/q)`` in nats.

    Parameters
    ----------
    p, q, sink, convention, where, logits, sink_logit, check
        As in :func:`cosine_distance`.

    Returns
    -------
    Array
        ``(...)``; a term with p = 0 is 0, and ``+inf`` where q = 0 under p > 0.  Never NaN for
        rows with mass.

    Raises
    ------
    RowError
        As :func:`cosine_distance`.

    Notes
    -----
    O(n) per pair.  Computed as ``Σ q ψ(p/q − 1)`` terms that are each at least 0, so that
    near rows lose no digits.

    Examples
    --------
    >>> float(kl_divergence([0.5, 0.5], [0.9, 0.1], sink=0, convention="kept").round(4))
    0.5108
    >>> float(kl_divergence([0.5, 0.5], [1.0, 0.0], sink=0, convention="kept"))
    inf
    """
    a, x, y, gap = _under(p, q, sink, convention, where, logits, sink_logit, check)
    xp = a.xp
    both = (x > 0) & (y > 0)
    one = xp.ones_like(x)
    safe = xp.where(both, y, one)
    t = xp.where(both, gap / safe, xp.zeros_like(x))  # p/q − 1
    t = xp.where(t > -1, t, xp.full_like(t, -0.5))
    near = xp.abs(t) < 0.5
    small = xp.where(near, t, xp.zeros_like(t))
    far = xp.where(both & ~near, x, one)
    log_far = xp.log(far) - xp.log(xp.where(both & ~near, y, one))
    terms = xp.where(near, (1 + small) * xp.log1p(small) - small, (far * log_far - gap) / safe)
    terms = xp.where(both, safe * terms, y - x)  # q (r log r − r + 1); for p = 0 it is q
    # Σ (p − q) = 0 over closed rows: adding it back only matters where rows are not closed
    value = xp.sum(terms, axis=-1)
    if convention == "zeroed":
        value = value + xp.sum(gap, axis=-1)
    impossible = xp.any((x > 0) & (y == 0), axis=-1)
    value = xp.where(impossible, xp.full_like(value, float("inf")), value)
    return _nan_if_empty(xp, x, y, value, convention)


def _under(
    p: Array,
    q: Array,
    sink: Sink,
    convention: Convention,
    where: Array | None,
    logits: bool,
    sink_logit: Any,
    check: bool,
) -> tuple[Composition, Array, Array, Array]:
    """Return the two rows under the convention and their difference ``p − q``."""
    if convention not in CONVENTIONS:
        raise RowError(
            f"convention={convention!r}: say whether the sink is "
            + ", ".join(map(repr, CONVENTIONS))
        )
    a, b = compose_pair(
        p,
        q,
        sink=sink,
        where=where,
        logits=logits,
        sink_logit=sink_logit,
        check=check,
        need_content=convention != "kept",
    )
    xp = a.xp
    if convention == "kept":
        x, y = a.shares, b.shares
    elif convention == "dropped":
        x, y = a.parts(a.content)[1], b.parts(b.content)[1]
    else:
        x = xp.where(a.content, a.shares, xp.zeros_like(a.shares))
        y = xp.where(b.content, b.shares, xp.zeros_like(b.shares))
    if check and convention != "kept":
        _refuse_empty(xp, x, "p", convention)
        _refuse_empty(xp, y, "q", convention)
    gap = x - y
    if convention != "zeroed":
        gap = _closed_gap(xp, gap, x + y)
    return a, x, y, gap


def _closed_gap(xp: Any, gap: Array, total: Array) -> Array:
    """The difference of closed rows, its largest part taken from the others.

    Near sink mass 1 both rows' largest parts round to almost the same number; the difference
    of the small ones still has its digits, and all differences add up to 0.
    """
    lead = _lead(xp, total)
    rest = xp.sum(xp.where(lead, xp.zeros_like(gap), gap), axis=-1, keepdims=True)
    return xp.where(lead, -rest, gap)


def _lead(xp: Any, x: Array) -> Array:
    """Mark the first largest part of each row."""
    keys = xp.arange(x.shape[-1], device=getattr(x, "device", None))
    return keys == xp.argmax(x, axis=-1, keepdims=True)


def _unit(xp: Any, x: Array) -> Array:
    top = xp.max(x, axis=-1, keepdims=True)
    x = x / xp.where(top > 0, top, xp.ones_like(top))  # squares of tiny shares underflow
    square = xp.sum(x * x, axis=-1, keepdims=True)
    return x / xp.sqrt(xp.where(square > 0, square, xp.ones_like(square)))


def _js(xp: Any, x: Array, y: Array, gap: Array) -> Array:
    total = x + y
    some = total > 0
    t = xp.where(some, gap / xp.where(some, total, xp.ones_like(total)), xp.zeros_like(total))
    return xp.sum(total * _phi(xp, t), axis=-1) / 4


def _phi(xp: Any, t: Array) -> Array:
    """``(1+t) log(1+t) + (1−t) log(1−t)``, by its series where the two terms would cancel."""
    t = xp.abs(t)
    ones = xp.ones_like(t)
    t = xp.where(t < 1, t, ones)
    square = t * t
    series = square * (1 + square * (1 / 6 + square * (1 / 15 + square * (1 / 28 + square / 45))))
    small = t < 0.02
    inner = xp.where((t < 1) & ~small, t, ones / 2)
    exact = (1 + inner) * xp.log1p(inner) + (1 - inner) * xp.log1p(-inner)
    two_log_two = xp.full_like(t, 1.3862943611198906)
    return xp.where(small, series, xp.where(t < 1, exact, two_log_two))


def _refuse_empty(xp: Any, x: Array, name: str, convention: str) -> None:
    if not is_concrete(x):
        return
    empty = to_numpy(xp.max(x, axis=-1) == 0)
    if empty.any():
        raise RowError(
            f"a row of `{name}` has all its mass on the sink: under {convention!r} nothing is left "
            "to compare. From logits (logits=True) the content keeps its shares at any sink mass"
        )


def _nan_if_empty(
    xp: Any, x: Array, y: Array, value: Array, convention: Convention = "dropped"
) -> Array:
    """NaN where a side has no mass; under "zeroed" only cosine and rows with no key do."""
    if convention == "zeroed":
        return value
    empty = (xp.max(x, axis=-1) == 0) | (xp.max(y, axis=-1) == 0)
    return xp.where(empty, xp.full_like(value, float("nan")), value)
