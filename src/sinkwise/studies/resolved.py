"""Verdicts that stand out from their noise over documents, and how often those reverse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sinkwise.accumulate.intervals import jackknife_deviations
from sinkwise.errors import RowError
from sinkwise.studies.anchors import EXACT_UP_TO, Anchor, draw_anchors, pair_tiles
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.head_matrix import condensed_pair

__all__ = ["ResolvedRates", "resolved_rates"]


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
        Of the draw of anchors and others, beyond
        :data:`~sinkwise.studies.anchors.EXACT_UP_TO` heads.

    Returns
    -------
    ResolvedRates
        All NaN with fewer than two documents.

    Notes
    -----
    All verdicts of an anchor by one metric are the signs of one matrix product, and their
    agreement between all metrics is another: O(metrics · (documents + metrics) · H^3) arithmetic,
    on all cores, and O(metrics · documents · H) memory.
    """
    names = tuple(documents)
    if n_heads < 3:
        raise RowError(f"there are {n_heads} heads, expected at least 3 for a verdict")
    n_documents = next(iter(documents.values())).n_documents
    size = min(n_heads, EXACT_UP_TO)
    if n_documents < 2:
        nan = np.full((len(names), len(names)), np.nan)
        return ResolvedRates(names, nan, nan.copy(), n_heads == size)
    t = float(stats.t.ppf((1 + level) / 2, n_documents - 1))

    def judged(anchor: Anchor) -> tuple[np.ndarray, np.ndarray]:
        pairs = condensed_pair(n_heads, np.full_like(anchor.others, anchor.head), anchor.others)
        return _judged([_Margins.of(d.at(pairs), t) for d in documents.values()])

    anchors = draw_anchors(n_heads, EXACT_UP_TO, seed)
    both = np.zeros((len(names), len(names)))  # triples resolved in both, each counted twice
    agreement = np.zeros_like(both)  # those with equal verdicts less those with opposite ones
    for agreement_here, both_here in on_all_cores(judged, anchors):
        agreement += agreement_here
        both += both_here
    triples = size * (size - 1) * (size - 2)
    with np.errstate(invalid="ignore"):
        rate = (both - agreement) / 2 / both
    return ResolvedRates(names, rate, both / triples, n_heads == size)


def _judged(measures: list[_Margins]) -> tuple[np.ndarray, np.ndarray]:
    """Agreement and number of resolved verdicts of one anchor, each ``(names, names)``."""
    agreement = np.zeros((len(measures), len(measures)))
    both = np.zeros_like(agreement)
    for rows, columns, weight in pair_tiles(len(measures[0].order)):
        found = np.stack([m.verdicts(rows, columns) for m in measures])
        # counts of at most 64 x 600 triples are exact in float32
        verdicts = found.reshape(len(measures), -1).astype(np.float32)
        agreement += weight * (verdicts @ verdicts.T)
        np.abs(verdicts, out=verdicts)
        both += weight * (verdicts @ verdicts.T)
    return agreement, both


@dataclass(frozen=True)
class _Margins:
    """By how much an anchor's others differ in distance, and whether that exceeds the noise.

    Attributes
    ----------
    order
        int16 ``(others,)`` dense ranks of the distances: equal distances have equal ranks.
    left, right
        ``(others, features)`` and ``(features, others)``, whose product is the squared margins
        less `t` squared times their variances.
    """

    order: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, documents: DocumentPairs, t: float) -> _Margins:
        """Return the margins between the given pairs."""
        mean = documents.distances()
        deviation = jackknife_deviations(documents.sums, documents.counts).T
        unknown = ~np.isfinite(deviation).all(1)  # a single document holds all rows
        deviation = np.where(unknown[:, None], 0.0, deviation)
        # (m_b - m_c)^2 - t^2 |d_b - d_c|^2, as one product; what is common to all cancels best
        # before it
        m = (mean - mean.mean())[:, None]
        d = t * (deviation - deviation.mean(0))
        own = m**2 - (d**2).sum(1, keepdims=True)
        own[unknown] = -np.inf  # never resolved
        one = np.ones_like(m)
        left = np.concatenate([-2 * m, 2 * d, own, one], axis=1)
        right = np.concatenate([m, d, one, own], axis=1).T
        _, order = np.unique(mean, return_inverse=True)
        return cls(order.astype(np.int16), left, right)

    def verdicts(self, rows: slice, columns: slice) -> np.ndarray:
        """-1, 0 or 1 for pairs of the others: nearer, unresolved, farther."""
        resolved = self.left[rows] @ self.right[:, columns] > 0
        row, column = self.order[rows, None], self.order[None, columns]
        signs = (row > column).view(np.int8) - (row < column).view(np.int8)
        return signs * resolved
