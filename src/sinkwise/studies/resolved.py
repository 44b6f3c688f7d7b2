"""Verdicts that stand out from their noise over documents, and how often those reverse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    A margin within float64 rounding of its noise is not resolved.  All verdicts of an anchor by
    one metric are the signs of one matrix product, and their agreement between all metrics is
    another: O(metrics · (documents + metrics) · H^3) arithmetic, on all cores, and O(metrics ·
    documents · H) memory.
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
        return _judged(_Margins.of([d.at(pairs) for d in documents.values()], t))

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


def _judged(margins: _Margins) -> tuple[np.ndarray, np.ndarray]:
    """Agreement and number of resolved verdicts of one anchor, each ``(names, names)``."""
    n_names, n_others = margins.order.shape
    agreement = np.zeros((n_names, n_names))
    both = np.zeros_like(agreement)
    for rows, columns, weight in pair_tiles(n_others):
        # counts of at most 32 x 600 triples are exact in float32
        verdicts = margins.verdicts(rows, columns).reshape(n_names, -1).astype(np.float32)
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
        int16 ``(names, others)``: places of the others by distance.
    left, right
        ``(names, others, features)`` and ``(names, features, others)``, whose product is the
        squared margins less `t` squared times their variances.
    rounding
        ``(names, 1, 1)``: up to here the product may be 0.
    """

    order: np.ndarray
    left: np.ndarray
    right: np.ndarray
    rounding: np.ndarray

    @classmethod
    def of(cls, documents: Sequence[DocumentPairs], t: float) -> _Margins:
        """Return the margins between the given pairs, for every measure."""
        sums = np.stack([d.sums for d in documents], axis=1)
        counts = np.stack([d.counts for d in documents], axis=1)
        mean = sums.sum(0) / counts.sum(0)
        deviation = np.moveaxis(jackknife_deviations(sums, counts), 0, -1)
        unknown = ~np.isfinite(deviation).all(-1)  # a single document holds all rows
        deviation = np.where(unknown[..., None], 0.0, deviation)
        # (m_b - m_c)^2 - t^2 |d_b - d_c|^2 as one product; what all have in common would only
        # cancel in it, and goes before
        m = (mean - mean.mean(1, keepdims=True))[..., None]
        d = t * (deviation - deviation.mean(1, keepdims=True))
        own = m**2 - (d**2).sum(-1, keepdims=True)
        size = (m**2 + (d**2).sum(-1, keepdims=True)).max(1, keepdims=True)
        own[unknown] = -np.inf  # never resolved
        one = np.ones_like(m)
        left = np.concatenate([-2 * m, 2 * d, own, one], axis=-1)
        right = np.concatenate([m, d, one, own], axis=-1).swapaxes(1, 2).copy()
        order = mean.argsort(axis=1).argsort(axis=1).astype(np.int16)
        # six terms of this size, each rounded a few times
        return cls(order, left, right, 32 * np.finfo(np.float64).eps * size)

    def verdicts(self, rows: slice, columns: slice) -> np.ndarray:
        """-1, 0 or 1 for pairs of the others: nearer, unresolved, farther.

        Equal distances are never resolved, so that their order does not matter.
        """
        resolved = self.left[:, rows] @ self.right[:, :, columns] > self.rounding
        farther = self.order[:, rows, None] > self.order[:, None, columns]
        return (farther.view(np.int8) * 2 - 1) * resolved.view(np.int8)
