"""Sink mass against the size of models: slopes within families and across."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.accumulate.profile import SHARE_THRESHOLDS
from sinkwise.errors import RowError, RunError
from sinkwise.studies.audit import Audit
from sinkwise.studies.cards import MEASURE_KEYS, differing
from sinkwise.studies.opened_runs import model_keys, open_runs

__all__ = [
    "FEWEST_FOR_INTERVAL",
    "FEWEST_FOR_SLOPE",
    "MODEL_COLUMNS",
    "SLOPE_COLUMNS",
    "STATISTICS",
    "Scaling",
    "scaling",
    "slope",
]

STATISTICS = ("sink_mass", *(f"heads_over_{eps}" for eps in SHARE_THRESHOLDS))
"""Mean sink mass, and the share of heads whose mean is above 0.3 and 0.8."""

MODEL_COLUMNS = (
    *("model", "family", "parameters", "runs", "heads", "documents"),
    *("sink_mass", "sink_mass_low", "sink_mass_high"),
    *STATISTICS[1:],
)
SLOPE_COLUMNS = (
    *("family", "statistic", "models"),
    *("theil_sen", "theil_sen_low", "theil_sen_high"),
    *("least_squares", "least_squares_low", "least_squares_high", "note"),
)

FEWEST_FOR_SLOPE = 3
FEWEST_FOR_INTERVAL = 4
ACROSS = "all models"
_LENGTHS_ALIKE = 1.1  # mean lengths in tokens; tokenizers alone make a few percent
_DIGITS = ("dtype", "quantization", "attention_implementation")


@dataclass(frozen=True)
class Scaling:
    """What became of sink mass over models of many sizes.

    Attributes
    ----------
    models
        One row per model, :data:`MODEL_COLUMNS`, smallest first: `parameters`; how many `runs`
        were averaged; `sink_mass` with its interval over documents (NaN where several runs were
        averaged); share of heads over 0.3 and 0.8.
    slopes
        One row per family of 3 models or more and statistic, :data:`SLOPE_COLUMNS`, then the
        same over all models: change per factor of ten in parameters, by Theil-Sen and by least
        squares, with intervals.  `note` says why a number is missing.
    shared
        The conventions that all the cards share.
    level
        Of the intervals.
    notes
        What to know before reading a slope.
    """

    models: pd.DataFrame
    slopes: pd.DataFrame
    shared: Mapping[str, Any]
    level: float
    notes: tuple[str, ...]


def scaling(
    runs: Iterable[Audit | str | Path],
    *,
    parameters: Mapping[str, int] | None = None,
    families: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
    allow: Sequence[str] = (),
    level: float = 0.95,
) -> Scaling:
    """Fit sink mass against parameters, within families and across.

    Parameters
    ----------
    runs
        Audits, or folders of finished ones.
    parameters, families, models
        Parameter count, family and model of runs, by run or model, where a card doesn't say
        (``n_parameters``, ``model_type``, ``model``) or should not be followed.
    allow
        Entries of the card that may differ, such as ``("begins_with",)`` for models with and
        without a beginning token.  They end up in the notes.
    level
        Two-sided level of the intervals.

    Returns
    -------
    Scaling
        Each model counts once: several runs of one are averaged, each run alike.

    Raises
    ------
    RunError
        If cards differ in what they measure, or a parameter count is missing.

    Notes
    -----
    The intervals of slopes speak of models drawn like these, with independent errors; models of
    one family share tokenizer and data, so the slope across families is not evidence of a law.
    See :func:`slope` for the two fits.

    Examples
    --------
    >>> import sinkwise as sw
    >>> rng = np.random.default_rng(0)
    >>> audits = []
    >>> for size in (1, 2, 3, 4, 5):
    ...     z = rng.normal(size=(4, 3, 6, 8))  # documents, heads, queries, keys
    ...     z[..., 0] += size
    ...     audits.append(sw.audit(sw.rows(z, sink=0, logits=True)))
    >>> sizes = {f"arrays ({i})": 10 ** (5 + i) for i in (1, 2, 3, 4, 5)}
    >>> found = scaling(audits, parameters=sizes)
    >>> row = found.slopes.iloc[0]
    >>> row.family, row.statistic, bool(row.theil_sen_low > 0)
    ('all models', 'sink_mass', True)
    """
    if not 0 < level < 1:
        raise RowError(f"level={level!r}, expected a number between 0 and 1, such as 0.95")
    opened = open_runs(runs)
    if not opened:
        raise RunError("no runs: give the folders of finished audits, one model each or more")
    cards = {name: audit.card() for name, audit in opened.items()}
    notes = _check_cards(cards, allow)
    keys = model_keys(cards, models)
    sizes = _sizes(cards, keys, parameters or {})
    kinds = _families(cards, keys, families or {})

    measured = pd.DataFrame([_measured(name, audit) for name, audit in opened.items()])
    measured["model"] = [keys[name] for name in opened]
    rows = []
    for model, group in measured.groupby("model", sort=False):
        row = group.iloc[0].to_dict() | {"parameters": sizes[str(model)], "runs": len(group)}
        row |= {statistic: float(group[statistic].mean()) for statistic in STATISTICS}
        row |= {"family": kinds[str(model)], "documents": int(group["documents"].sum())}
        if len(group) > 1:
            row |= {"sink_mass_low": math.nan, "sink_mass_high": math.nan}
            notes.append(f"{model}: {len(group)} runs averaged, each counting alike")
        rows.append(row)
    table = pd.DataFrame(rows, columns=MODEL_COLUMNS)
    table = table.sort_values(["parameters", "model"], ignore_index=True)
    slopes, more = _slopes(table, level)
    shared = {k: v for k, v in next(iter(cards.values())).items() if k in MEASURE_KEYS}
    shared = {k: v for k, v in shared.items() if k not in allow}
    return Scaling(table, slopes, shared, level, tuple(notes + more))


def slope(log_parameters: np.ndarray, values: np.ndarray, level: float = 0.95) -> dict[str, Any]:
    """Return the change of a statistic per factor of ten in parameters, in two ways.

    Parameters
    ----------
    log_parameters
        ``(models,)`` log10 of parameter counts.
    values
        ``(models,)`` the statistic.
    level
        Two-sided level of the intervals.

    Returns
    -------
    dict
        ``theil_sen`` (the median of the slopes between every two models) with ``_low`` and
        ``_high`` by SciPy's rank interval; ``least_squares`` with its t interval; ``note``.  NaN,
        with the reason in the note, for fewer than 3 models (no slope) or 4 (no interval), for
        models of one size, and for the rank interval where so few models can't reach the level.

    Notes
    -----
    The widest rank interval covers 1 - 2/n!: 0.92 for 4 models, so at 0.95 it starts with 5.
    Simulated with normal, t(3) and exponential errors at 0.95, it covers 0.95-0.98 for 5 to 20
    models, the t interval 0.94-0.96 for 4 to 20.

    References
    ----------
    Sen (1968), Estimates of the regression coefficient based on Kendall's tau.

    Examples
    --------
    >>> found = slope(np.array([7.0, 8, 9, 10, 11]), np.array([0.1, 0.2, 0.31, 0.4, 0.5]))
    >>> round(found["theil_sen"], 3), round(found["least_squares"], 3)
    (0.1, 0.1)
    """
    x, y = np.asarray(log_parameters, dtype=np.float64), np.asarray(values, dtype=np.float64)
    n = len(x)
    found: dict[str, Any] = dict.fromkeys(SLOPE_COLUMNS[3:-1], math.nan)
    found["note"] = ""
    if n < FEWEST_FOR_SLOPE:
        found["note"] = f"{n} of the {FEWEST_FOR_SLOPE} models that a slope needs"
        return found
    if np.ptp(x) == 0:
        found["note"] = "all models are of one size"
        return found
    ranked = stats.theilslopes(y, x, alpha=level)
    line = stats.linregress(x, y)
    found |= {"theil_sen": float(ranked[0]), "least_squares": float(line.slope)}
    if np.ptp(y) == 0:
        found["note"] = "the same value in all models: no interval"
        return found
    if n < FEWEST_FOR_INTERVAL:
        found["note"] = f"no interval: {n} models"
        return found
    reach = float(stats.t.ppf((1 + level) / 2, n - 2)) * float(line.stderr)
    found |= {
        "least_squares_low": found["least_squares"] - reach,
        "least_squares_high": found["least_squares"] + reach,
    }
    if 1 - 2 / math.factorial(n) < level:
        found["note"] = f"no rank interval: {n} models can't reach {level:g}"
        return found
    found |= {"theil_sen_low": float(ranked[2]), "theil_sen_high": float(ranked[3])}
    return found


def _slopes(table: pd.DataFrame, level: float) -> tuple[pd.DataFrame, list[str]]:
    found, notes = [], []
    groups = [(str(f), g) for f, g in table.groupby("family", sort=True)]  # no family: in none
    small = [f"{f} ({len(g)})" for f, g in groups if len(g) < FEWEST_FOR_SLOPE]
    if small:
        notes.append(
            f"too few models for a slope of their own, {FEWEST_FOR_SLOPE} are needed: "
            + ", ".join(small)
        )
    shown = [(f, g) for f, g in groups if len(g) >= FEWEST_FOR_SLOPE]
    for family, group in [*shown, (ACROSS, table)]:
        x = np.log10(group["parameters"].to_numpy(dtype=np.float64))
        for statistic in STATISTICS:
            fit = slope(x, group[statistic].to_numpy(), level)
            found.append({"family": family, "statistic": statistic, "models": len(group), **fit})
    if len(table) < FEWEST_FOR_SLOPE:
        notes.append(
            f"{len(table)} of the {FEWEST_FOR_SLOPE} models that a slope needs: nothing can be "
            "said about scaling"
        )
    elif len(groups) > 1:
        notes.append("the slope across families mixes size with tokenizer, data and training")
    return pd.DataFrame(found, columns=SLOPE_COLUMNS), notes


def _measured(name: str, audit: Audit) -> dict[str, Any]:
    sums, counts = audit.store.profile("sink_mass")
    value, low, high = jackknife_mean(sums.sum(1), counts.sum(1), level=audit.level)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_head = sums.sum(0) / counts.sum(0)
    per_head = per_head[np.isfinite(per_head)]
    return {
        "run": name,
        "heads": len(audit.heads),
        "documents": len(audit.store.documents),
        "sink_mass": float(value),
        "sink_mass_low": float(low),
        "sink_mass_high": float(high),
        **{f"heads_over_{eps}": float((per_head > eps).mean()) for eps in SHARE_THRESHOLDS},
    }


def _check_cards(cards: Mapping[str, Mapping[str, Any]], allow: Sequence[str]) -> list[str]:
    """Refuse cards that measure different things; return what else sets them apart."""
    if isinstance(allow, str):
        allow = (allow,)
    unknown = sorted(set(allow) - set(MEASURE_KEYS))
    if unknown:
        raise RowError(f"allow={unknown[0]!r} is none of {', '.join(MEASURE_KEYS)}")
    found = differing(cards)
    refused = {key: values for key, values in found.items() if key not in allow}
    if refused:
        keys = ", ".join(refused)
        details = "; ".join(f"{key}: {_by_value(values)}" for key, values in refused.items())
        raise RunError(
            f"these runs don't measure the same thing, their cards differ in {keys} ({details}). "
            "Audit the models under one convention; or, if the difference is meant, name it: "
            f"allow={tuple(refused)!r} (--allow {','.join(refused)})"
        )
    notes = [f"cards differ in {key}, as allowed: {_by_value(v)}" for key, v in found.items()]
    notes += [
        f"cards differ in {key}, which moves digits: {_by_value(values)}"
        for key, values in differing(cards, _DIGITS).items()
    ]
    lengths = {
        name: card["lengths"]["mean"]
        for name, card in cards.items()
        if isinstance(card.get("lengths"), Mapping)
    }
    if lengths and max(lengths.values()) > _LENGTHS_ALIKE * min(lengths.values()):
        notes.append(
            f"mean lengths run from {min(lengths.values()):.0f} to {max(lengths.values()):.0f} "
            "tokens: sink mass changes with length"
        )
    return notes


def _by_value(values: Mapping[str, Any]) -> str:
    grouped: dict[str, list[str]] = {}
    for name, value in values.items():
        grouped.setdefault("not stated" if value is None else str(value), []).append(name)
    return ", ".join(
        f"{value} in {names[0]}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        for value, names in grouped.items()
    )


def _sizes(
    cards: Mapping[str, Mapping[str, Any]], keys: Mapping[str, str], given: Mapping[str, int]
) -> dict[str, int]:
    _require_known(given, keys, "parameters")
    sizes: dict[str, int] = {}
    for run, card in cards.items():
        model = keys[run]
        size = given.get(run, given.get(model, card.get("n_parameters")))
        if size is None:
            raise RunError(
                f"the card of {run} holds no parameter count (n_parameters): give it by "
                f"parameters={{{run!r}: N}} (--parameters {run}=N)"
            )
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise RowError(f"parameters of {run} are {size!r}, expected a whole number, 1 or more")
        if sizes.setdefault(model, int(size)) != size:
            raise RunError(
                f"runs of {model} state {sizes[model]} and {size} parameters: are they one model? "
                f"If not, tell them apart by models={{{run!r}: ...}}"
            )
    return sizes


def _families(
    cards: Mapping[str, Mapping[str, Any]], keys: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str | None]:
    _require_known(given, keys, "families")
    return {
        keys[run]: given.get(run, given.get(keys[run], card.get("model_type")))
        for run, card in cards.items()
    }


def _require_known(given: Mapping[str, Any], keys: Mapping[str, str], name: str) -> None:
    known = {*keys, *keys.values()}
    for key in given:
        if key not in known:
            raise RunError(f"{name} names {key!r}, which is no run; there are {', '.join(keys)}")
