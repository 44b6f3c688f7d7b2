"""Two runs of one model: what a setting changed, beside what noise alone changes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from sinkwise.accumulate.intervals import jackknife_deviations
from sinkwise.accumulate.profile import SHARE_THRESHOLDS
from sinkwise.errors import RowError, RunError
from sinkwise.studies.audit import Audit
from sinkwise.studies.cards import card_differences
from sinkwise.studies.compare_geometry import GEOMETRY_COLUMNS, compare_geometry, q_values
from sinkwise.studies.opened_runs import open_run

__all__ = [
    "CHANGE_COLUMNS",
    "COMPARED",
    "HEAD_CHANGE_COLUMNS",
    "Comparison",
    "changes",
    "compare",
]

COMPARED = (
    "sink_mass",
    *(f"over_{eps}" for eps in SHARE_THRESHOLDS),
    "sink_balance",
    "entropy",
    "content_entropy",
    "content_dispersion",
    "content_dispersion_per_part",
)
"""Quantities compared: masses and the share of rows over 0.3 and 0.8; the rest in nats."""

CHANGE_COLUMNS = ("quantity", "first", "second", "change", "low", "high", "p_value")
HEAD_CHANGE_COLUMNS = ("head", "layer", "index", *CHANGE_COLUMNS, "q_value")


@dataclass(frozen=True)
class Comparison:
    """What changed from the first run to the second.

    Attributes
    ----------
    differences
        Every difference of the two cards, those that change the measure first
        (:func:`~sinkwise.studies.cards.card_differences`).  Read it first.
    model
        :data:`CHANGE_COLUMNS`, over all heads' rows: `change` is second minus first, with its
        interval; `p_value` two-sided.
    heads
        The same per head, with `q_value`: Benjamini and Hochberg's, within each quantity.
        Intervals are for each head alone.
    geometry
        :data:`~sinkwise.studies.compare_geometry.GEOMETRY_COLUMNS`, one row per measure: whether
        the order of distances between heads changed by more than noise.
    paired
        Whether intervals pair the runs by document.
    level
        Of the intervals.
    notes
        How the intervals came about, and what is missing.
    """

    differences: pd.DataFrame
    model: pd.DataFrame
    heads: pd.DataFrame
    geometry: pd.DataFrame
    paired: bool
    level: float
    notes: tuple[str, ...]

    @property
    def measures_differ(self) -> tuple[str, ...]:
        """Entries of the cards that say that the two runs measure different things."""
        kinds = self.differences
        return tuple(kinds.loc[kinds["kind"] == "measure", "entry"])


def compare(
    first: Audit | str | Path,
    second: Audit | str | Path,
    *,
    paired: bool | None = None,
    allow_different_models: bool = False,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Say what a setting (dtype, length, beginning token, prompts) changed.

    Parameters
    ----------
    first, second
        Audits, or folders of finished ones, with the same heads.
    paired
        Whether document n of one run is document n of the other.  By default it is where both
        run folders hold the same fingerprint of their inputs and the same document numbers.
        Say ``True`` for audits in memory of the same texts.
    allow_different_models
        Compare two models of one shape, or two checkpoints.
    level
        Two-sided level of the intervals.
    seed
        Of the halves and of the exchanges of labels behind the geometry.

    Returns
    -------
    Comparison
        Its `differences` come first: two results with different cards are not compared silently.

    Warns
    -----
    UserWarning
        Where the cards differ in what they measure.

    Raises
    ------
    RunError
        If the runs have different heads, or models that differ without leave.
    RowError
        If `paired` is asked for and the documents don't match.

    Notes
    -----
    See :func:`changes` and :func:`~sinkwise.studies.compare_geometry.compare_geometry`.

    Examples
    --------
    >>> import sinkwise as sw
    >>> z = np.random.default_rng(0).normal(size=(8, 4, 6, 8))  # documents, heads, queries, keys
    >>> more = z.copy()
    >>> more[..., 0] += 1  # the second setting feeds the sink
    >>> runs = [sw.audit(sw.rows(x, sink=0, logits=True)) for x in (z, more)]
    >>> found = sw.compare(*runs, paired=True)
    >>> mass = found.model.iloc[0]
    >>> mass.quantity, bool(mass.low > 0), len(found.differences)
    ('sink_mass', True, 0)
    """
    if not 0 < level < 1:
        raise RowError(f"level={level!r}, expected a number between 0 and 1, such as 0.95")
    one, two = open_run(first), open_run(second)
    cards = one.card(), two.card()
    _require_alike(one, two, allow_different_models)
    differences = card_differences(*cards)
    paired, notes = _pairing(one, two, paired)

    per_head, per_model = [], []
    for name in COMPARED:
        sums = [audit.store.profile(name) for audit in (one, two)]
        heads = changes(*sums[0], *sums[1], paired=paired, level=level)
        heads["q_value"] = q_values(heads["p_value"].to_numpy())
        heads.insert(0, "quantity", name)
        heads.insert(0, "index", [h.index for h in one.heads])
        heads.insert(0, "layer", [h.layer for h in one.heads])
        heads.insert(0, "head", [h.label for h in one.heads])
        per_head.append(heads)
        pooled = [x.sum(1, keepdims=True) for pair in sums for x in pair]
        whole = changes(*pooled, paired=paired, level=level)
        whole.insert(0, "quantity", name)
        per_model.append(whole)
    if len(one.heads) < 3:
        geometry = pd.DataFrame(columns=GEOMETRY_COLUMNS)
        notes.append("fewer than 3 heads: no order of distances to compare")
    else:
        geometry = compare_geometry(
            one.store.pairs, two.store.pairs, len(one.heads), paired=paired, seed=seed
        )
    found = Comparison(
        differences=differences,
        model=pd.concat(per_model, ignore_index=True)[list(CHANGE_COLUMNS)],
        heads=pd.concat(per_head, ignore_index=True)[list(HEAD_CHANGE_COLUMNS)],
        geometry=geometry,
        paired=paired,
        level=level,
        notes=tuple(notes),
    )
    if found.measures_differ:
        warnings.warn(
            "the two runs don't measure the same thing; their cards differ in "
            + ", ".join(
                f"{row.entry} ({row.first} against {row.second})"
                for row in differences.itertuples()
                if row.kind == "measure"
            ),
            UserWarning,
            stacklevel=2,
        )
    return found


