"""The sink channel: how much of a row goes to the sink."""

from __future__ import annotations

from sinkwise.geometry.composition import Zeros, compose, resolve_zeros
from sinkwise.geometry.logratio import sink_balance_of
from sinkwise.geometry.namespace import Array
from sinkwise.geometry.sinks import Sink

__all__ = ["sink_balance", "sink_mass"]


def sink_mass(
    p: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    check: bool = True,
) -> Array:
    """Share of each row that lies on the sink set.

    Parameters
    ----------
    p
        ``(..., n_keys)`` attention weights, or log-weights with ``logits=True``.
    sink
        The sink set: an index, a tuple of indices, a boolean mask that broadcasts to the rows,
        or ``"virtual"`` for what weights that sum to less than 1 leave out.
    where
        Support, bool, broadcast to `p`: the keys each row may see.
    logits
        `p` holds log-weights, normalised or not.
    sink_logit
        ``(...)`` log-weight of a virtual sink (a learned sink, or 0 for softmax-off-by-one),
        added to the sink set; with ``logits=True`` only.
    check
        Check the rows; skipped under ``jit``, ``vmap`` and ``torch.compile``.

    Returns
    -------
    Array
        ``(...)``, between 0 and 1.  A row without a visible key is NaN when unchecked.

    Raises
    ------
    RowError
        On rows that are no composition, or a sink that a row can't see.

    Notes
    -----
    A zero is a zero here: no zero rule is needed.  O(n) per row.

    Examples
    --------
    >>> float(sink_mass([0.7, 0.2, 0.1], sink=0).round(12))
    0.7
    >>> float(sink_mass([0.2, 0.2, 0.2, 0.2], sink="virtual").round(12))
    0.2
    """
    row = compose(p, sink=sink, where=where, logits=logits, sink_logit=sink_logit, check=check)
    xp = row.xp
    total, content = row.mass(row.sinks), row.mass(row.content)
    value = total / xp.where(row.dead(), xp.ones_like(total), total + content)
    return xp.where(row.dead(), xp.full_like(value, float("nan")), value)


def sink_balance(
    p: Array,
    *,
    sink: Sink,
    where: Array | None = None,
    logits: bool = False,
    sink_logit: Array | None = None,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Sink balance: the log-ratio of the sink's geometric mean to the content's, scaled.

    ``b = √(rn/(r+n)) · (mean_S log p − mean_C log p)`` for r sink and n content parts; it is a
    coordinate of the Aitchison geometry, orthogonal to the content.  It is not a function of
    the sink mass alone: it compares the sink with the *geometric* mean of the content.

    Parameters
    ----------
    p, sink, where, logits, sink_logit, check
        As in :func:`sink_mass`.
    zeros
        What to do with a weight of exactly 0 inside the support: ``"error"``, ``"exclude"``
        (leave the part out) or a share δ to replace it by.

    Returns
    -------
    Array
        ``(...)`` in nats; NaN where the sink or the content has no part left.

    Raises
    ------
    RowError
        As :func:`sink_mass`; on a zero without a rule; where a row has no content.

    Notes
    -----
    O(n) per row; from logits finite at any sink mass, 1 − 1e-12 and beyond.

    References
    ----------
    Egozcue & Pawlowsky-Glahn (2005), Groups of parts and their balances.

    Examples
    --------
    >>> float(sink_balance([0.8, 0.1, 0.1], sink=0).round(4))
    1.6979
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
    return sink_balance_of(row)
