"""The regime rule refitted on the user's own runs, and how it fares on models left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.studies.audit import Audit
from sinkwise.studies.opened_runs import model_keys, open_runs
from sinkwise.studies.regime import ABSTAIN, SAFE, UNSAFE, frozen_rule, regime_outcome

__all__ = [
    "ABSTENTION_COST",
    "FEWEST_MODELS",
    "FEWEST_PER_OUTCOME",
    "REGIME_COLUMNS",
    "RegimeFit",
    "fit_regime",
    "fit_thresholds",
    "regime_table",
]

ABSTENTION_COST = 0.25
"""What an abstention costs, where a miss costs 1."""

FEWEST_MODELS = 5
FEWEST_PER_OUTCOME = 2
"""Models in all and per outcome for a fit: with one model left out, both outcomes remain."""

REGIME_COLUMNS = (
    "run",
    "model",
    "dispersion",
    "low",
    "high",
    "verdict",
    "settled",
    "rate",
    "resolved_share",
    "misled",
    "result",
)
"""Columns of :func:`regime_table`."""

_LARGEST = 0.5  # the standard deviation of shares can't be larger


@dataclass(frozen=True)
class RegimeFit:
    """Thresholds of the user's own runs.

    Attributes
    ----------
    safe_below, unsafe_above
        The fitted thresholds.
    cost
        Misses plus the costed abstentions on the runs fitted.
    constant_cost
        What it costs to call every run safe, or every run unsafe, whichever is cheaper.  A rule
        that costs as much says nothing.
    score
        Leave-one-model-out: ``hits``, ``misses``, ``abstentions`` over runs, each judged by
        thresholds fitted without any run of its model; beside, ``frozen``: the same counts of
        the frozen rule on the same runs.
    table
        One row per run: ``run``, ``model``, ``dispersion``, ``misled``, ``verdict`` (left out),
        ``result``, and the thresholds ``safe_below`` and ``unsafe_above`` it was judged by.
    record
        What became of the published rule; to be shown with any verdict.
    """

    safe_below: float
    unsafe_above: float
    cost: float
    constant_cost: float
    score: Mapping[str, Any]
    table: pd.DataFrame
    record: str


def regime_table(runs: Iterable[Audit | str | Path]) -> pd.DataFrame:
    """Return verdict and outcome of each run under the frozen rule.

    Parameters
    ----------
    runs
        Audits, or folders of finished ones.

    Returns
    -------
    pandas.DataFrame
        :data:`REGIME_COLUMNS`; `misled` is None where the run is undecided.  ``attrs["record"]``
        holds what became of the published rule.
    """
    opened = open_runs(runs)
    keys = model_keys({name: audit.card() for name, audit in opened.items()})
    rows = []
    for name, audit in opened.items():
        verdict = audit.regime()
        if verdict is None:
            raise RowError(f"{name} has a single head: the rule reads the spread over heads")
        found = {**verdict, **regime_outcome(audit), "run": name, "model": keys[name]}
        rows.append({column: found[column] for column in REGIME_COLUMNS})
    table = pd.DataFrame(rows, columns=REGIME_COLUMNS)
    for column in ("settled", "misled"):  # None is kept apart from False
        table[column] = table[column].astype(object)
    for column in ("rate", "resolved_share"):
        table[column] = table[column].astype(float)
    table.attrs["record"] = frozen_rule().record
    return table


def fit_regime(
    runs: pd.DataFrame | Iterable[Audit | str | Path],
    *,
    models: Mapping[str, str] | None = None,
    abstention_cost: float = ABSTENTION_COST,
) -> RegimeFit:
    """Fit the two thresholds on one's own runs, and score them on models left out.

    Parameters
    ----------
    runs
        Audits, folders of finished ones, or the table of :func:`regime_table` (one's own numbers
        will do: columns ``run``, ``model``, ``dispersion`` and ``misled``).
    models
        Which model a run is of, by run, where the cards don't say: two runs of one model never
        stand on both sides of a split.
    abstention_cost
        From 0 to 1, in misses.

    Returns
    -------
    RegimeFit
        Runs without a resolved verdict are left out.

    Raises
    ------
    RowError
        With fewer than 5 models, or fewer than 2 of either outcome.

    Notes
    -----
    See :func:`fit_thresholds` for the rule.  The score of thresholds on the runs they were fitted
    on flatters; the one on models left out is the honest one, and with few models it is coarse.

    Examples
    --------
    >>> table = pd.DataFrame({
    ...     "run": list("abcdef"), "model": list("abcdef"),
    ...     "dispersion": [0.02, 0.05, 0.08, 0.20, 0.24, 0.31],
    ...     "misled": [False, False, False, True, True, True],
    ... })
    >>> fit = fit_regime(table)
    >>> round(fit.safe_below, 3), round(fit.unsafe_above, 3), fit.score["hits"]
    (0.14, 0.14, 6)
    """
    if not 0 <= abstention_cost <= 1:
        raise RowError(f"abstention_cost={abstention_cost!r}, expected a number from 0 to 1")
    table = runs if isinstance(runs, pd.DataFrame) else regime_table(runs)
    table = _decided(table, models)
    spread = table["dispersion"].to_numpy(dtype=np.float64)
    misled = table["misled"].to_numpy(dtype=bool)
    keys = table["model"].astype(str).to_numpy()
    _require_enough(misled, keys)

    safe_below, unsafe_above, cost = fit_thresholds(spread, misled, abstention_cost)
    judged = []
    for i in range(len(table)):
        others = keys != keys[i]
        low, high, _ = fit_thresholds(spread[others], misled[others], abstention_cost)
        verdict = _verdict(spread[i], low, high)
        judged.append((verdict, _result(verdict, misled[i]), low, high))
    rule = frozen_rule()
    frozen = [
        _result(_verdict(d, rule.safe_below, rule.unsafe_above), m)
        for d, m in zip(spread, misled, strict=True)
    ]
    found = table[["run", "model", "dispersion", "misled"]].reset_index(drop=True)
    left_out = pd.DataFrame(judged, columns=["verdict", "result", "safe_below", "unsafe_above"])
    return RegimeFit(
        safe_below=safe_below,
        unsafe_above=unsafe_above,
        cost=cost,
        constant_cost=float(min(misled.sum(), (~misled).sum())),
        score={**_counts([j[1] for j in judged]), "frozen": _counts(frozen)},
        table=pd.concat([found, left_out], axis=1),
        record=rule.record,
    )


def fit_thresholds(
    dispersion: np.ndarray, misled: np.ndarray, abstention_cost: float = ABSTENTION_COST
) -> tuple[float, float, float]:
    """Return the thresholds that cost least on given runs, and their cost.

    Parameters
    ----------
    dispersion
        ``(runs,)`` spread of sink mass over heads, 0 to 0.5.
    misled
        ``(runs,)`` whether classical verdicts did mislead.
    abstention_cost
        Cost of an abstention; a miss costs 1, a hit nothing.

    Returns
    -------
    tuple of float
        `safe_below`, `unsafe_above`, their cost.

    Notes
    -----
    Cuts are tried half way between neighbouring spreads, and at 0 and 0.5, where nothing is called
    safe or unsafe at all.  Among pairs of equal cost the one with fewer misses is taken, then with
    fewer abstentions, then the one whose cuts lie farthest from any run, then the lower one, so
    that the answer is the same whatever the order of runs.  O(runs^3) time.

    Examples
    --------
    >>> fit_thresholds(np.array([0.1, 0.2, 0.3]), np.array([False, False, True]))
    (0.25, 0.25, 0.0)
    """
    d = np.asarray(dispersion, dtype=np.float64)
    bad = np.asarray(misled, dtype=bool)
    values = np.unique(d)
    cuts = np.concatenate([[0.0], (values[1:] + values[:-1]) / 2, [_LARGEST]])

    def badness(pair: tuple[float, float]) -> tuple[float, ...]:
        low, high = pair
        misses = int((bad & (d < low)).sum() + (~bad & (d > high)).sum())
        silent = int(((d >= low) & (d <= high)).sum())
        room = min(float(np.abs(d - cut).min()) for cut in pair)
        cost = misses + abstention_cost * silent
        return round(cost, 9), misses, silent, -round(room, 9), low, high

    best = min(combinations_with_replacement(cuts.tolist(), 2), key=badness)
    return best[0], best[1], badness(best)[0]


def _decided(table: pd.DataFrame, models: Mapping[str, str] | None) -> pd.DataFrame:
    missing = [c for c in ("run", "model", "dispersion", "misled") if c not in table]
    if missing:
        raise RowError(f"the table has no column {missing[0]!r}; regime_table(runs) makes one")
    table = table[table["misled"].notna()]
    if not table["dispersion"].between(0, _LARGEST).all():
        raise RowError("a dispersion is not between 0 and 0.5, as that of shares must be")
    if models:
        table = table.assign(model=[models.get(r, m) for r, m in table[["run", "model"]].values])
    return table


def _require_enough(misled: np.ndarray, keys: np.ndarray) -> None:
    total = len(set(keys))
    by_outcome = {True: len(set(keys[misled])), False: len(set(keys[~misled]))}
    if total < FEWEST_MODELS or min(by_outcome.values()) < FEWEST_PER_OUTCOME:
        raise RowError(
            f"{total} models with an outcome, {by_outcome[True]} in which classical verdicts "
            f"misled and {by_outcome[False]} in which they did not: a fit needs {FEWEST_MODELS} "
            f"models and {FEWEST_PER_OUTCOME} of either outcome. Until then use the frozen rule, "
            "with its record"
        )


def _verdict(spread: float, safe_below: float, unsafe_above: float) -> str:
    return SAFE if spread < safe_below else UNSAFE if spread > unsafe_above else ABSTAIN


def _result(verdict: str, misled: bool) -> str:
    if verdict == ABSTAIN:
        return "abstained"
    return "hit" if (verdict == UNSAFE) == bool(misled) else "miss"


def _counts(results: Sequence[str]) -> dict[str, int]:
    names = (("hits", "hit"), ("misses", "miss"), ("abstentions", "abstained"))
    return {name: results.count(word) for name, word in names}
