"""Intervals over documents for what a pruning study compares: pooled damages and logs of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from sinkwise.accumulate.intervals import Interval
from sinkwise.errors import RowError
from sinkwise.studies.document_damage import Documents, damage_sums, document_outcome

__all__ = ["finite_damage_sums", "jackknife", "outcome", "pooled_and_without"]


def outcome(
    documents: Documents, dense: Documents, metric: str, *, level: float = 0.95
) -> dict[str, Any]:
    """Return what held-out documents say of a model with heads removed.

    As :func:`~sinkwise.studies.document_damage.document_outcome`, and where a document's loss is
    not finite (the model gives no probabilities there: overflow, NaN) value and damage are
    infinite without an interval, so that such a model comes last in every ranking.

    Parameters
    ----------
    documents
        ``{"loss", "tokens"}`` or ``{"damage", "tokens"}`` of every document; ``None`` for a loss
        that is not finite.
    dense
        Of the dense model on the same documents.
    metric
        ``"perplexity"``, or the name of a mean damage.
    level
        Two-sided level of the intervals.

    Returns
    -------
    dict
        ``value``, ``low``, ``high`` and ``damage`` with the same keys.

    Raises
    ------
    RowError
        If the two were not measured on the same documents.

    Examples
    --------
    >>> dense = [{"loss": 30.0, "tokens": 10}, {"loss": 28.0, "tokens": 10}]
    >>> ruined = [{"loss": 33.0, "tokens": 10}, {"loss": None, "tokens": 10}]
    >>> outcome(ruined, dense, "perplexity")["damage"]
    {'value': inf, 'low': nan, 'high': nan}
    """
    sums, _ = finite_damage_sums(documents, dense, metric)
    if np.isfinite(sums).all():
        return document_outcome(documents, dense, metric, level=level)
    lost = {"value": float("inf"), "low": float("nan"), "high": float("nan")}
    return {**lost, "damage": dict(lost)}


def finite_damage_sums(
    documents: Documents, dense: Documents, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return each document's summed damage, infinite where it is not a number, and its tokens.

    Raises
    ------
    RowError
        If the two were not measured on the same documents.

    Examples
    --------
    >>> finite_damage_sums([{"damage": None, "tokens": 4}], [{"damage": 0.0, "tokens": 4}], "kl")
    (array([inf]), array([4.]))
    """
    sums, tokens = damage_sums(documents, dense, metric)
    return np.where(np.isfinite(sums), sums, np.inf), tokens


def pooled_and_without(sums: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means over all tokens, and the same with each document left out.

    Parameters
    ----------
    sums
        ``(documents, ...)`` summed damages; infinite where a model is ruined, NaN where there is
        none.
    tokens
        ``(documents,)``, all above 0.

    Returns
    -------
    tuple of numpy.ndarray
        ``(...)`` and ``(documents, ...)``.  A column with an infinite sum is infinite throughout:
        leaving the ruined document out doesn't make the model a usable one.  A single document
        leaves NaN.

    Examples
    --------
    >>> value, without = pooled_and_without(np.array([1.0, 4.0, 4.0]), np.array([1.0, 2.0, 2.0]))
    >>> float(value), without.tolist()
    (1.8, [2.0, 1.6666666666666667, 1.6666666666666667])
    """
    sums = np.asarray(sums, dtype=np.float64)
    tokens = np.asarray(tokens, dtype=np.float64)
    if sums.shape[:1] != tokens.shape or not (tokens > 0).all():
        raise RowError(
            f"sums of shape {sums.shape} arrived with tokens {tokens.tolist()}: expected one "
            "number of tokens above 0 for each document"
        )
    ruined = np.isinf(sums).any(0)
    usable = np.where(ruined, 0.0, sums)
    counts = tokens.reshape(tokens.shape + (1,) * (sums.ndim - 1))
    left = counts.sum() - counts
    value = usable.sum(0) / counts.sum()
    without = (usable.sum(0) - usable) / np.where(left > 0, left, np.nan)
    return np.where(ruined, np.inf, value), np.where(ruined, np.inf, without)


def jackknife(value: float | np.ndarray, without: np.ndarray, level: float = 0.95) -> Interval:
    """Return a statistic with its delete-one-document jackknife interval.

    Parameters
    ----------
    value
        ``(...)``: the statistic of all documents.
    without
        ``(documents, ...)``: the same with each document left out.
    level
        Two-sided level.

    Returns
    -------
    Interval
        Ends are NaN for fewer than 2 documents, and where the statistic, or one with a document
        left out, is not finite.

    Notes
    -----
    value ± t(g-1) · √((g-1)/g · Σ (without - mean of without)²), as
    :func:`~sinkwise.accumulate.intervals.jackknife_mean` for any smooth statistic.

    Examples
    --------
    >>> found = jackknife(4.0, np.array([4.5, 4.0, 3.5]))
    >>> round(float(found.low), 2), round(float(found.high), 2)
    (1.52, 6.48)
    """
    value = np.asarray(value, dtype=np.float64)
    without = np.asarray(without, dtype=np.float64)
    documents = without.shape[0]
    usable = np.isfinite(value) & np.isfinite(without).all(0)
    if documents < 2:
        return Interval(value, np.full(value.shape, np.nan), np.full(value.shape, np.nan))
    spread = np.where(usable, without, 0.0)
    error = np.sqrt((documents - 1) / documents * ((spread - spread.mean(0)) ** 2).sum(0))
    reach = np.where(usable, stats.t.ppf((1 + level) / 2, documents - 1) * error, np.nan)
    centre = np.where(usable, value, np.nan)
    return Interval(value, centre - reach, centre + reach)