def changes(
    first_sums: np.ndarray,
    first_counts: np.ndarray,
    second_sums: np.ndarray,
    second_counts: np.ndarray,
    *,
    paired: bool,
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the change of pooled means between two runs, one row per column of the sums.

    Parameters
    ----------
    first_sums, first_counts, second_sums, second_counts
        ``(documents, columns)`` per run; `paired` runs have the same documents in the same order.
    paired
        Whether to take the documents' common part out.
    level
        Two-sided level of the intervals.

    Returns
    -------
    pandas.DataFrame
        `first`, `second`, `change` (second minus first), `low`, `high`, `p_value`.  NaN where
        a run has no row; interval and p-value NaN where a run has fewer than 2 documents.  A
        change of exactly 0 without any spread has p-value 1.

    Notes
    -----
    Paired: leaving out one document leaves it out of both runs, and the jackknife variance is
    that of the difference, with t quantiles of documents - 1 degrees of freedom.  Unpaired: the
    sum of both jackknife variances with Satterthwaite's degrees of freedom, as in Welch's test.
    Simulated at 0.95 with 4, 8 and 16 documents of unequal lengths, normal and exponential noise,
    unpaired runs of unequal size and noise, both cover 0.93-0.97.

    References
    ----------
    Welch (1947), The generalization of 'Student's' problem when several different population
    variances are involved.

    Examples
    --------
    >>> a, b = np.array([[1.0], [2], [3]]), np.array([[2.0], [3.1], [4]])
    >>> n = np.full((3, 1), 10.0)
    >>> changes(a, n, b, n, paired=True).round(3).values.tolist()
    [[0.2, 0.303, 0.103, 0.089, 0.118, 0.001]]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        first = first_sums.sum(0) / first_counts.sum(0)
        second = second_sums.sum(0) / second_counts.sum(0)
    one = jackknife_deviations(first_sums, first_counts)
    two = jackknife_deviations(second_sums, second_counts)
    seen = [(c > 0).sum(0).astype(np.float64) for c in (first_counts, second_counts)]
    with np.errstate(invalid="ignore", divide="ignore"):
        if paired:
            variance = ((two - one) ** 2).sum(0)
            freedom = np.minimum(*seen) - 1
        else:
            parts = [(one**2).sum(0), (two**2).sum(0)]
            variance = parts[0] + parts[1]
            terms = [v**2 / (n - 1) for v, n in zip(parts, seen, strict=True)]
            freedom = variance**2 / (terms[0] + terms[1])
            # without any spread: the fewer documents speak
            freedom = np.where(variance > 0, freedom, np.minimum(*seen) - 1)
        enough = (np.minimum(*seen) > 1) & np.isfinite(variance)
        freedom = np.where(enough, np.maximum(freedom, 1), 1)
        error = np.where(enough, np.sqrt(variance), np.nan)
        change = second - first
        reach = stats.t.ppf((1 + level) / 2, freedom) * error
        score = np.where((change == 0) & (error == 0), 0.0, np.abs(change) / error)
        p_value = 2 * stats.t.sf(score, freedom)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "change": change,
            "low": change - reach,
            "high": change + reach,
            "p_value": p_value,
        }
    )


