"""What a report reads of an audit, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sinkwise.errors import RowError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = [
    "AuditLike",
    "Snapshot",
    "condensed",
    "has_matrix",
    "layer_means",
    "level_words",
    "matrix_of",
]


class AuditLike(Protocol):
    """The attributes of an audit that figures and the page read."""

    @property
    def profile(self) -> xr.Dataset:
        """Per-head values over ``head``."""

    @property
    def distances(self) -> xr.Dataset:
        """Head distances over ``head`` and ``other``."""

    def reversals(self) -> pd.DataFrame:
        """One row per pair of metrics."""

    def taxonomy(self) -> pd.DataFrame:
        """One row per pair of clusterings."""

    def card(self) -> Mapping[str, Any]:
        """The convention card."""

    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``."""


@dataclass(frozen=True)
class Snapshot:
    """An audit whose tables were computed once; has the same attributes as the audit."""

    profile: xr.Dataset
    distances: xr.Dataset
    reversal_table: pd.DataFrame
    taxonomy_table: pd.DataFrame
    card_values: Mapping[str, Any]
    summary_values: Mapping[str, Any]

    @classmethod
    def of(cls, audit: AuditLike) -> Snapshot:
        """Read `audit`; a snapshot is returned as it is."""
        if isinstance(audit, cls):
            return audit
        return cls(
            audit.profile,
            audit.distances,
            audit.reversals(),
            audit.taxonomy(),
            audit.card(),
            audit.summary(),
        )

    def reversals(self) -> pd.DataFrame:
        """One row per pair of metrics; empty for fewer than three heads."""
        return self.reversal_table

    def taxonomy(self) -> pd.DataFrame:
        """One row per pair of clusterings; empty for fewer than three heads."""
        return self.taxonomy_table

    def card(self) -> Mapping[str, Any]:
        """The convention card."""
        return self.card_values

    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``."""
        return self.summary_values


def has_matrix(distances: xr.Dataset, name: str) -> bool:
    """Whether `distances` holds the matrix `name` with at least one finite pair of heads."""
    metric, _, convention = name.partition("/")
    if metric not in distances:
        return False
    if convention and convention not in distances["convention"].to_numpy():
        return False
    return bool(np.isfinite(condensed(matrix_of(distances, name))).any())


def matrix_of(distances: xr.Dataset, name: str) -> np.ndarray:
    """Return one matrix ``(heads, heads)``; `name` as in ``"content"`` or ``"cosine/kept"``.

    Raises
    ------
    RowError
        If the dataset holds no such matrix.
    """
    metric, _, convention = name.partition("/")
    if metric not in distances:
        known = sorted(map(str, distances.data_vars))
        raise RowError(
            f"no distance named {name!r} arrived; expected one of {known}, "
            'with "/kept" or "/dropped" behind cosine, js_divergence and euclidean'
        )
    array = distances[metric]
    if convention:
        array = array.sel(convention=convention)
    return np.asarray(array.to_numpy(), dtype=np.float64)


def condensed(matrix: np.ndarray) -> np.ndarray:
    """Return the pairs above the diagonal, ``(pairs,)``."""
    return matrix[np.triu_indices(matrix.shape[0], 1)]


def layer_means(snapshot: AuditLike) -> list[dict[str, float]]:
    """Return ``layer, mean, low, high`` of sink mass per layer; NaN bounds where none are known."""
    profile = snapshot.profile
    layer = profile["layer"].to_numpy()
    mass = profile["sink_mass"].to_numpy()
    listed = (snapshot.summary().get("sink_mass") or {}).get("by_layer") or []
    known = {e["layer"]: e for e in listed if isinstance(e, Mapping) and "layer" in e}
    means = []
    for number in np.unique(layer).tolist():
        entry = known.get(number, {})
        finite = mass[(layer == number) & np.isfinite(mass)]
        means.append(
            {
                "layer": number,
                "mean": float(finite.mean()) if finite.size else np.nan,
                "low": _float(entry.get("low")),
                "high": _float(entry.get("high")),
            }
        )
    return means


def level_words(audit: AuditLike) -> str:
    """Return the level of the audit's intervals, ``"95 %"`` where the card states none."""
    return f"{100 * float(audit.card().get('level') or 0.95):.4g} %"


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
