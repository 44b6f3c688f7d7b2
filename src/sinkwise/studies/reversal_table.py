"""Reversal rates between every two measures, with bias, interval and resolved verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from sinkwise.rowdata import HeadId
from sinkwise.studies.anchors import EXACT_UP_TO
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import DocumentPairs, checked_pairs
from sinkwise.studies.half_verdicts import rates_on
from sinkwise.studies.resolved import resolved_rates
from sinkwise.studies.reversal import sample_triples
from sinkwise.studies.reversal_forms import (
    margin_weighted_rates,
    nearest_heads,
    neighbour_overlaps,
)
from sinkwise.studies.verdict_rates import VerdictRates

__all__ = ["REVERSAL_COLUMNS", "REVERSAL_NAMES", "reversal_table"]

REVERSAL_COLUMNS = (
    "first",
    "second",
    "rate",
    "resolved_rate",
    "resolved_share",
    "resolved_level",
    "margin_weighted_rate",
    "nearest_changed",
    "neighbour_overlap",
    "neighbours",
    "exact",
    "low",
    "high",
    "bias",
    "smallest_detectable",
    "sampled_rate",
    "note",
)
"""Columns of the table, there also when it is empty."""

REVERSAL_NAMES = (
    "content",
    "content_angle",
    "aitchison",
    "cosine/kept",
    "cosine/dropped",
    "js_divergence/kept",
    "js_divergence/dropped",
    "euclidean/kept",
    "euclidean/dropped",
)
"""The measures compared when none are named."""

NEIGHBOURS = 5
"""Neighbours a head behind ``neighbour_overlap``, where there are heads enough."""

PROTOCOL_SAMPLES = 50_000
"""Triples of the published protocol, behind ``sampled_rate``."""


def reversal_table(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    *,
    names: Sequence[str] | None = None,
    halves: int = 200,
    seed: int = 0,
    level: float = 0.95,
    heads: Sequence[HeadId] | None = None,
) -> pd.DataFrame:
    """Return the reversal rate between every two measures, one row per pair.

    Parameters
    ----------
    documents
        Per-document sums and counts by measure, all over the same documents and pairs.
    n_heads
        Number of heads, at least 3.
    names
        Measures to compare; :data:`REVERSAL_NAMES` where present by default.
    halves
        Random halves of the documents behind bias and interval.
    seed
        Of the halves and of the sampled triples.
    level
        Two-sided level of intervals and of resolved verdicts.
    heads
        Names for messages.

    Returns
    -------
    pandas.DataFrame
        Columns

        - ``first``, ``second``: the two measures;
        - ``rate``: exact, over all triples;
        - ``resolved_rate``, ``resolved_share``: the rate among the triples that both measures
          resolve, and their share
          (:func:`~sinkwise.studies.resolved.resolved_rates`), NaN with a single document;
          ``resolved_level``: the two-sided level at which each single verdict stands out from its
          noise over documents;
        - ``margin_weighted_rate``: every triple weighted by the product of its two margins, so
          that flips among near-ties hardly count
          (:func:`~sinkwise.studies.reversal_forms.margin_weighted_rate`);
        - ``nearest_changed``: share of heads whose nearest other head differs;
        - ``neighbour_overlap``: how much of each head's nearest ``neighbours`` the two share: 5
          of them, with fewer than 7 heads all others but one;
        - ``exact``: whether the resolved and the margin-weighted rates are over all triples, as
          they are up to 600 heads; beyond, over 600 seeded anchors with 599 others each;
        - ``low``, ``high``: interval of ``rate``, NaN where the noise over documents allows none;
          ``bias``: what that noise is estimated to add to the rate;
        - ``smallest_detectable``: the smallest rate that so many documents, with the noise found
          here, can tell from 0: half of the interval's width plus the bias if positive, and at
          least the share of verdicts that disjoint halves flip within one measure.  A rate above
          it can still be without an interval, where the bias is large against that;
        - ``sampled_rate``: over 50,000 random triples, the published protocol;
        - ``note``: empty, or ``"too few documents"``.

    Raises
    ------
    RowError
        If measures are missing or disagree in documents or pairs, or a mean distance is NaN.

    Notes
    -----
    Interval: :func:`~sinkwise.studies.document_halves.halves_interval`.  The halves are judged on
    20,000 seeded triples (all, where there are fewer), the same for every half and measure; the
    bias is taken against the whole's rate on those very triples, so the draw all but cancels.
    Beside a bias that is large against the interval, a rate is drowned when two disjoint halves
    flip more verdicts within one measure (the mean of the two) than differ between the measures:
    noise then saturates and hides its own bias.  Simulated with 30 heads, correlated measures, 8
    and 32 documents and noise from small to overwhelming, the interval at level 0.95 covers
    0.88-1.00 by case where it is given in three studies of ten or more; without the second rule
    0.00 at worst.

    O(pairs_of_names · H^2 log H) for the rates, O(names · halves · triples) for the intervals,
    O(names · (documents + names) · H^3) for the resolved and the weighted rates up to 600 heads,
    no more beyond.  Memory: 20 bytes a name and H^2 beside the sums themselves.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(15)
    >>> noise = rng.normal(0, 0.01, (8, 15))
    >>> first = DocumentPairs(truth + noise, np.ones((8, 1)))
    >>> second = DocumentPairs(1 - truth + noise, np.ones((8, 1)))
    >>> table = reversal_table({"cosine/kept": first, "cosine/dropped": second}, 6)
    >>> bool(table.rate[0] > 0.9), table.note[0]
    (True, '')
    """
    chosen, matrices = checked_pairs(documents, n_heads, names, heads, default=REVERSAL_NAMES)
    resolved = resolved_rates(chosen, n_heads, level=level, seed=seed)
    weighted = margin_weighted_rates(matrices, exact_up_to=EXACT_UP_TO, seed=seed)
    neighbours = min(NEIGHBOURS, n_heads - 2)  # of all others every two matrices share all
    nearest = list(on_all_cores(lambda m: nearest_heads(m, neighbours), matrices.values()))
    changed = 1.0 - neighbour_overlaps([found[:, :1] for found in nearest])
    overlap = neighbour_overlaps(nearest)
    n_documents = next(iter(chosen.values())).n_documents
    whole = np.ones((1, n_documents), dtype=bool)
    sampled = rates_on(chosen, n_heads, whole, sample_triples(n_heads, PROTOCOL_SAMPLES, seed))[0]
    rates = VerdictRates(chosen, matrices, halves=halves, seed=seed, level=level)
    exact = rates.exact_of(combinations(chosen, 2))

    found = []
    for i, j in combinations(range(len(chosen)), 2):
        first, second = list(chosen)[i], list(chosen)[j]
        interval = rates.interval(first, second)
        found.append(
            {
                "first": first,
                "second": second,
                "rate": exact[first, second],
                "resolved_rate": float(resolved.rate[i, j]),
                "resolved_share": float(resolved.share[i, j]),
                "resolved_level": level,
                "margin_weighted_rate": float(weighted[i, j]),
                "nearest_changed": float(changed[i, j]),
                "neighbour_overlap": float(overlap[i, j]),
                "neighbours": neighbours,
                "exact": resolved.exact,
                "low": interval.low,
                "high": interval.high,
                "bias": interval.bias,
                "smallest_detectable": _at_most_one(
                    max(interval.half_width + max(interval.bias, 0.0), rates.floor(first, second))
                ),
                "sampled_rate": float(sampled[i, j]),
                "note": interval.note,
            }
        )
    return pd.DataFrame(found, columns=REVERSAL_COLUMNS)


def _at_most_one(rate: float) -> float:
    """No rate exceeds 1; NaN stays NaN."""
    return rate if np.isnan(rate) else min(rate, 1.0)
