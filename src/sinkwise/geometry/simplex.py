"""The simplex as a vector space: closure, clr, perturbation, powering, centre, balances.

Every function takes arrays of NumPy, PyTorch, JAX or CuPy with the keys on the last axis and
any leading shape, in float32 or float64 (halves rise to float32, integers to float64).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.checks import row_name, weight_problem
from sinkwise.geometry.composition import Zeros, compose, compose_pair, resolve_zeros
from sinkwise.geometry.logratio import clr_over
from sinkwise.geometry.masked import masked_log_softmax
from sinkwise.geometry.namespace import Array, as_arrays, as_mask, is_concrete, to_numpy
from sinkwise.geometry.sinks import VIRTUAL, Sink, sink_mask

__all__ = [
    "balance_basis",
    "closure",
    "clr",
    "compositional_mean",
    "ilr",
    "perturb",
    "power",
    "replace_zeros",
]


def closure(p: Array, *, where: Array | None = None, check: bool = True) -> Array:
    """Close rows of non-negative parts to sum 1.

    Parameters
    ----------
    p
        ``(..., n_keys)`` non-negative parts.
    where
        Support, broadcast to `p`; absent keys come out as 0.
    check
        Raise on what can't be closed; ``False`` skips it.

    Returns
    -------
    Array
        ``(..., n_keys)``; NaN in a row that sums to 0 when `check` is off.

    Raises
    ------
    RowError
        On a negative or non-finite part, or a row that sums to 0: the message names the row.

    Notes
    -----
    Zeros stay zeros.  O(n) per row.

    Examples
    --------
    >>> closure([2.0, 1.0, 1.0])
    array([0.5 , 0.25, 0.25])
    """
    xp, (x,) = as_arrays(p)
    support = xp.ones_like(x, dtype=xp.bool) if where is None else as_mask(xp, where, x)
    x = xp.where(support, x, xp.zeros_like(x))
    total = xp.sum(x, axis=-1, keepdims=True)
    if check and is_concrete(x):
        bad = to_numpy(
            ~(xp.all(x >= 0, axis=-1) & xp.isfinite(total[..., 0]) & (total[..., 0] > 0))
        )
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
            why = weight_problem(to_numpy(x)[at], "float64", virtual=False)
            raise RowError(f"{row_name(at)} cannot be closed: {why}")
    return x / total


def replace_zeros(p: Array, *, delta: float, where: Array | None = None) -> Array:
    """Replace rounding zeros by `delta`, multiplicatively: ratios of the other parts are kept.

    Parameters
    ----------
    p
        ``(..., n_keys)`` weights; closed first.
    delta
        The share each zero gets.  There is no default: results hang on it, so it belongs into
        the methods section, with how far they move under δ/10 and 10 δ.
    where
        Support: keys outside it are absent, stay 0 and are never replaced.

    Returns
    -------
    Array
        ``(..., n_keys)``, closed.

    Raises
    ------
    RowError
        If `delta` is not in (0, 1), or the zeros of a row would take its whole mass
        (``zeros · delta ≥ 1``).

    References
    ----------
    Martín-Fernández, Barceló-Vidal, Pawlowsky-Glahn (2003), Dealing with zeros and missing
    values in compositional data sets.

    Examples
    --------
    >>> replace_zeros([0.75, 0.25, 0.0], delta=0.2)
    array([0.6, 0.2, 0.2])
    """
    row = compose(closure(p, where=where), where=where)
    (row,) = resolve_zeros(row, zeros=float(delta))
    return row.shares


def clr(
    p: Array,
    *,
    where: Array | None = None,
    logits: bool = False,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Centred log-ratio ``log p_j − mean log p`` over the support.

    Parameters
    ----------
    p
        ``(..., n_keys)`` attention weights, or log-weights with ``logits=True``.
    where
        Support: the keys each row may see.
    logits
        `p` holds log-weights, normalised or not: nothing underflows, no zero rule is needed.
    zeros
        What to do with a weight of exactly 0 inside the support: ``"error"``, ``"exclude"``
        (leave the part out) or a share δ to replace it by.
    check
        Check the rows; skipped under ``jit``, ``vmap`` and ``torch.compile``.

    Returns
    -------
    Array
        ``(..., n_keys)`` in nats, sum 0 over the support, NaN at absent keys.

    Raises
    ------
    RowError
        On rows that are no composition, and on zeros without a rule.

    Notes
    -----
    O(n) per row.  A one-part row gives 0.

    References
    ----------
    Aitchison (1986), The Statistical Analysis of Compositional Data.

    Examples
    --------
    >>> clr([0.8, 0.1, 0.1]).round(4)
    array([ 1.3863, -0.6931, -0.6931])
    """
    row = compose(p, where=where, logits=logits, check=check)
    (row,) = resolve_zeros(row, zeros=zeros, check=check)
    xp = row.xp
    value = clr_over(row, row.support)
    return xp.where(row.support, value, xp.full_like(value, float("nan")))


