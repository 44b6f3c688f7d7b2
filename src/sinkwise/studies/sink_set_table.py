"""The same verdicts under several sink sets at once: what hangs on the choice of the sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.accumulate.sink_sets import SINK_SET_METRICS, SinkSetSums
from sinkwise.distances.all_pairs import COUNT_OF
from sinkwise.studies.document_halves import DocumentPairs, checked_pairs
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.reversal import reversal_rate
from sinkwise.studies.verdict_rates import VerdictRates

__all__ = ["SINK_SET_COLUMNS", "sink_set_table"]

SINK_SET_COLUMNS = (
    "sink_set",
    "documents",
    "keys",
    "sink_mass",
    "sink_mass_low",
    "sink_mass_high",
    "dispersion",
    "kept_vs_dropped",
    "low",
    "high",
    "against_declared",
    "note",
)
"""Columns of the table."""

_HALVES = 200  # as the reversal table has, so that the declared set's interval is the same
_KEPT, _DROPPED = "js_divergence/kept", "js_divergence/dropped"


def sink_set_table(
    store: DocumentStore, n_heads: int, *, level: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Judge the same rows under every sink set they were summed under.

    Parameters
    ----------
    store
        Per-document sums.
    n_heads
        Number of heads, at least 3 for verdicts.
    level
        Two-sided level of intervals.
    seed
        Of the halves behind the intervals of rates.

    Returns
    -------
    pandas.DataFrame
        One row per set, the declared one first: ``sink_set``; ``documents`` (that have such a
        sink); ``keys`` (sink keys in sight, per row); ``sink_mass`` over all heads with its
        interval; ``dispersion`` (standard deviation over heads, what the regime rule reads);
        ``kept_vs_dropped`` (reversal rate of JS divergence under this set, with ``low`` and
        ``high``); ``against_declared`` (share of content-distance verdicts that differ from
        those under the declared set; NaN where the documents are not the same); ``note``.

    Notes
    -----
    The kept distances differ between sets only in the rows that can be used.  O(sets · H² log H)
    for the rates; see :func:`~sinkwise.studies.reversal_table.reversal_table` for the intervals.
    """
    sets = {d: store.sink_sets(d) for d in store.documents}
    names = list(dict.fromkeys(name for found in sets.values() for name in found))
    declared = {metric: store.pairs(metric) for metric in SINK_SET_METRICS}
    sums, counts = store.profile("sink_mass")
    rows: list[dict[str, Any]] = [
        _row("declared", declared, sums, counts, np.nan, None, n_heads, level, seed)
    ]
    for name in names:
        found = [store.sink_set(d, name) for d, there in sets.items() if name in there]
        whole = len(found) == len(sets)
        pairs = _pairs(found)
        keys = sum(f.keys for f in found) / max(1, sum(f.n_rows for f in found))
        if whole and all(np.array_equal(pairs[m].sums, declared[m].sums) for m in pairs):
            # the declared sink by another name: nothing to judge anew
            known = rows[0]["note"] == "" or np.isfinite(rows[0]["kept_vs_dropped"])
            same = {"sink_set": name, "keys": keys, "against_declared": 0.0 if known else np.nan}
            rows.append({**rows[0], **same})
            continue
        rows.append(
            _row(
                name,
                pairs,
                np.stack([f.mass for f in found]),
                np.stack([f.rows for f in found]),
                keys,
                declared["content"] if whole else None,
                n_heads,
                level,
                seed,
            )
        )
    return pd.DataFrame(rows, columns=SINK_SET_COLUMNS)


def _pairs(found: list[SinkSetSums]) -> dict[str, DocumentPairs]:
    return {
        metric: DocumentPairs(
            np.stack([f.pairs.sums[metric] for f in found]),
            np.stack([f.pairs.counts[COUNT_OF[metric]] for f in found]),
        )
        for metric in SINK_SET_METRICS
    }


def _row(
    name: str,
    pairs: Mapping[str, DocumentPairs],
    sums: np.ndarray,
    counts: np.ndarray,
    keys: float,
    declared_content: DocumentPairs | None,
    n_heads: int,
    level: float,
    seed: int,
) -> dict[str, Any]:
    mass = jackknife_mean(sums.sum(1), counts.sum(1), level=level)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_head = sums.sum(0) / counts.sum(0)
    row: dict[str, Any] = {
        "sink_set": name,
        "documents": len(sums),
        "keys": keys,
        "sink_mass": float(mass.value),
        "sink_mass_low": float(mass.low),
        "sink_mass_high": float(mass.high),
        "dispersion": float(np.nanstd(per_head)) if np.isfinite(per_head).any() else np.nan,
        "kept_vs_dropped": np.nan,
        "low": np.nan,
        "high": np.nan,
        "against_declared": np.nan,
        "note": "",
    }
    known = all(np.isfinite(p.distances()).all() for p in pairs.values())
    if n_heads < 3 or not known:
        return {**row, "note": "no verdicts: some two heads have no distance"}
    judged = checked_pairs(pairs, n_heads, (_KEPT, _DROPPED), None, default=())
    rates = VerdictRates(*judged, halves=_HALVES, seed=seed, level=level)
    interval = rates.interval(_KEPT, _DROPPED)
    row |= {"low": interval.low, "high": interval.high, "note": interval.note}
    row["kept_vs_dropped"] = rates.exact(_KEPT, _DROPPED)
    if declared_content is not None and np.isfinite(declared_content.distances()).all():
        row["against_declared"] = reversal_rate(
            pairs["content"].distances(), declared_content.distances()
        )
    return row