def _require_alike(one: Audit, two: Audit, allow_different_models: bool) -> None:
    if one.heads != two.heads:
        strange = sorted(set(one.heads) ^ set(two.heads))[0]
        raise RunError(
            f"the first run has {len(one.heads)} heads and the second {len(two.heads)}, and "
            f"{strange.label} is in one alone: only runs over the same heads are compared"
        )
    why = _different_models(one.card(), two.card())
    if why and not allow_different_models:
        raise RunError(
            f"the runs are of two models: {why}. A comparison is of one model under two "
            "settings; if two models of one shape are meant, say allow_different_models=True "
            "(--different-models)"
        )


def _different_models(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """Why two cards are of different models, or nothing where they may be of one."""

    def both(key: str) -> tuple[Any, Any] | None:
        pair = one.get(key), two.get(key)
        return None if None in pair else pair

    weights = both("weights_fingerprint")
    if weights and weights[0] == weights[1]:
        return ""
    for key in ("model", "model_type", "revision"):
        pair = both(key)
        if pair and pair[0] != pair[1]:
            return f"{key} is {pair[0]} in the first, {pair[1]} in the second"
    # the fingerprint is of the weights as loaded: another dtype changes it, and is a setting
    as_loaded = all(one.get(key) == two.get(key) for key in ("dtype", "quantization"))
    if weights and as_loaded:
        return "their weights differ, though loaded alike"
    return ""


def _pairing(one: Audit, two: Audit, paired: bool | None) -> tuple[bool, list[str]]:
    numbers = one.store.documents, two.store.documents
    prints = [_inputs(audit) for audit in (one, two)]
    same_inputs = prints[0] is not None and prints[0] == prints[1]
    same_numbers = numbers[0] == numbers[1]
    if paired and not same_numbers:
        raise RowError(
            f"paired=True, but the runs hold different documents: {len(numbers[0])} and "
            f"{len(numbers[1])}, {len(set(numbers[0]) & set(numbers[1]))} of the same number. "
            "Audit the same texts in both runs, or compare with paired=False"
        )
    if paired is None:
        paired = same_inputs and same_numbers
        why = (
            "both runs hold the same documents"
            if paired
            else "the same inputs, but not the same documents of them"
            if same_inputs
            else "the runs hold other documents, or don't say"
        )
    else:
        why = "as asked for"
    if paired:
        return True, [f"paired by document: {why}"]
    note = f"not paired ({why}): documents of both runs count as independent"
    if same_inputs:
        note += ", which widens the intervals"
    return False, [note]


def _inputs(audit: Audit) -> str | None:
    """Fingerprint of a run's texts or arrays, which its folder keeps."""
    manifest = getattr(audit.store, "manifest", None) or {}
    found = manifest.get("settings", {}).get("inputs_sha256")
    return None if found is None else str(found)