def perturb(p: Array, q: Array, *, where: Array | None = None, check: bool = True) -> Array:
    """Perturbation ``p ⊕ q``: the product of the parts, re-closed.

    In logits it is addition: one bias vector added to every row is one perturbation.

    Parameters
    ----------
    p, q
        ``(..., n_keys)`` weights; `q` must be a composition too (see :func:`closure`).
    where, check
        As in :func:`clr`.

    Returns
    -------
    Array
        ``(..., n_keys)``; absent keys give 0, a zero in either stays 0.  O(n) per row.

    Raises
    ------
    RowError
        On rows that are no composition.

    Examples
    --------
    >>> perturb([0.5, 0.25, 0.25], [0.2, 0.4, 0.4])
    array([0.33333333, 0.33333333, 0.33333333])
    """
    a, b = compose_pair(p, q, where=where, check=check)
    xp = a.xp
    positive = a.support & ~a.zero & ~b.zero
    return masked_log_softmax(xp, a.log_weights + b.log_weights, positive)[1]


def power(p: Array, a: Any, *, where: Array | None = None, check: bool = True) -> Array:
    """Powering ``a ⊙ p``: parts to the power `a`, re-closed (softmax at temperature 1/a).

    Parameters
    ----------
    p
        ``(..., n_keys)`` weights.
    a
        A finite number, or an array that broadcasts to the leading axes.
    where, check
        As in :func:`clr`.

    Returns
    -------
    Array
        ``(..., n_keys)``; absent keys give 0.  O(n) per row.

    Raises
    ------
    RowError
        On rows that are no composition, and on a zero when `a` is not above 0 (0 to a negative
        power is infinite).

    Examples
    --------
    >>> power([0.5, 0.25, 0.25], 2.0).round(4)
    array([0.6667, 0.1667, 0.1667])
    """
    row = compose(p, where=where, check=check)
    xp = row.xp
    xp_a, (exponent,) = as_arrays(a)
    if is_concrete(exponent) and not bool(xp_a.all(xp_a.isfinite(exponent))):
        raise RowError(f"the exponent {a!r} is not finite: powering is by real numbers")
    if is_concrete(exponent) and bool(xp_a.any(exponent <= 0)):
        (row,) = resolve_zeros(row, zeros="error", check=check)
    exponent = xp.asarray(exponent, dtype=row.shares.dtype)
    x = row.log_weights * (exponent[..., None] if exponent.ndim else exponent)
    return masked_log_softmax(xp, x, row.support & ~row.zero)[1]


def compositional_mean(
    p: Array,
    *,
    axis: int | tuple[int, ...],
    where: Array | None = None,
    logits: bool = False,
    zeros: Zeros = "error",
    check: bool = True,
) -> Array:
    """Compositional centre: the closed geometric mean over `axis`.

    Parameters
    ----------
    p
        ``(..., n_keys)`` weights, or log-weights with ``logits=True``.
    axis
        Leading axes to average over (not the key axis).
    where
        Support.  A key that is absent from any averaged row is absent from the mean: the
        centre lives on the common support.
    zeros
        As in :func:`clr`; ``"exclude"`` takes the common support of the averaged rows.
    logits, check
        As in :func:`clr`.

    Returns
    -------
    Array
        `p`'s shape without `axis`; weights, closed, also from logits.

    Raises
    ------
    RowError
        If `axis` is the key axis, on rows that are no composition and on zeros without a rule.

    Examples
    --------
    >>> compositional_mean([[0.8, 0.1, 0.1], [0.2, 0.4, 0.4]], axis=0).round(4)
    array([0.5 , 0.25, 0.25])
    """
    row = compose(p, where=where, logits=logits, check=check)
    (row,) = resolve_zeros(row, zeros=zeros, check=check)
    xp, x = row.xp, row.log_weights
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    if any(i % x.ndim == x.ndim - 1 for i in axes):
        raise RowError(
            f"axis={axis} holds the key axis; the mean runs over rows, so name a leading axis"
        )
    support = row.support & ~row.zero if zeros == "exclude" else row.support
    log_share, _ = masked_log_softmax(xp, x, support)
    common = xp.all(support, axis=axes)
    return masked_log_softmax(xp, xp.mean(log_share, axis=axes), common)[1]


