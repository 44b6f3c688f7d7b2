"""Damage of a score over that of the best classical score, cell by cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.studies.prune_cells import Damages
from sinkwise.studies.prune_intervals import jackknife

__all__ = ["AGAINST_COLUMNS", "AgainstClassical", "against_classical"]

AGAINST_COLUMNS = (
    "operation",
    "scope",
    "sparsity",
    "damage",
    "classical",
    "classical_damage",
    "ratio",
    "low",
    "high",
    "note",
)
"""Columns of :attr:`AgainstClassical.cells`."""


@dataclass(frozen=True)
class AgainstClassical:
    """One score against the best classical score of each cell.

    Attributes
    ----------
    score
        The score.
    cells
        A row a cell: ``operation``, ``scope``, ``sparsity``; ``damage`` of the score;
        ``classical``, the classical score of least damage there, and ``classical_damage``;
        ``ratio`` of the two (below 1: less damage) with ``low`` and ``high``, paired by document;
        ``note``, why a ratio is withheld.
    geometric_mean, low, high
        Of the ratios over the cells that have a positive one, with its interval; NaN without any.
    cells_used
        How many cells that is.
    worst
        The cell of the largest ratio, in words, and its ratio; ``None`` without any.
    note
        What the reader has to know beside, or empty.
    """

    score: str
    cells: pd.DataFrame
    geometric_mean: float
    low: float
    high: float
    cells_used: int
    worst: tuple[str, float] | None
    note: str

    def to_json(self) -> dict[str, Any]:
        """Return what ``prune.json`` keeps under ``against_classical``."""
        return {
            "score": self.score,
            "cells": self.cells,
            "geometric_mean": self.geometric_mean,
            "low": self.low,
            "high": self.high,
            "cells_used": self.cells_used,
            "worst": None
            if self.worst is None
            else {"cell": self.worst[0], "ratio": self.worst[1]},
            "note": self.note,
        }


def against_classical(damages: Damages, score: str, classical: Sequence[str]) -> AgainstClassical:
    """Return a score's damage over the best classical score's in each cell.

    Parameters
    ----------
    damages
        Of the study.
    score
        The score to hold against them.
    classical
        Names of the classical scores; `score` itself is left out of them.

    Raises
    ------
    RowError
        If `score` has no point, or no other classical score has one.

    Notes
    -----
    The best classical score of a cell is taken on the same documents, which makes its damage
    a little too small and the ratio a little too large.  A ratio is withheld where the classical
    damage is not above 0 by its own interval; it is kept, and left out of the mean, where the
    score's damage is not positive; it is infinite where the score ruined the model.  The interval
    is the delete-one-document jackknife of the log ratio, with the classical score held fixed.

    Examples
    --------
    >>> from sinkwise.studies.prune_cells import Cell
    >>> sums = np.array([[[1.0], [2.0]], [[1.2], [2.4]], [[1.1], [2.2]]])
    >>> found = against_classical(Damages(
    ...     ("new", "michel"), (Cell("zero", "model", 0.1),), sums, np.full(3, 10.0)),
    ...     "new", ["michel"])
    >>> round(found.geometric_mean, 3), found.worst
    (0.5, ('10 % anywhere, zero', 0.5))
    """
    own = damages.place(score)
    others = [damages.place(n) for n in damages.scores if n in set(classical) and n != score]
    if not others:
        raise RowError(
            f"no classical score beside {score!r} was evaluated: ask for one too, such as michel "
            "or js_divergence/kept"
        )
    rows, logs, logs_without = [], [], []
    for number, cell in enumerate(damages.cells):
        value = damages.value[:, number]
        finite = [i for i in others if np.isfinite(value[i])]
        best = min(finite, key=lambda i: value[i]) if finite else None
        note = _why_withheld(damages, own, best, number)
        ratio, low, high = np.nan, np.nan, np.nan
        if not note and best is not None:
            ratio = value[own] / value[best]
            if ratio > 0:
                log = damages.mean_log(own, [number])
                less = damages.mean_log(best, [number])
                gap = log[0] - less[0], log[1] - less[1]
                low, high = np.exp(np.array(jackknife(*gap, damages.level)[1:]))
                logs.append(gap[0])
                logs_without.append(gap[1])
            else:
                note = "the score did no damage here: left out of the mean"
        named = (None, np.nan) if best is None else (damages.scores[best], value[best])
        rows.append((*cell, value[own], *named, ratio, low, high, note))
    table = pd.DataFrame(rows, columns=AGAINST_COLUMNS)
    table["classical"] = pd.Series([row[4] for row in rows], dtype=object)  # None stays None
    mean = np.array([np.nan] * 3)
    if logs:
        found = jackknife(float(np.mean(logs)), np.mean(logs_without, axis=0), damages.level)
        mean = np.exp(np.array(found))
    known = table.ratio.dropna()
    worst = None
    if len(known):
        place = int(known.idxmax())
        worst = (damages.cells[place].words, float(table.ratio[place]))
    left_out = len(table) - len(logs)
    return AgainstClassical(
        score,
        table,
        float(mean[0]),
        float(mean[1]),
        float(mean[2]),
        len(logs),
        worst,
        f"{left_out} of {len(table)} cells are not in the mean" if left_out else "",
    )


def _why_withheld(damages: Damages, own: int, best: int | None, cell: int) -> str:
    if best is None:
        return "no classical score left a usable model here"
    if np.isnan(damages.value[own, cell]):
        return "the score has no point here"
    low = damages.interval.low[best, cell]
    if damages.value[best, cell] <= 0 or low <= 0:
        return "the best classical damage can't be told from 0"
    return ""
