"""What the regime rule said beforehand, beside what happened when heads were removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.studies.prune_cells import Damages
from sinkwise.studies.prune_intervals import jackknife
from sinkwise.studies.regime import ABSTAIN, SAFE, UNSAFE

__all__ = ["HAPPENED_COLUMNS", "KEPT", "what_happened"]

KEPT = ("js_divergence/kept", "cosine/kept", "euclidean/kept")
"""Classical pair scores over whole rows, sink kept; the first one evaluated is the headline."""

CONTENT = "content"

HAPPENED_COLUMNS = (
    "classical",
    "operation",
    "scope",
    "sparsity",
    "classical_damage",
    "content_damage",
    "difference",
    "low",
    "high",
    "less_damage",
)
"""Columns of the ``cells`` that :func:`what_happened` returns."""


def what_happened(damages: Damages, predicted: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return whether classical pair scores beat the content distance at deletion.

    Parameters
    ----------
    damages
        Of the study.
    predicted
        ``{"verdict", "why"}`` of the regime rule on the calibration documents, or ``None``.

    Returns
    -------
    dict
        ``classical``: the score that stands for classical practice, JS divergence with the sink
        kept where it was evaluated; ``verdict``: ``"classical"``, ``"content"`` (that one did
        less damage) or ``"undecided"``; ``ratio`` with ``low`` and ``high``: content's damage
        over the classical one's, geometric mean over the cells in which heads are switched off or
        removed (above 1: classical did less); ``result``: ``"hit"``, ``"miss"``, ``"abstained"``
        or ``"undecided"``; ``why``; ``cells``: a table of every classical pair score in every
        cell, mean replacement included, with the paired difference, content's damage minus the
        classical one's, its interval, and which did ``less_damage`` by it.

    Notes
    -----
    The rule was made for verdicts that reverse when the sink is dropped, not for deletion: a hit
    or a miss here is one more trial of it, on one model.
    """
    found: dict[str, Any] = {
        "classical": None,
        "verdict": "undecided",
        "ratio": np.nan,
        "low": np.nan,
        "high": np.nan,
        "result": "undecided",
        "why": "",
        "cells": pd.DataFrame(columns=HAPPENED_COLUMNS),
    }
    kept = [name for name in KEPT if name in damages.scores]
    if CONTENT not in damages.scores or not kept:
        missing = "content" if kept else "a classical pair score such as js_divergence/kept"
        return found | {"why": f"{missing} was not evaluated, so there is nothing to compare"}
    found["cells"] = pd.DataFrame(
        [row for name in kept for row in _cells(damages, name)], columns=HAPPENED_COLUMNS
    )
    found["classical"] = kept[0]
    verdict, ratio, why = _verdict(damages, kept[0])
    found |= {"verdict": verdict, "why": why}
    found |= dict(zip(("ratio", "low", "high"), ratio, strict=True))
    said = None if predicted is None else predicted.get("verdict")
    if said == ABSTAIN:
        found["result"] = "abstained"
    elif said in (SAFE, UNSAFE) and verdict != "undecided":
        found["result"] = "hit" if (said == UNSAFE) == (verdict == "content") else "miss"
    return found


def _cells(damages: Damages, classical: str) -> list[tuple[Any, ...]]:
    first, second = damages.place(CONTENT), damages.place(classical)
    gap = damages.difference(first, second)
    rows = []
    for i, cell in enumerate(damages.cells):
        content, other = damages.value[first, i], damages.value[second, i]
        if np.isnan(content) or np.isnan(other):
            continue
        sign = _sign(gap.value[i], gap.low[i], gap.high[i])
        less = {1: classical, -1: CONTENT, 0: ""}[sign]
        rows.append((classical, *cell, other, content, gap.value[i], gap.low[i], gap.high[i], less))
    return rows


def _verdict(damages: Damages, classical: str) -> tuple[str, tuple[float, float, float], str]:
    """Over the cells of deletion in which both did damage."""
    first, second = damages.place(CONTENT), damages.place(classical)
    pair = damages.value[[first, second]]
    deleted = np.array([cell.operation != "mean" for cell in damages.cells])
    present = ~np.isnan(pair).any(0) & deleted
    used = np.flatnonzero(present & (pair > 0).all(0) & np.isfinite(pair).any(0)).tolist()
    unknown = (float("nan"),) * 3
    if not present.any():
        return "undecided", unknown, "no cell of deletion holds both"
    if not used:
        return "undecided", unknown, "in no cell of deletion did both do damage"
    log, log_without = damages.mean_log(first, used)
    less, less_without = damages.mean_log(second, used)
    if np.isinf(log) and np.isinf(less):
        return "undecided", unknown, "both ruined the model"
    with np.errstate(invalid="ignore"):
        found = jackknife(log - less, log_without - less_without, damages.level)
    ratio, low, high = (float(number) for number in np.exp(np.array(found)))
    told = (
        f"over {len(used)} of {int(present.sum())} cells of deletion the content distance did "
        f"{ratio:.3g} times the damage of {classical}"
    )
    if np.isfinite(low):
        told += f" ({low:.3g} to {high:.3g})"
    sign = _sign(log - less, float(found.low), float(found.high))
    return {1: "classical", -1: "content", 0: "undecided"}[sign], (ratio, low, high), told


def _sign(value: float, low: float, high: float) -> int:
    """1 or -1 where an interval lies on that side of 0, or the value is infinite; else 0."""
    if np.isinf(value):
        return 1 if value > 0 else -1
    return 1 if low > 0 else -1 if high < 0 else 0
