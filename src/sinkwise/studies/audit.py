"""An audit: what the per-document sums say about heads, distances and conventions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.audit_summary import audit_summary
from sinkwise.studies.audit_tables import CONVENTIONS, distance_dataset, profile_dataset
from sinkwise.studies.bands import BAND_METRICS, BANDS_NEED, band_ranking, bands
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
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.half_clusterings import HalfClusterings
from sinkwise.studies.head_map import HeadMap, head_map
from sinkwise.studies.mantel import MANTEL_COLUMNS, sink_association
from sinkwise.studies.positional import PositionalNull, positional_null
from sinkwise.studies.regime import regime, sink_dispersion
from sinkwise.studies.reversal_places import REVERSAL_PLACES_COLUMNS, reversal_places
from sinkwise.studies.reversal_table import REVERSAL_COLUMNS, REVERSAL_NAMES, reversal_table
from sinkwise.studies.sink_set_table import sink_set_table
from sinkwise.studies.sinks import SinkEvidence, found_sinks
from sinkwise.studies.taxonomy import TAXONOMY_COLUMNS, TAXONOMY_NAMES, taxonomy_of
from sinkwise.studies.taxonomy_effects import EFFECT_COLUMNS, effects_of
from sinkwise.studies.worst_pairs import WORST_PAIRS_COLUMNS, worst_pairs

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Audit"]


class Audit:
    """Profiles, distances, reversals and taxonomy of a model's heads, with their conventions.

    Made by :func:`sinkwise.audit` and :func:`sinkwise.open_audit`; everything is computed from
    per-document sums when it is first asked for.

    Parameters
    ----------
    store
        Sums of every document.
    heads
        The heads in layer-major order.
    card
        The convention card.
    level
        Two-sided level of all intervals.
    seed
        Of the halves and samples behind the reversal table and the taxonomy.
    control
        What :meth:`repeated_tokens` returns.
    """

    def __init__(
        self,
        store: DocumentStore,
        heads: tuple[HeadId, ...],
        card: Mapping[str, Any],
        *,
        level: float = 0.95,
        seed: int = 0,
        control: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = store
        self.heads = heads
        self._card = dict(card)
        self.level = level
        self.seed = seed
        self._control = control

    def __repr__(self) -> str:
        model = self._card.get("model") or "arrays"
        return (
            f"<sinkwise.Audit of {model}: {len(self.heads)} heads, "
            f"{len(self._store.documents)} documents, {self._store.n_rows} rows>"
        )

    # -- tables ---------------------------------------------------------------------------

    @cached_property
    def profile(self) -> xr.Dataset:
        """What each head does: an ``xarray.Dataset`` over ``head``.

        Variables `sink_mass`, `virtual_sink_mass` (the part of it on a learned sink or another
        column that is no token), `value_weighted_sink_mass` (of weights times the norms of the
        values behind them; NaN for rows that came without a model), `sink_balance`,
        `content_dispersion` (and `_per_part`), `entropy` and its exact split, `content_entropy`,
        `share_over` over ``eps`` (share of rows whose sink mass is above it), `rows`; each with
        its interval as ``NAME_low`` and ``NAME_high`` (delete-one-document jackknife, NaN for
        fewer than 2 documents).  Entropies, balances and dispersions in nats.
        """
        return profile_dataset(self._store, self.heads, self.level)

    @cached_property
    def distances(self) -> xr.Dataset:
        """Mean distances between heads: an ``xarray.Dataset`` over ``head`` and ``other``.

        `content`, `content_angle`, `aitchison` and its channels `balance`, `dispersion` (mean
        absolute gaps), `direction`, `within_sink`; their root-mean-square forms ``NAME_rms``, in
        which ``aitchison² = balance² + dispersion² + direction² + within_sink²`` holds exactly;
        `cosine`, `js_divergence` and `euclidean` over ``convention``; and, with one sink key,
        `larger_content_mass` and `cosine_ceiling`, what the closed-form bands are made of.  NaN
        where two heads share no row.
        """
        return distance_dataset(self._store, self.heads)

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
        sums, counts = self._store.profile("sink_mass")
        with np.errstate(invalid="ignore"):  # NaN for a head without rows
            sink_mass = sums.sum(0) / counts.sum(0)
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

    def sinks(self) -> SinkEvidence:
        """Where the sinks are, by position, token, document and layer, whatever was declared.

        See :func:`~sinkwise.studies.sinks.found_sinks`.
        """
        return self._sinks

    def sink_sets(self) -> pd.DataFrame:
        """The same verdicts under every sink set that the rows were summed under.

        See :func:`~sinkwise.studies.sink_set_table.sink_set_table`.
        """
        return self._sink_sets.copy()

    def positional_null(self) -> PositionalNull:
        """How much of the content distances position alone explains, and what is left.

        See :func:`~sinkwise.studies.positional.positional_null`.
        """
        return self._positional_null

    def repeated_tokens(self) -> dict[str, Any] | None:
        """The control on one repeated token a document, None where it was not run.

        ``tokens``, ``length`` and ``sink_mass`` (one mean per head); see
        :func:`~sinkwise.capture.repeated_tokens.repeated_token_control`.
        """
        return None if self._control is None else dict(self._control)

    @property
    def declared_positions(self) -> tuple[int, ...]:
        """Positions of the declared sink, counted in real tokens; empty where they vary."""
        sink = self._card.get("sink")
        if sink == "first":
            return (0,)
        sink = [sink] if isinstance(sink, int) else sink
        fixed = isinstance(sink, list) and all(isinstance(p, int) and p >= 0 for p in sink)
        return tuple(sink) if fixed and sink else ()

    def sink_association(self, *, permutations: int = 999) -> pd.DataFrame:
        """How much of each distance is the gap in sink mass: Mantel correlations.

        See :func:`~sinkwise.studies.mantel.sink_association`.  Empty for fewer than 3 heads.
        """
        mass = self.profile.sink_mass.to_numpy()
        if len(self.heads) < 3 or not np.isfinite(mass).all():
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

    def regime(self) -> dict[str, Any] | None:
        """Whether sink masses alone warn that classical verdicts flip; None for a single head.

        See :func:`~sinkwise.studies.regime.regime`; what happened then says
        :func:`~sinkwise.studies.regime.regime_outcome`.
        """
        if len(self.heads) < 2:
            return None
        return regime(sink_dispersion(*self._store.profile("sink_mass"), level=self.level))

    def grid(self, name: str) -> xr.DataArray:
        """Return a profile variable as layers × heads, NaN where a layer has fewer heads.

        Parameters
        ----------
        name
            A variable of :attr:`profile` over ``head`` alone.

        Raises
        ------
        RowError
            If there is no such variable.
        """
        import xarray as xr

        if name not in self.profile or self.profile[name].dims != ("head",):
            known = sorted(str(n) for n, v in self.profile.items() if v.dims == ("head",))
            raise RowError(f"no profile variable {name!r} over heads; there are {', '.join(known)}")
        layers = sorted({h.layer for h in self.heads})
        width = 1 + max(h.index for h in self.heads)
        grid = np.full((len(layers), width), np.nan)
        for head, value in zip(self.heads, self.profile[name].to_numpy(), strict=True):
            grid[layers.index(head.layer), head.index] = value
        return xr.DataArray(
            grid, {"layer": layers, "index": np.arange(width)}, ("layer", "index"), name
        )

    # -- what leaves the audit --------------------------------------------------------------

    def card(self) -> dict[str, Any]:
        """Return the convention card: all that a reader needs to compare two results."""
        return {
            **self._card,
            "conventions": list(CONVENTIONS),
            "documents": len(self._store.documents),
            "rows": self._store.n_rows,
            "rows_excluded": self._store.excluded,
            "averaging": "rows pooled, each counting once; head distances are means over rows",
            "level": self.level,
        }

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json``; NaN becomes None."""
        return audit_summary(self, self._store)

    def report(self, path: str | Path) -> Path:
        """Write the report, one self-contained HTML page, and return its path.

        Raises
        ------
        MissingExtraError
            If Plotly or Jinja2 is absent: ``pip install "sinkwise[report]"``.
        """
        # the report stands above the studies; it is looked up by name, never imported from here
        page = importlib.import_module("sinkwise.report.page")
        page.write_report(self, path)
        return Path(path)

    @property
    def store(self) -> DocumentStore:
        """The per-document sums behind every table, for studies over several audits."""
        return self._store

    # -- parts ----------------------------------------------------------------------------

    def _means(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Mean distances by name, without those that no row was summed for."""
        found = {name: self._store.pairs(name) for name in names}
        return {n: pairs.distances() for n, pairs in found.items() if pairs.counts.any()}

    def _two_measures(self, first: str, second: str) -> tuple[DocumentPairs, DocumentPairs]:
        for name in (first, second):
            if name not in self._store.pair_names:
                raise RowError(
                    f"no measure {name!r}; there are {', '.join(self._store.pair_names)}"
                )
        return self._store.pairs(first), self._store.pairs(second)

    @property
    def _comparable(self) -> dict[str, DocumentPairs]:
        """The measures that every two heads have: a verdict needs all three distances."""
        found = {name: self._store.pairs(name) for name in REVERSAL_NAMES}
        return {n: pairs for n, pairs in found.items() if np.isfinite(pairs.distances()).all()}

    @property
    def not_compared(self) -> tuple[str, ...]:
        """Measures by which some two heads have no distance, so that verdicts can't be had."""
        return tuple(n for n in REVERSAL_NAMES if n not in self._comparable)

    @cached_property
    def _sinks(self) -> SinkEvidence:
        return found_sinks(
            self._store, self.heads, declared=self.declared_positions, level=self.level
        )

    @cached_property
    def _sink_sets(self) -> pd.DataFrame:
        return sink_set_table(self._store, len(self.heads), level=self.level, seed=self.seed)

    @cached_property
    def _positional_null(self) -> PositionalNull:
        return positional_null(self._store, self.heads, level=self.level)

    @cached_property
    def _reversals(self) -> pd.DataFrame:
        usable = self._comparable
        if len(self.heads) < 3 or len(usable) < 2:
            return pd.DataFrame(columns=REVERSAL_COLUMNS)
        return reversal_table(
            usable,
            len(self.heads),
            names=tuple(usable),
            seed=self.seed,
            level=self.level,
            heads=self.heads,
        )

    @property
    def _channel_squares(self) -> dict[str, DocumentPairs]:
        return {name: self._store.pairs(key) for name, key in CHANNEL_SUMS.items()}

    @cached_property
    def _clusterings(self) -> HalfClusterings | None:
        """Clusterings that several studies share; None where there is nothing to compare."""
        if len(self.heads) < 3 or len(self._comparable) < 2:
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
