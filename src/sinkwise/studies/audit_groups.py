"""An audit's studies of what sets heads apart and which belong together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.studies.audit_base import AuditSums
from sinkwise.studies.biplot import attention_parts, biplot
from sinkwise.studies.channel_verdicts import (
    CHANNEL_VERDICT_COLUMNS,
    channel_verdicts,
    channels_alone,
)
from sinkwise.studies.channels import (
    CHANNEL_SUMS,
    CHANNELS,
    CHANNELS_BY_LAYER_COLUMNS,
    channel_share_matrices,
    channel_table,
    channel_table_by_layer,
)
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.half_clusterings import HalfClusterings
from sinkwise.studies.head_map import HeadMap, head_map
from sinkwise.studies.mantel import MANTEL_COLUMNS, sink_association
from sinkwise.studies.taxonomy import TAXONOMY_COLUMNS, TAXONOMY_NAMES, taxonomy_of
from sinkwise.studies.taxonomy_effects import EFFECT_COLUMNS, effects_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["GroupStudies"]


class GroupStudies(AuditSums):
    """An audit's studies of what sets heads apart and which belong together."""

    def channels(self) -> pd.DataFrame:
        """Share of what sets heads apart that is the sink, how sharply, and on which content.

        See :func:`~sinkwise.studies.channels.channel_table`.
        """
        return channel_table(self._channel_squares, level=self.level)

    def channels_by_layer(self) -> pd.DataFrame:
        """The shares of :meth:`channels` between the heads of a layer and all others.

        See :func:`~sinkwise.studies.channels.channel_table_by_layer`.  Empty for a single head.
        """
        if len(self.heads) < 2:
            return pd.DataFrame(columns=CHANNELS_BY_LAYER_COLUMNS)
        return channel_table_by_layer(self._channel_squares, self.heads, level=self.level)

    def channel_shares(self) -> xr.DataArray:
        """The shares of :meth:`channels` for every two heads, over ``channel, head, other``.

        See :func:`~sinkwise.studies.channels.channel_share_matrices`.
        """
        return channel_share_matrices(self._channel_squares, self.heads)

    def channel_verdicts(self) -> pd.DataFrame:
        """How far each measure's verdicts and clusters are those of one channel alone.

        See :func:`~sinkwise.studies.channel_verdicts.channel_verdicts`.  Empty for fewer than 3
        heads, or where heads differ in fewer than two channels.
        """
        return self._channel_verdicts.copy()

    def taxonomy(self) -> pd.DataFrame:
        """Clusterings of the heads under each convention, their ARI and its ceilings.

        See :func:`~sinkwise.studies.taxonomy.taxonomy`.  Empty for fewer than 3 heads.
        """
        return self._taxonomy.copy()

    def taxonomy_effects(self) -> pd.DataFrame:
        """Which part of a disagreement of clusterings is linkage, which scale, which the sink.

        See :func:`~sinkwise.studies.taxonomy_effects.taxonomy_effects`, and
        :func:`~sinkwise.studies.taxonomy_effects.what_follows` for it in words.  Empty for fewer
        than 3 heads.
        """
        return self._taxonomy_effects.copy()

    def sink_association(self, *, permutations: int = 999) -> pd.DataFrame:
        """How much of each distance is the gap in sink mass: Mantel correlations.

        See :func:`~sinkwise.studies.mantel.sink_association`.  Empty for fewer than 3 heads.
        """
        mass = self.profile.sink_mass.to_numpy()
        if len(self.heads) < 3 or not np.isfinite(mass).all() or not self._comparable_names:
            return pd.DataFrame(columns=MANTEL_COLUMNS)
        return sink_association(
            {name: pairs.distances() for name, pairs in self._comparable.items()},
            mass,
            permutations=permutations,
            seed=self.seed,
            heads=self.heads,
        )

    def head_map(self, name: str = "content", *, dimensions: int = 2) -> HeadMap:
        """Heads as points whose distances are as near as can be to those by one measure.

        Parameters
        ----------
        name
            A measure, such as ``"content"`` or ``"js_divergence/kept"``.
        dimensions
            Of the map.

        See :func:`~sinkwise.studies.head_map.head_map`.
        """
        if name not in self._store.pair_names:
            raise RowError(f"no measure {name!r}; there are {', '.join(self._store.pair_names)}")
        found = self._store.pairs(name).distances()
        return head_map(found, dimensions=dimensions, heads=self.heads)

    def biplot(self, *, scaling: Literal["form", "covariance"] = "form") -> xr.Dataset:
        """Heads as compositions of sink and content by offset: points, arrows, explained variance.

        See :func:`~sinkwise.studies.biplot.biplot` and
        :func:`~sinkwise.studies.biplot.attention_parts`.
        """
        return biplot(*attention_parts(self._store), self.heads, scaling=scaling)

    @property
    def _channel_squares(self) -> dict[str, DocumentPairs]:
        return {name: self._store.pairs(key) for name, key in CHANNEL_SUMS.items()}

    @cached_property
    def _clusterings(self) -> HalfClusterings | None:
        """Clusterings that several studies share; None where there is nothing to compare."""
        if len(self.heads) < 3 or len(self._comparable_names) < 2:
            return None
        alone = {name: self._store.pairs(name) for name in CHANNELS}
        usable = {n: d for n, d in alone.items() if np.isfinite(d.distances()).all()}
        found = self._comparable | {n: usable[n] for n in channels_alone(usable)}
        return HalfClusterings(
            found,
            len(self.heads),
            names=tuple(found),
            seed=self.seed,
            level=self.level,
            heads=self.heads,
        )

    @cached_property
    def _taxonomy(self) -> pd.DataFrame:
        if self._clusterings is None:
            return pd.DataFrame(columns=TAXONOMY_COLUMNS)
        names = tuple(n for n in TAXONOMY_NAMES if n in self._clusterings.names)
        return taxonomy_of(self._clusterings, names=names)

    @cached_property
    def _taxonomy_effects(self) -> pd.DataFrame:
        if self._clusterings is None:
            return pd.DataFrame(columns=EFFECT_COLUMNS)
        return effects_of(self._clusterings)

    @cached_property
    def _channel_verdicts(self) -> pd.DataFrame:
        shared = self._clusterings
        alone = tuple(n for n in CHANNELS if shared is not None and n in shared.names)
        if shared is None or len(alone) < 2:
            return pd.DataFrame(columns=CHANNEL_VERDICT_COLUMNS)
        usable = self._comparable
        return channel_verdicts(
            usable | {name: self._store.pairs(name) for name in alone},
            len(self.heads),
            names=tuple(usable),
            seed=self.seed,
            level=self.level,
            heads=self.heads,
            clusterings=shared,
        )
