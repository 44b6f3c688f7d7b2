"""How far log-ratio results move when the share that replaces zeros is ten times less or more."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata.arrays import Rows
from sinkwise.studies.distance_matrix import head_distances
from sinkwise.studies.reversal import reversal_rate

__all__ = ["zero_sensitivity"]

_METRICS = ("content", "content_angle", "aitchison")


def zero_sensitivity(rows: Rows) -> list[dict[str, Any]]:
    """Compare head distances under δ with those under δ/10 and 10 δ.

    Parameters
    ----------
    rows
        Rows whose zeros are replaced by a share δ.

    Returns
    -------
    list of dict
        One entry a metric and share: ``metric``, ``zeros`` (the other share), ``median_change``
        and ``largest_change`` (relative, over pairs of heads), ``reversal_rate`` (verdicts that
        flip; None for fewer than 3 heads), ``why`` where the other share is impossible.

    Notes
    -----
    Two more passes over the rows for the log-ratio metrics alone.

    Raises
    ------
    RowError
        If the rows have another zero rule.
    """
    if isinstance(rows.zeros, str):
        raise RowError(f"the zero rule is {rows.zeros!r}: there is no share to vary")
    base = {metric: head_distances(rows, metric=metric) for metric in _METRICS}
    found: list[dict[str, Any]] = []
    for share in (rows.zeros / 10, rows.zeros * 10):
        for metric in _METRICS:
            entry: dict[str, Any] = {"metric": metric, "zeros": share}
            try:
                other = head_distances(rows.with_zeros(share), metric=metric)
            except RowError as error:
                found.append({**entry, "why": str(error)})
                continue
            found.append(entry | _change(base[metric], other))
    return found


def _change(base: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    upper = np.triu_indices(len(base), 1)
    before, after = base[upper], other[upper]
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.abs(after - before) / before
    change = change[np.isfinite(change)]
    whole = np.isfinite(before).all() and np.isfinite(after).all()
    return {
        "median_change": float(np.median(change)) if change.size else None,
        "largest_change": float(change.max()) if change.size else None,
        "reversal_rate": float(reversal_rate(base, other)) if whole and len(base) > 2 else None,
    }
