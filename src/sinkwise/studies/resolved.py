"""Verdicts that stand out from their noise over documents, and how often those reverse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sinkwise.accumulate.intervals import jackknife_deviations
from sinkwise.errors import RowError
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.head_matrix import condensed_pair

__all__ = ["EXACT_UP_TO", "ResolvedRates", "resolved_rates"]

EXACT_UP_TO = 600
"""Heads up to which all triples are judged; beyond, 600 anchors with 599 others each."""


@dataclass(frozen=True)
class ResolvedRates:
    """Resolved verdicts between every two metrics.

    Attributes
    ----------
    names
        The metrics, in the order of the matrices' axes.
    rate
        ``(metrics, metrics)`` reversal rate among the triples resolved in both; NaN where none is.
    share
        ``(metrics, metrics)`` share of the triples resolved in both; the diagonal is each
        metric's own share.
    exact
        Whether all triples were judged.
    """

    names: tuple[str, ...]
    rate: np.ndarray
    share: np.ndarray
    exact: bool


def resolved_rates(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> ResolvedRates:
    """Return how often resolved verdicts reverse, between every two metrics.

    A verdict "b is nearer to a than c" is resolved when its margin exceeds its noise: ``|D_ab -
    D_ac| > t sqrt(V_ab + V_ac - 2 C_ab,ac)``, with the delete-one-document jackknife's variances
    and covariance and the t quantile of documents - 1 degrees of freedom at the two-sided
    `level`.  A triple counts where both metrics resolve it.

    Parameters
    ----------
    documents
        By name, all with the same documents and pairs.
    n_heads
        Number of heads, at least 3.
    level
        Two-sided level of each single verdict (not of all together: with everything noise, 5 % of
        the verdicts are resolved by accident at 0.95).
    seed
        Of the draw of anchors and others, beyond :data:`EXACT_UP_TO` heads.

    Returns
    -------
    ResolvedRates
        All NaN with fewer than two documents.

    Notes
    -----
    O(metrics · documents · H^3) arithmetic as one matrix product an anchor and metric, O(metrics
    · H^2) memory.
    """
    names = tuple(documents)
    if n_heads < 3:
        raise RowError(f"there are {n_heads} heads, expected at least 3 for a verdict")
    n_documents = next(iter(documents.values())).n_documents
    size = min(n_heads, EXACT_UP_TO)
    if n_documents < 2:
        nan = np.full((len(names), len(names)), np.nan)
        return ResolvedRates(names, nan, nan.copy(), n_heads == size)
    t = stats.t.ppf((1 + level) / 2, n_documents - 1)
    means = [d.distances() for d in documents.values()]
    deviations = [jackknife_deviations(d.sums, d.counts).T.copy() for d in documents.values()]

    rng = np.random.default_rng(seed)
    anchors = np.sort(rng.choice(n_heads, size, replace=False))
    both = np.zeros((len(names), len(names)))  # triples resolved in both, each counted twice
    agreement = np.zeros_like(both)  # those with equal verdicts less those with opposite ones
    for a in anchors:
        others = rng.choice(n_heads - 1, size - 1, replace=False)
        others += others >= a
        pairs = condensed_pair(n_heads, np.full_like(others, a), others)
        verdicts = np.empty((len(names), (size - 1) ** 2), dtype=np.float32)
        for row, mean, deviation in zip(verdicts, means, deviations, strict=True):
            row[:] = _resolved_verdicts(mean[pairs], deviation[pairs], t).ravel()
        # counts of at most 599^2 triples are exact in float32
        agreement += verdicts @ verdicts.T
        np.abs(verdicts, out=verdicts)
        both += verdicts @ verdicts.T
    triples = size * (size - 1) * (size - 2)
    with np.errstate(invalid="ignore"):
        rate = (both - agreement) / 2 / both
    return ResolvedRates(names, rate, both / triples, n_heads == size)


def _resolved_verdicts(mean: np.ndarray, deviation: np.ndarray, t: float) -> np.ndarray:
    """-1, 0 or 1 for every ordered pair of an anchor's others: nearer, unresolved, farther.

    `mean` is ``(others,)``, `deviation` ``(others, documents)``.
    """
    # the squared noise of a margin is that of a difference, so a common part can't cancel badly
    centred = deviation - deviation.mean(0)
    variance = np.einsum("od,od->o", centred, centred)
    noise = centred @ centred.T
    noise *= -2.0
    noise += variance[:, None]
    noise += variance
    margin = mean[:, None] - mean
    resolved = margin * margin > t * t * noise
    verdicts: np.ndarray = np.sign(margin) * resolved
    return verdicts
