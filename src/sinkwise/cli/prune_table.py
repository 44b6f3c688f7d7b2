"""A pruning study in a terminal: one line a cell, the best score, the warnings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sinkwise.cli.tables import text_table
from sinkwise.errors import RowError
from sinkwise.studies.head_scores.registry import DEFAULT
from sinkwise.studies.prune_cells import Cell
from sinkwise.studies.prune_study import PruneStudy

__all__ = ["MOST_LINES", "summary_table"]

MOST_LINES = 25
"""Lines of :func:`summary_table` at most."""

_SHOWN = {
    DEFAULT: "default",
    "js_divergence/kept": "JS kept",
    "michel": "Michel",
    "content": "content",
}
_MOST_CELLS = 12
_MOST_WARNINGS = 5


def summary_table(study: PruneStudy) -> str:
    """Return the study in at most 25 lines.

    The dense value with its interval; in each cell (operation, scope, share) the best score, and
    what the default, JS divergence with the sink kept, Michel's importance, the content distance
    and random sets did; the best score over all cells and which can't be told from it; the
    default against the best classical score; warnings.
    """
    return "\n".join(_lines(study))


def _lines(study: PruneStudy) -> Iterator[str]:
    dense = study.dense_outcome
    ends = f" ({_value(dense['low'])} to {_value(dense['high'])})"
    yield (
        f"Dense {study.metric} {_value(dense['value'])}{ends if np.isfinite(dense['low']) else ''}"
        f" on {len(study.dense)} held-out document{'' if len(study.dense) == 1 else 's'}; with "
        "heads off:"
    )
    if not study.records:
        return
    yield _cells(study)
    hidden = len(study.damages.cells) - _MOST_CELLS
    if hidden > 0:
        yield f"... and {hidden} more cells, in prune.json"
    best = study.best()
    if best.score is None:
        yield f"No score is best over all cells: {best.note}"
    else:
        alike = _first(best.not_told_apart, 4)
        yield (
            f"Least damage to this model over {len(best.cells_used)} of "
            f"{len(study.damages.cells)} cells: {best.score}"
            + (f"; not told apart: {alike}" if alike else "")
        )
    yield from _default(study)
    warnings = study.warnings()
    shown = warnings[: _MOST_WARNINGS if len(warnings) <= _MOST_WARNINGS else _MOST_WARNINGS - 1]
    yield from (f"Warning: {words}" for words in shown)
    if len(shown) < len(warnings):
        yield f"... and {len(warnings) - len(shown)} more warnings, in prune.json"


def _cells(study: PruneStudy) -> str:
    """One line a cell; scores that were not evaluated have no column."""
    curves, band = study.curves(), study.random_band()
    value = {
        (Cell(r.operation, r.scope, r.sparsity), r.score): r.value for r in curves.itertuples()
    }
    drawn = {
        Cell(r.operation, r.scope, r.sparsity): f"{_value(r.value_least)} to {_value(r.value_most)}"
        for r in band.itertuples()
    }
    columns = {name: words for name, words in _SHOWN.items() if name in study.damages.scores}
    rows = []
    for number, best in enumerate(study.best().cells.score[:_MOST_CELLS]):
        cell = study.damages.cells[number]
        row = [cell.words, best or "none", _value(value.get((cell, best), np.nan))]
        row += [_value(value.get((cell, name), np.nan)) for name in columns]
        rows.append([*row, *([drawn.get(cell, "-")] if drawn else [])])
    head = ["heads off", "best", "", *columns.values(), *(["random"] if drawn else [])]
    return text_table(head, rows)


def _default(study: PruneStudy) -> Iterator[str]:
    try:
        found = study.against_classical()
    except RowError:  # the default score, or every classical one, was not evaluated
        return
    if np.isnan(found.geometric_mean):
        return
    ends = f" ({found.low:.3g} to {found.high:.3g})" if np.isfinite(found.low) else ""
    words = f"Default's damage over the best classical score's: {found.geometric_mean:.3g}{ends}"
    if found.worst is not None:
        words += f"; worst {found.worst[1]:.3g} at {found.worst[0]}"
    yield words


def _value(value: float) -> str:
    if np.isnan(value):
        return "-"
    if np.isinf(value):
        return "infinite"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _first(names: tuple[str, ...], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