def balance_basis(n_keys: int, *, sink: Sink) -> np.ndarray:
    """Orthonormal balances of `n_keys` parts that set the sink apart: ``(n_keys − 1, n_keys)``.

    The first row is the sink balance's, then r − 1 within the sink set, then n − 1 within the
    content (the pivot basis).  ``clr(p) @ basis.T`` are ilr coordinates in which the split of
    the Aitchison distance is a split of coordinates.

    Parameters
    ----------
    n_keys
        Number of parts.
    sink
        The sink set: an index, a tuple, a mask ``(n_keys,)``, or ``"virtual"``, which adds a
        last column.

    Returns
    -------
    numpy.ndarray
        ``(n_keys − 1, n_keys)`` float64, rows orthonormal and each of sum 0.

    Raises
    ------
    RowError
        If the sink set is empty or the whole row (but a one-part row has an empty basis).

    References
    ----------
    Egozcue & Pawlowsky-Glahn (2005), Groups of parts and their balances.

    Examples
    --------
    >>> balance_basis(3, sink=0).round(4)
    array([[ 0.8165, -0.4082, -0.4082],
           [ 0.    ,  0.7071, -0.7071]])
    """
    if not isinstance(n_keys, int | np.integer) or n_keys < 1:
        raise RowError(f"n_keys={n_keys!r}: a composition has at least one part")
    virtual = isinstance(sink, str) and sink == VIRTUAL
    mask = np.asarray(sink_mask(np, np.zeros(n_keys), sink, appended=virtual))
    if mask.ndim != 1:
        raise RowError("a basis belongs to one sink set: pass a mask of shape (n_keys,)")
    n_keys = mask.size
    if n_keys == 1:
        return np.zeros((0, 1))
    r, n = int(mask.sum()), int((~mask).sum())
    if r == 0 or n == 0:
        raise RowError(f"the sink set has {r} of {n_keys} keys: both sides must be there")
    top = np.where(mask, np.sqrt(n / (r * (r + n))), -np.sqrt(r / (n * (r + n))))
    return np.vstack(
        [top, _pivots(np.flatnonzero(mask), n_keys), _pivots(np.flatnonzero(~mask), n_keys)]
    )


def _pivots(keys: np.ndarray, n_keys: int) -> np.ndarray:
    """Pivot balances within `keys`: each against all that follow it."""
    basis = np.zeros((len(keys) - 1, n_keys))
    for i in range(len(keys) - 1):
        rest = len(keys) - 1 - i
        basis[i, keys[i]] = np.sqrt(rest / (rest + 1))
        basis[i, keys[i + 1 :]] = -1 / np.sqrt(rest * (rest + 1))
    return basis


def ilr(p: Array, *, basis: np.ndarray, logits: bool = False, zeros: Zeros = "error") -> Array:
    """Isometric log-ratio coordinates of rows in an orthonormal `basis`.

    Parameters
    ----------
    p
        ``(..., n_keys)`` weights, or log-weights with ``logits=True``; no absent keys.
    basis
        ``(n_keys − 1, n_keys)``, see :func:`balance_basis`.
    logits, zeros
        As in :func:`clr`; ``zeros="exclude"`` gives NaN for a row with a zero.

    Returns
    -------
    Array
        ``(..., n_keys − 1)`` in nats; Euclidean distances are Aitchison distances.

    Raises
    ------
    RowError
        As :func:`clr`; if the basis is for another number of keys.

    Examples
    --------
    >>> ilr([0.5, 0.3, 0.2], basis=balance_basis(3, sink=0)).round(4)
    array([0.5826, 0.2867])
    """
    value = clr(p, logits=logits, zeros=zeros)
    xp, (value,) = as_arrays(value)
    if value.shape[-1] != np.shape(basis)[-1]:
        raise RowError(
            f"the basis is for {np.shape(basis)[-1]} keys, the rows have {value.shape[-1]}"
        )
    matrix = xp.asarray(basis, dtype=value.dtype)
    return value @ matrix.T
