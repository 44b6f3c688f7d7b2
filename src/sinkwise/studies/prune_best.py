"""Which score did the least damage to this model, and which can't be told from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.studies.prune_cells import Damages
from sinkwise.studies.prune_intervals import jackknife

__all__ = ["BEST_COLUMNS", "RANKING_COLUMNS", "BestScore", "best_score"]

BEST_COLUMNS = (
    "operation",
    "scope",
    "sparsity",
    "score",
    "damage",
    "low",
    "high",
    "not_told_apart",
    "note",
)
"""Columns of :attr:`BestScore.cells`."""

RANKING_COLUMNS = (
    "score",
    "damage",
    "low",
    "high",
    "over_best",
    "over_best_low",
    "over_best_high",
    "told_apart",
    "cells_best",
)
"""Columns of :attr:`BestScore.ranking`."""


@dataclass(frozen=True)
class BestScore:
    """The best score for one model, in every cell and over all of them.

    Attributes
    ----------
    score
        The score of least geometric mean of damage over the cells; ``None`` where there is none.
    not_told_apart
        Scores whose damage over the best one's, paired by document, has an interval that holds 1.
    cells
        A row a cell: ``operation``, ``scope``, ``sparsity``, the ``score`` of least damage, its
        ``damage`` with ``low`` and ``high``, ``not_told_apart`` (scores whose difference from it,
        paired by document, has an interval that holds 0) and a ``note``.
    ranking
        A row a score, best first: geometric mean of ``damage`` over :attr:`cells_used` with its
        interval; ``over_best``, the ratio to the best score's, with its paired interval;
        ``told_apart`` from the best; ``cells_best``, in how many cells it did least damage.
    cells_used
        Cells behind the geometric mean, in words.
    cells_left_out
        Cells in which some score's damage is not positive, so that it has no logarithm, or every
        score ruined the model, in words.
    note
        What the reader has to know beside, or empty.
    """

    score: str | None
    not_told_apart: tuple[str, ...]
    cells: pd.DataFrame
    ranking: pd.DataFrame
    cells_used: tuple[str, ...]
    cells_left_out: tuple[str, ...]
    note: str

    def to_json(self) -> dict[str, Any]:
        """Return what ``prune.json`` keeps under ``best``."""
        return {
            "score": self.score,
            "not_told_apart": self.not_told_apart,
            "cells": self.cells,
            "ranking": self.ranking,
            "cells_used": self.cells_used,
            "cells_left_out": self.cells_left_out,
            "note": self.note,
        }


def best_score(damages: Damages, candidates: Sequence[str]) -> BestScore:
    """Return the best of some scores in every cell, and over all cells.

    Parameters
    ----------
    damages
        Of the study.
    candidates
        Scores to choose among: all but random ones.  Over all cells, only those with a point in
        every cell are compared.

    Notes
    -----
    The documents that choose the best score also measure it, so its damage is a little too small
    and the interval doesn't know it: scores that can't be told apart are named for that reason.
    O(documents · scores · cells) time.

    Examples
    --------
    >>> from sinkwise.studies.prune_cells import Cell
    >>> sums = np.array([[[1.0], [3.0]], [[1.2], [3.1]], [[0.9], [3.2]]])
    >>> found = best_score(
    ...     Damages(("a", "b"), (Cell("zero", "model", 0.1),), sums, np.full(3, 10.0)), ["a", "b"])
    >>> found.score, found.not_told_apart, found.ranking.over_best.round(2).tolist()
    ('a', (), [1.0, 3.0])
    """
    names = [name for name in damages.scores if name in set(candidates)]
    places = [damages.place(name) for name in names]
    single = len(damages.tokens) < 2
    cells = _cells(damages, names, places)
    value = damages.value[places]
    complete = [i for i in range(len(names)) if not np.isnan(value[i]).any()]
    used: list[int] = []
    if complete:
        inner = value[complete]
        usable = (inner > 0).all(0) & np.isfinite(inner).any(0)
        used = np.flatnonzero(usable).tolist()
    ranking = _ranking(damages, [names[i] for i in complete], used, cells)
    score = None
    alike: tuple[str, ...] = ()
    if len(ranking) and np.isfinite(ranking.damage.iloc[0]):
        score = str(ranking.score.iloc[0])
        alike = tuple(ranking.score[~ranking.told_apart & (ranking.score != score)])
    left_out = tuple(cell.words for i, cell in enumerate(damages.cells) if i not in used)
    notes = []
    if single:
        notes.append("one document: no interval, so nothing tells the scores apart")
    if not complete:
        notes.append("no score has a point in every cell")
    elif not used:
        notes.append("in every cell some damage is not positive, so there is no geometric mean")
    elif score is None:
        notes.append("every score ruined the model in some cell")
    if complete and len(complete) < len(names):
        missing = ", ".join(names[i] for i in range(len(names)) if i not in complete)
        notes.append(f"compared in some cells only, hence not over all: {missing}")
    return BestScore(
        score,
        alike,
        cells,
        ranking,
        tuple(damages.cells[i].words for i in used),
        left_out,
        "; ".join(notes),
    )


def _cells(damages: Damages, names: Sequence[str], places: Sequence[int]) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for number, cell in enumerate(damages.cells):
        value = damages.value[places, number]
        finite = [i for i in range(len(names)) if np.isfinite(value[i])]
        if not finite:
            rows.append((*cell, None, *[np.nan] * 3, (), "no score left a usable model"))
            continue
        best = min(finite, key=lambda i: value[i])
        alike = []
        for i in finite:
            gap = damages.difference(places[i], places[best])
            low = gap.low[number]
            if i != best and not low > 0:  # NaN with one document: nothing is told apart
                alike.append(names[i])
        low, high = (end[places[best], number] for end in damages.interval[1:])
        rows.append((*cell, names[best], value[best], low, high, tuple(alike), ""))
    table = pd.DataFrame(rows, columns=BEST_COLUMNS)
    table["score"] = pd.Series([row[3] for row in rows], dtype=object)  # None stays None
    return table


def _ranking(
    damages: Damages, names: Sequence[str], used: Sequence[int], cells: pd.DataFrame
) -> pd.DataFrame:
    if not used:
        return pd.DataFrame(columns=RANKING_COLUMNS)
    logs = {name: damages.mean_log(damages.place(name), used) for name in names}
    order = sorted(names, key=lambda name: logs[name][0])
    best, best_without = logs[order[0]]
    rows = []
    for name in order:
        value, without = logs[name]
        own = np.exp(np.array(jackknife(value, without, damages.level)))
        if np.isinf(value):
            ratio = np.array([np.inf, np.nan, np.nan])
        elif name == order[0]:
            ratio = np.ones(3)
        else:
            gap = jackknife(value - best, without - best_without, damages.level)
            ratio = np.exp(np.array(gap))
        apart = bool(np.isinf(value) or ratio[1] > 1)
        rows.append((name, *own, *ratio, apart, int((cells.score == name).sum())))
    return pd.DataFrame(rows, columns=RANKING_COLUMNS)
