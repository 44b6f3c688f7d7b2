"""Closed-form ceilings of the classical distances, with a model's own pairs of heads on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.matrices import condensed, has_matrix, matrix_of
from sinkwise.studies.bands import BAND_METRICS, pair_bounds

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["BAND_METRICS", "Band", "band", "row_ceiling"]

_ROUNDING = 1e-6  # relative and absolute: distances may have been summed from float32 products


@dataclass(frozen=True)
class Band:
    """Pairs of heads against their ceiling under one classical metric, sink kept.

    Attributes
    ----------
    larger_content_mass
        ``(pairs,)`` mean over rows of the larger content mass of the two heads, 1 minus the
        smaller sink mass.
    distance, ceiling
        ``(pairs,)`` the kept distance, and the mean over rows of its ceiling.
    first, second
        ``(pairs,)`` numbers of the two heads.
    """

    metric: str
    larger_content_mass: np.ndarray
    distance: np.ndarray
    ceiling: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @property
    def share_within(self) -> float:
        """Share of pairs at or under their ceiling, up to rounding."""
        return float(np.mean(self.distance <= self.ceiling * (1 + _ROUNDING) + _ROUNDING))

    @property
    def median_use(self) -> float:
        """Median of distance over ceiling: 1 means that the sink alone sets the scale."""
        above = self.ceiling > 0
        return float(np.median(self.distance[above] / self.ceiling[above])) if above.any() else 0.0

    def subsample(self, largest: int, seed: int = 0) -> Band:
        """Return at most `largest` pairs, drawn without replacement."""
        if self.distance.size <= largest:
            return self
        chosen = np.sort(
            np.random.default_rng(seed).choice(self.distance.size, largest, replace=False)
        )
        arrays = (self.larger_content_mass, self.distance, self.ceiling, self.first, self.second)
        return Band(self.metric, *(a[chosen] for a in arrays))


def band(distances: xr.Dataset, metric: str) -> Band | None:
    """Return the band of `metric`, or None where none holds (a sink set of several keys)."""
    needed = ("larger_content_mass", f"{metric}/kept")
    if not all(has_matrix(distances, name) for name in needed):
        return None
    mass = condensed(matrix_of(distances, "larger_content_mass"))
    distance = condensed(matrix_of(distances, f"{metric}/kept"))
    if metric == "cosine":
        if not has_matrix(distances, "cosine_ceiling"):
            return None
        ceiling = condensed(matrix_of(distances, "cosine_ceiling"))
    else:
        ceiling = row_ceiling(metric, mass)
    first, second = np.triu_indices(distances.sizes["head"], 1)
    finite = np.isfinite(mass) & np.isfinite(distance) & np.isfinite(ceiling)
    arrays = (mass, distance, ceiling, first, second)
    return Band(metric, *(a[finite] for a in arrays))


def row_ceiling(metric: str, content_mass: np.ndarray) -> np.ndarray:
    """Return the ceiling for one pair of rows whose larger content mass is `content_mass`.

    Euclid and JS are linear in it, so their ceilings hold for means over rows too; that of
    cosine is not, and must be averaged over rows itself.

    Examples
    --------
    >>> row_ceiling("cosine", np.array([0.2])).round(4)
    array([0.0588])
    """
    return pair_bounds(1 - content_mass)[metric]
