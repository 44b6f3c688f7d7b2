"""What a pruning study's tables and points hold, and how a point is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.studies.jsonable import jsonable

__all__ = [
    "CURVE_COLUMNS",
    "MEASURED",
    "PAIRED_COLUMNS",
    "POINT_COLUMNS",
    "point_note",
    "point_record",
]

POINT_COLUMNS = (
    "score",
    "kind",
    "classical",
    "operation",
    "scope",
    "sparsity",
    "seed",
    "heads",
    "removed",
    "value",
    "low",
    "high",
    "damage",
    "damage_low",
    "damage_high",
    "top1_agreement",
    "kl",
    "energy_ratio",
    "constant_share",
    "note",
)
"""Columns of :attr:`PruneStudy.points`."""

CURVE_COLUMNS = (
    "score",
    "kind",
    "classical",
    "operation",
    "scope",
    "sparsity",
    "heads",
    "value",
    "low",
    "high",
    "damage",
    "damage_low",
    "damage_high",
    "random_least",
    "random_median",
    "random_most",
    "against_random",
)
"""Columns of :meth:`PruneStudy.curves`."""

PAIRED_COLUMNS = ("operation", "scope", "sparsity", "first", "second", "difference", "low", "high")
"""Columns of :meth:`PruneStudy.paired`."""

_POINT_KEYS = ("score", "scope", "sparsity", "seed", "operation", "removed", "documents")
MEASURED = ("top1_agreement", "kl", "energy_ratio", "constant_share")


def point_record(point: Mapping[str, Any]) -> dict[str, Any]:
    """Return a point as it is kept.

    Raises
    ------
    RowError
        If it lacks a key.
    """
    missing = [key for key in _POINT_KEYS if key not in point]
    if missing:
        raise RowError(f"a point lacks {', '.join(missing)}; it holds {', '.join(point)}")
    found: dict[str, Any] = jsonable(
        {key: point[key] for key in _POINT_KEYS} | {key: point.get(key) for key in MEASURED}
    )
    return found


def point_note(outcome: Mapping[str, Any]) -> str:
    """Return what a reader has to know of a point's value, or nothing.

    Parameters
    ----------
    outcome
        ``value``, ``low``, ``high`` and ``damage``, as
        :func:`~sinkwise.studies.prune_intervals.outcome` gives them.
    """
    if np.isinf(outcome["damage"]["value"]):
        return "ruined: the loss is not finite"
    if np.isinf(outcome["value"]):
        return "the perplexity is too large a number"
    if np.isnan(outcome["low"]):
        return "one document: no interval"
    return ""
