"""An audit's studies of reversed verdicts and of the bands that sinks allow."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sinkwise.studies.audit_base import AuditSums
from sinkwise.studies.bands import BAND_METRICS, BANDS_NEED, band_ranking, bands
from sinkwise.studies.reversal_places import REVERSAL_PLACES_COLUMNS, reversal_places
from sinkwise.studies.reversal_table import REVERSAL_COLUMNS, reversal_table
from sinkwise.studies.worst_pairs import WORST_PAIRS_COLUMNS, worst_pairs

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["ReversalStudies"]


class ReversalStudies(AuditSums):
    """An audit's studies of reversed verdicts and of the bands that sinks allow."""

    def reversals(self) -> pd.DataFrame:
        """How often two measures disagree on which of two heads is nearer to a third.

        One row per pair of (metric, convention): `first`, `second`, `rate` (exact, over all
        triples), `resolved_rate` and `resolved_share`, `low`, `high`, `bias`,
        `smallest_detectable`, `sampled_rate` (the 50,000-triple protocol) and `note`; the rate
        weighted by margin, the share of heads whose nearest neighbour changes and the overlap of
        their nearest neighbours; see
        :func:`~sinkwise.studies.reversal_table.reversal_table`.  Empty for fewer than 3 heads.
        """
        return self._reversals.copy()

    def reversal_places(
        self, first: str = "js_divergence/kept", second: str = "js_divergence/dropped"
    ) -> pd.DataFrame:
        """Where two measures reverse verdicts: by layer distance, and by gap in sink mass.

        See :func:`~sinkwise.studies.reversal_places.reversal_places`.  Empty for fewer than 3
        heads.

        Raises
        ------
        RowError
            If there is no such measure, or some two heads have no distance by it.
        """
        one, two = self._two_measures(first, second)
        if len(self.heads) < 3:
            return pd.DataFrame(columns=REVERSAL_PLACES_COLUMNS)
        sink_mass = self.profile.sink_mass.to_numpy()
        distances = one.distances(), two.distances()
        return reversal_places(*distances, self.heads, sink_mass, seed=self.seed)

    def worst_pairs(
        self,
        first: str = "js_divergence/kept",
        second: str = "js_divergence/dropped",
        n: int = 10,
    ) -> pd.DataFrame:
        """Pairs of heads that are neighbours by one measure and strangers by the other.

        See :func:`~sinkwise.studies.worst_pairs.worst_pairs`.  Empty for fewer than 3 heads.

        Raises
        ------
        RowError
            If there is no such measure, or some two heads have no distance by it.
        """
        one, two = self._two_measures(first, second)
        if len(self.heads) < 3:
            return pd.DataFrame(columns=WORST_PAIRS_COLUMNS)
        return worst_pairs(
            one, two, len(self.heads), n, names=(first, second), seed=self.seed, heads=self.heads
        )

    def bands(self) -> xr.Dataset:
        """Kept distances of every two heads beside the largest their sink masses allow.

        See :func:`~sinkwise.studies.bands.bands`.

        Raises
        ------
        RowError
            With sinks of several keys: the closed forms do not hold for them.
        """
        return bands(self._means(BANDS_NEED), len(self.heads))

    def band_ranking(self) -> pd.DataFrame:
        """How much of the ranking of head pairs is left where both sinks are large.

        See :func:`~sinkwise.studies.bands.band_ranking`.

        Raises
        ------
        RowError
            With sinks of several keys: the closed forms do not hold for them.
        """
        dropped = tuple(f"{metric}/dropped" for metric in BAND_METRICS)
        return band_ranking(self._means(BANDS_NEED + dropped), len(self.heads), seed=self.seed)

    def _means(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Mean distances by name, without those that no row was summed for."""
        found = {name: self._store.pairs(name) for name in names}
        return {n: pairs.distances() for n, pairs in found.items() if pairs.counts.any()}

    @cached_property
    def _reversals(self) -> pd.DataFrame:
        names = self._comparable_names
        if len(self.heads) < 3 or len(names) < 2:
            return pd.DataFrame(columns=REVERSAL_COLUMNS)
        return reversal_table(
            self._comparable,
            len(self.heads),
            names=names,
            seed=self.seed,
            level=self.level,
            heads=self.heads,
        )
