"""The sums behind an audit, and the tables that every study of it reads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.audit_tables import CONVENTIONS, distance_dataset, profile_dataset
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.reversal_table import REVERSAL_NAMES

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["AuditSums"]


class AuditSums:
    """What the studies of an audit stand on.

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

    @property
    def store(self) -> DocumentStore:
        """The per-document sums behind every table, for studies over several audits."""
        return self._store

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

    @property
    def not_compared(self) -> tuple[str, ...]:
        """Measures by which some two heads have no distance, so that verdicts can't be had."""
        return tuple(n for n in REVERSAL_NAMES if n not in self._comparable_names)

    @property
    def declared_positions(self) -> tuple[int, ...]:
        """Positions of the declared sink, counted in real tokens; empty where they vary."""
        sink = self._card.get("sink")
        if sink == "first":
            return (0,)
        sink = [sink] if isinstance(sink, int) else sink
        fixed = isinstance(sink, list) and all(isinstance(p, int) and p >= 0 for p in sink)
        return tuple(sink) if fixed and sink else ()

    @cached_property
    def _comparable_names(self) -> tuple[str, ...]:
        """The measures that every two heads have: a verdict needs all three distances."""

        def known(name: str) -> bool:
            return bool(np.isfinite(self._store.pairs(name).distances()).all())

        return tuple(name for name in REVERSAL_NAMES if known(name))

    @property
    def _comparable(self) -> dict[str, DocumentPairs]:
        """Sums of the comparable measures, read anew: kept, they would fill the memory."""
        return {name: self._store.pairs(name) for name in self._comparable_names}

    def _two_measures(self, first: str, second: str) -> tuple[DocumentPairs, DocumentPairs]:
        for name in (first, second):
            if name not in self._store.pair_names:
                raise RowError(
                    f"no measure {name!r}; there are {', '.join(self._store.pair_names)}"
                )
        return self._store.pairs(first), self._store.pairs(second)
