"""Entropy over checkpoints: did the content sharpen, or did only the sink grow?"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sinkwise.accumulate.intervals import Interval, jackknife_mean
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.collapse_json import written
from sinkwise.studies.collapse_records import Checkpoint, EntropyShift
from sinkwise.studies.collapse_rows import CollapseStore
from sinkwise.studies.collapse_sums import (
    CHANNELS,
    HeadSums,
    change_sums,
    checkpoint_sums,
    usable_rows,
)
from sinkwise.studies.collapse_verdicts import (
    mostly,
    share_of_change,
    verdict,
    words,
    words_of_shares,
)

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Checkpoint", "CollapseStudy", "EntropyShift", "check_bounds"]

_CURVES = (
    "entropy",
    "entropy_sink",
    "entropy_content",
    "entropy_within_sink",
    "sink_mass",
    "content_entropy",
    "content_evenness",
)
_PARTS = ("total", *CHANNELS, "sink_mass", "content_entropy")


def check_bounds(level: float, peaked: float, uniform: float) -> None:
    """Refuse bounds that a study can't have.

    Raises
    ------
    RowError
        Naming the one that is wrong.
    """
    if not 0 <= peaked < uniform <= 1:
        raise RowError(
            f"peaked={peaked}, uniform={uniform}: expected bounds on H(π)/log m with 0 <= peaked < "
            "uniform <= 1"
        )
    if not 0 < level < 1:
        raise RowError(f"level={level!r}, expected a number between 0 and 1, such as 0.95")


class CollapseStudy:
    """Entropy of the same rows at several checkpoints, and its changes by channel.

    Made by :func:`sinkwise.collapse_study` and :func:`sinkwise.open_collapse`.  Means pool rows,
    each counting once; intervals are over documents (delete-one jackknife, t quantiles).  All
    checkpoints are measured on one set of rows.

    Parameters
    ----------
    store
        The rows of every checkpoint as parts.
    checkpoints
        In the order of training, at least two.
    heads
        In layer-major order.
    card
        Conventions, and for each checkpoint what is known of it.
    level
        Two-sided level of all intervals.
    peaked, uniform
        A head's content is flagged as peaked where the mean over rows of ``H(π) / log m`` (m
        content keys) is below `peaked`, and as uniform where it is above `uniform`.
    versions
        Of the libraries.

    Raises
    ------
    RowError
        For fewer than two checkpoints, names that repeat, or no row that all of them can use.
    """

    def __init__(
        self,
        store: CollapseStore,
        checkpoints: Sequence[Checkpoint],
        heads: tuple[HeadId, ...],
        card: Mapping[str, Any],
        *,
        level: float = 0.95,
        peaked: float = 0.1,
        uniform: float = 0.95,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        names = [checkpoint.name for checkpoint in checkpoints]
        if len(names) < 2 or len(set(names)) < len(names):
            raise RowError(
                f"checkpoints {names} arrived, expected two or more of different names: a change "
                "is between two"
            )
        check_bounds(level, peaked, uniform)
        self._store = store
        self._checkpoints = tuple(checkpoints)
        self.heads = heads
        self._card = dict(card)
        self.level = level
        self.peaked = peaked
        self.uniform = uniform
        self.versions = dict(versions or {})
        self._changes: dict[tuple[str, str], HeadSums] = {}
        if not any(rows.any() for rows in self._usable.values()):
            raise RowError(
                "no row is left that every checkpoint can use: a row needs its sink and two "
                "content keys in sight, and content above zero"
            )

    def __repr__(self) -> str:
        return (
            f"<sinkwise.CollapseStudy: {len(self._checkpoints)} checkpoints, {len(self.heads)} "
            f"heads, {len(self._usable)} documents, {self.n_rows} rows>"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the checkpoints, in order."""
        return tuple(checkpoint.name for checkpoint in self._checkpoints)

    @property
    def n_rows(self) -> int:
        """Rows that count, one head and one query each."""
        return int(sum(rows.sum() for rows in self._usable.values()))

    @cached_property
    def checkpoints(self) -> pd.DataFrame:
        """What the rows are like at each checkpoint, a row each.

        ``name``, ``step``; means over rows with their intervals as ``NAME_low`` and
        ``NAME_high``: ``entropy`` and its exact split ``entropy_sink + entropy_content +
        entropy_within_sink``, ``sink_mass``, ``content_entropy`` (all in nats but the mass),
        ``content_evenness`` (H(π)/log m, between 0 and 1); ``peaked_heads`` and
        ``uniform_heads``: how many heads :meth:`extremes` flags.
        """
        rows = []
        extremes = self.extremes()
        for checkpoint in self._checkpoints:
            found: dict[str, Any] = {"name": checkpoint.name, "step": checkpoint.step}
            sums = self._at[checkpoint.name]
            for name in _CURVES:
                pooled = self._pooled(sums.sums[name].sum(-1), sums.rows.sum(-1))
                found |= {
                    name: pooled.value,
                    f"{name}_low": pooled.low,
                    f"{name}_high": pooled.high,
                }
            flagged = extremes[extremes.checkpoint == checkpoint.name].kind
            for kind in ("peaked", "uniform"):
                found[f"{kind}_heads"] = int((flagged == kind).sum())
            rows.append(found)
        table = pd.DataFrame(rows)
        steps = [checkpoint.step for checkpoint in self._checkpoints]
        table["step"] = pd.array(steps, dtype="Int64")
        return table

    def change(self, first: str, second: str) -> EntropyShift:
        """Return the attributed change between any two checkpoints, by their names.

        Symmetric: from `second` to `first` every value has the opposite sign.

        Raises
        ------
        RowError
            If there is no such checkpoint, or both are one.
        """
        sums = self._sums(first, second)
        pooled = {name: value.sum(-1) for name, value in sums.sums.items()}
        rows = sums.rows.sum(-1)
        parts = {
            name: Interval(*(float(end) for end in self._pooled(pooled[name], rows)))
            for name in _PARTS
        }
        shares = {
            name: share_of_change(pooled[name], pooled["total"], rows, self.level)
            for name in CHANNELS
        }
        judged = parts["sink"], parts["content"], parts["sink_mass"]
        return EntropyShift(
            first,
            second,
            **parts,
            shares=shares,
            verdict=verdict(*judged),
            mostly=mostly(shares),
            words=f"{words(*judged)} {words_of_shares(shares)}".strip(),
            residual=sums.residual,
        )

    def changes(self) -> tuple[EntropyShift, ...]:
        """Return the changes between consecutive checkpoints."""
        return tuple(self.change(*pair) for pair in pairwise(self.names))

    @property
    def overall(self) -> EntropyShift:
        """The change from the first checkpoint to the last."""
        return self.change(self.names[0], self.names[-1])

    def by_head(self, first: str | None = None, second: str | None = None) -> pd.DataFrame:
        """Return the change of every head.

        Parameters
        ----------
        first, second
            Names of checkpoints; the first and the last where None.

        Returns
        -------
        pandas.DataFrame
            A row a head: ``label``, ``layer``, ``index``; ``total``, ``sink``, ``content``,
            ``within_sink``, ``sink_mass`` and ``content_entropy``, each with ``_low`` and
            ``_high``; ``verdict``; ``rows``.  NaN for a head without rows.

        Notes
        -----
        Each verdict stands on intervals of its own at :attr:`level`.  Of heads that did not change
        about ``1 - level`` in each channel are called changed by chance.
        """
        sums = self._sums(first or self.names[0], second or self.names[-1])
        table = self._judged(sums.sums, sums.rows)
        table.insert(0, "label", [head.label for head in self.heads])
        table.insert(1, "layer", [head.layer for head in self.heads])
        table.insert(2, "index", [head.index for head in self.heads])
        return table

    def by_layer(self, first: str | None = None, second: str | None = None) -> pd.DataFrame:
        """Return the change of every layer, rows pooled over its heads; as :meth:`by_head`."""
        sums = self._sums(first or self.names[0], second or self.names[-1])
        layers = sorted({head.layer for head in self.heads})
        columns = [[h.layer == layer for h in self.heads] for layer in layers]

        def pooled(values: np.ndarray) -> np.ndarray:
            return np.stack([values[:, chosen].sum(-1) for chosen in columns], axis=-1)

        table = self._judged({n: pooled(v) for n, v in sums.sums.items()}, pooled(sums.rows))
        table.insert(0, "layer", layers)
        return table

    def grid(
        self, name: str = "total", first: str | None = None, second: str | None = None
    ) -> xr.DataArray:
        """Return a column of :meth:`by_head` as layers × heads, NaN where a layer has fewer."""
        import xarray as xr

        table = self.by_head(first, second)
        if name not in _PARTS:
            raise RowError(f"no part {name!r} of a change; there are {', '.join(_PARTS)}")
        layers = sorted(set(table.layer))
        width = 1 + int(table["index"].max())
        grid = np.full((len(layers), width), np.nan)
        for row in table.itertuples():
            grid[layers.index(row.layer), row.index] = getattr(row, name)
        coordinates = {"layer": layers, "index": np.arange(width)}
        return xr.DataArray(grid, coordinates, ("layer", "index"), name)

    def extremes(self) -> pd.DataFrame:
        """Return heads whose content is at an extreme, low and high apart, at each checkpoint.

        Returns
        -------
        pandas.DataFrame
            A row per checkpoint and head: ``checkpoint``, ``step``, ``label``, ``layer``,
            ``index``; ``kind``: ``"peaked"`` (content entropy near 0, what collapse means) or
            ``"uniform"`` (near its maximum, log m); ``content_evenness`` with ``low`` and
            ``high``; ``rows_share``: the share of its rows beyond the bound.
        """
        rows = []
        for checkpoint in self._checkpoints:
            sums = self._at[checkpoint.name]
            even = self._pooled(sums.sums["content_evenness"], sums.rows)
            number = np.maximum(sums.rows.sum(0), 1)
            for i, head in enumerate(self.heads):
                value = float(even.value[i])
                kind = (
                    "peaked" if value < self.peaked else "uniform" if value > self.uniform else None
                )
                if kind is not None:
                    share = sums.sums[f"{kind}_rows"][:, i].sum() / number[i]
                    place = (checkpoint.name, checkpoint.step, head.label, head.layer, head.index)
                    rows.append(
                        (*place, kind, value, float(even.low[i]), float(even.high[i]), float(share))
                    )
        columns = ["checkpoint", "step", "label", "layer", "index", "kind"]
        columns += ["content_evenness", "low", "high", "rows_share"]
        table = pd.DataFrame(rows, columns=columns)
        table["step"] = pd.array(list(table["step"]), dtype="Int64")
        return table

    def card(self) -> dict[str, Any]:
        """Return the convention card."""
        excluded: dict[str, int] = {}
        without = 0
        for document in self._store.documents:
            layout = self._store.layout(document)
            for reason, number in layout.excluded.items():
                excluded[reason] = excluded.get(reason, 0) + int(number)
            without += int(layout.valid.sum() - self._usable[document].sum())
        if without:
            excluded["no_content_at_some_checkpoint"] = without
        return {
            **self._card,
            "heads": len(self.heads),
            "documents": len(self._usable),
            "rows": self.n_rows,
            "rows_excluded": excluded,
            "averaging": "rows pooled over heads, queries and documents, each counting once",
            "attribution": "symmetric, row by row; its channels add up to the change",
            "units": "nats",
            "level": self.level,
            "peaked": self.peaked,
            "uniform": self.uniform,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``collapse.json``; NaN becomes None."""
        return written(self)

    def report(self, path: str | Path) -> Path:
        """Write the report, one self-contained HTML page, and return its path.

        Raises
        ------
        MissingExtraError
            If Plotly or Jinja2 is absent: ``pip install "sinkwise[report]"``.
        """
        # the report stands above the studies; it is looked up by name, never imported from here
        page = importlib.import_module("sinkwise.report.collapse")
        page.write_collapse_report(self, path)
        return Path(path)

    @cached_property
    def _usable(self) -> dict[int, np.ndarray]:
        return usable_rows(self._store, self.names)

    @cached_property
    def _at(self) -> dict[str, HeadSums]:
        bounds = {"peaked": self.peaked, "uniform": self.uniform}
        return {n: checkpoint_sums(self._store, n, self._usable, **bounds) for n in self.names}

    def _sums(self, first: str, second: str) -> HeadSums:
        for name in (first, second):
            if name not in self.names:
                raise RowError(f"no checkpoint {name!r}; there are {', '.join(self.names)}")
        if first == second:
            raise RowError(f"a change is between two checkpoints; {first!r} came twice")
        if (first, second) not in self._changes:
            self._changes[first, second] = change_sums(self._store, first, second, self._usable)
        return self._changes[first, second]

    def _pooled(self, sums: np.ndarray, rows: np.ndarray) -> Interval:
        return jackknife_mean(sums, rows, self.level)

    def _judged(self, sums: Mapping[str, np.ndarray], rows: np.ndarray) -> pd.DataFrame:
        """Intervals and verdicts of columns: ``(documents, columns)`` each."""
        parts = {name: self._pooled(sums[name], rows) for name in _PARTS}
        table: dict[str, Any] = {}
        for name, found in parts.items():
            table |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        judged = []
        for i in range(rows.shape[1]):
            sink, content, mass = (
                Interval(*(end[i] for end in parts[name]))
                for name in ("sink", "content", "sink_mass")
            )
            judged.append(verdict(sink, content, mass))
        return pd.DataFrame({**table, "verdict": judged, "rows": rows.sum(0).astype(int)})
