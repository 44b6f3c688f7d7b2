"""An interchange study: what a model loses when heads attend with other heads' patterns.

Its file is described in :mod:`sinkwise.studies.interchange_json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.rowdata import HeadId
from sinkwise.studies.document_damage import damage_sums, document_outcome
from sinkwise.studies.exchange_damage import (
    CLUSTER_DAMAGE_COLUMNS,
    CORRELATION_COLUMNS,
    cluster_damage,
    damage_correlations,
)
from sinkwise.studies.exchange_records import ExchangePoint, Records, Singles
from sinkwise.studies.interchange_json import read, written

__all__ = ["CURVE_COLUMNS", "RANDOM", "ExchangePoint", "InterchangeStudy", "Singles"]

RANDOM = "random"
"""The metric of pairs that no distance chose."""

CURVE_COLUMNS = (
    "metric",
    "mode",
    "scope",
    "share",
    "seed",
    "heads",
    "value",
    "low",
    "high",
    "damage",
    "damage_low",
    "damage_high",
    "top1_agreement",
    "random_least",
    "random_most",
    "against_random",
)
"""Columns of :meth:`InterchangeStudy.curves`."""

SINGLE_COLUMNS = ("mode", "borrower", "donor", "damage", "low", "high")
"""First columns of :meth:`InterchangeStudy.single_pairs`; a column for each distance follows."""


@dataclass(frozen=True)
class InterchangeStudy:
    """Damage over the share of heads that exchange patterns, by what chose the pairs.

    Made by :func:`sinkwise.interchange_study`; every table is computed from the evaluation's
    records alone, so that it can be opened without the model.

    Attributes
    ----------
    heads
        In layer-major order; pairs are numbers into it.
    measure
        What the model was judged by: ``"perplexity"``, ``"cosine"`` or ``"kl"``.
    dense
        Records of the dense model, one a document.
    points
        The evaluated exchanges.
    singles
        Pairs exchanged one at a time, or ``None``.
    card
        ``calibration`` and ``evaluation``: conventions and protocol.
    seed
        Of the random pairs and the sample.
    level
        Two-sided level of all intervals, which are over documents.
    versions
        Of the libraries.

    Examples
    --------
    >>> heads = (HeadId(0, 0), HeadId(0, 1), HeadId(1, 0))
    >>> dense = [{"loss": 30.0, "tokens": 10}, {"loss": 28.0, "tokens": 10}]
    >>> after = [{"loss": 33.0, "tokens": 10}, {"loss": 29.0, "tokens": 10}]
    >>> study = InterchangeStudy(heads, "perplexity", dense, (
    ...     ExchangePoint("content", "split", "model", 0.3, None, ((2, 0),), after),))
    >>> study.curves()[["metric", "share", "heads", "damage"]].values.tolist()
    [['content', 0.3, 1, 0.2]]
    >>> study == InterchangeStudy.from_json(study.to_json())
    True
    """

    heads: tuple[HeadId, ...]
    measure: str
    dense: Records
    points: tuple[ExchangePoint, ...]
    singles: Singles | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    level: float = 0.95
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def dense_outcome(self) -> dict[str, float]:
        """``value``, ``low`` and ``high`` of the dense model; a damage is 0 there."""
        found = document_outcome(self.dense, self.dense, self.measure, level=self.level)
        return {key: found[key] for key in ("value", "low", "high")}

    def curves(self) -> pd.DataFrame:
        """Return what every exchange cost.

        Returns
        -------
        pandas.DataFrame
            A row per point: ``metric``, ``mode``, ``scope``, ``share``, ``seed`` (of random
            pairs); ``heads`` that borrow; ``value`` with ``low`` and ``high`` (perplexity, or the
            damage itself); ``damage`` with ``damage_low`` and ``damage_high`` (rise in
            log-perplexity over the dense model, in nats, or mean 1 - cosine, or divergence;
            paired by document); ``top1_agreement``; ``random_least`` and ``random_most``: damage
            of the best and the worst random pairs of the same mode, scope and share (NaN without
            any); ``against_random``: ``"below"``, ``"inside"`` or ``"above"`` that band, empty for
            random pairs and where there is no band.
        """
        return self._curves.copy()

    def random_band(self) -> pd.DataFrame:
        """Return the damage of random pairs: least, mean and most over the seeds.

        Returns
        -------
        pandas.DataFrame
            ``mode``, ``scope``, ``share``, ``seeds``, ``least``, ``mean``, ``most`` (damage), and
            ``value_least``, ``value_most``.
        """
        columns = ("mode", "scope", "share", "seeds", "least", "mean", "most")
        values = ("value_least", "value_most")
        rows = []
        drawn = self._curves[self._curves.metric == RANDOM]
        for key, group in drawn.groupby(["mode", "scope", "share"], sort=False):
            found = (len(group), group.damage.min(), group.damage.mean(), group.damage.max())
            rows.append((*key, *found, group.value.min(), group.value.max()))
        return pd.DataFrame(rows, columns=columns + values)

    def best(self) -> pd.DataFrame:
        """Return, for every mode, scope and share, the metric whose pairs did the least damage.

        Returns
        -------
        pandas.DataFrame
            Rows of :meth:`curves`, one a cell, random pairs left out.
        """
        chosen = self._curves[self._curves.metric != RANDOM]
        places = chosen.groupby(["mode", "scope", "share"], sort=False).damage.idxmin()
        return chosen.loc[places.dropna()].reset_index(drop=True)

    def single_pairs(self) -> pd.DataFrame:
        """Return the pairs exchanged one at a time.

        Returns
        -------
        pandas.DataFrame
            A row per mode and pair: ``mode``, ``borrower``, ``donor`` (labels), ``damage`` with
            ``low`` and ``high``, and a column per distance.  Empty without singles.
        """
        if self.singles is None:
            return pd.DataFrame(columns=SINGLE_COLUMNS)
        rows = []
        for mode, records in self.singles.documents.items():
            for number, ((borrower, donor), documents) in enumerate(
                zip(self.singles.pairs, records, strict=True)
            ):
                found = self.outcome(documents)["damage"]
                row = {
                    "mode": mode,
                    "borrower": self.heads[borrower].label,
                    "donor": self.heads[donor].label,
                    "damage": found["value"],
                    "low": found["low"],
                    "high": found["high"],
                }
                near = {name: values[number] for name, values in self.singles.distances.items()}
                rows.append(row | near)
        return pd.DataFrame(rows, columns=[*SINGLE_COLUMNS, *self.singles.distances])

    def correlations(self) -> pd.DataFrame:
        """Return the rank correlation of each distance with the damage of single exchanges.

        See :func:`~sinkwise.studies.exchange_damage.damage_correlations`; the largest first.
        Empty without singles.
        """
        return self._correlations.copy()

    def clusters(self) -> pd.DataFrame:
        """Return whether exchanges within a cluster do less damage than those between clusters.

        See :func:`~sinkwise.studies.exchange_damage.cluster_damage`.  Empty without singles.
        """
        return self._clusters.copy()

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``interchange.json``; NaN becomes None."""
        return written(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> InterchangeStudy:
        """Return the study kept in ``interchange.json``.

        Raises
        ------
        RunError
            If the content has another schema, or is damaged.
        """
        return cls(**read(content))

    @cached_property
    def _curves(self) -> pd.DataFrame:
        rows = [self._row(point) for point in self.points]
        band: dict[Any, list[float]] = {}
        for row in rows:
            if row["metric"] == RANDOM:
                band.setdefault(_cell(row), []).append(row["damage"])
        for row in rows:
            drawn = band.get(_cell(row), [float("nan")])
            row |= {"random_least": min(drawn), "random_most": max(drawn)}
            row["against_random"] = "" if row["metric"] == RANDOM else _against(row)
        table = pd.DataFrame(rows, columns=CURVE_COLUMNS)
        table["seed"] = pd.Series([point.seed for point in self.points], dtype=object)
        return table

    @cached_property
    def _correlations(self) -> pd.DataFrame:
        single = self.singles
        if single is None or not single.pairs:
            return pd.DataFrame(columns=CORRELATION_COLUMNS)
        tables = []
        for mode in single.documents:
            damages, tokens = self._damages(mode)
            borrowers = [borrower for borrower, _ in single.pairs]
            found = damage_correlations(
                damages, tokens, borrowers, single.distances, mode=mode, level=self.level
            )
            tables.append(found.sort_values("within", ascending=False, kind="stable"))
        return pd.concat(tables, ignore_index=True)

    @cached_property
    def _clusters(self) -> pd.DataFrame:
        single = self.singles
        if single is None or not single.pairs or not single.clusters:
            return pd.DataFrame(columns=CLUSTER_DAMAGE_COLUMNS)
        tables = []
        for mode in single.documents:
            damages, tokens = self._damages(mode)
            tables.append(
                cluster_damage(
                    damages, tokens, single.pairs, single.clusters, mode=mode, level=self.level
                )
            )
        return pd.concat(tables, ignore_index=True)

    def _damages(self, mode: str) -> tuple[np.ndarray, np.ndarray]:
        """Summed damage ``(documents, pairs)`` of the single exchanges, and tokens."""
        assert self.singles is not None
        found = [
            damage_sums(documents, self.dense, self.measure)
            for documents in self.singles.documents[mode]
        ]
        return np.stack([sums for sums, _ in found], axis=1), found[0][1]

    def outcome(self, documents: Records) -> dict[str, Any]:
        """Return what records say, as ``document_outcome`` of ``document_damage`` does."""
        return document_outcome(documents, self.dense, self.measure, level=self.level)

    def _row(self, point: ExchangePoint) -> dict[str, Any]:
        found = self.outcome(point.documents)
        damage = found["damage"]
        agreement = point.top1_agreement
        return {
            "metric": point.metric,
            "mode": point.mode,
            "scope": point.scope,
            "share": point.share,
            "seed": point.seed,
            "heads": len(point.pairs),
            "value": found["value"],
            "low": found["low"],
            "high": found["high"],
            "damage": damage["value"],
            "damage_low": damage["low"],
            "damage_high": damage["high"],
            "top1_agreement": float("nan") if agreement is None else agreement,
        }


def _cell(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["mode"], row["scope"], row["share"]


def _against(row: Mapping[str, Any]) -> str:
    if not np.isfinite(row["random_least"]):
        return ""
    if row["damage"] < row["random_least"]:
        return "below"
    return "above" if row["damage"] > row["random_most"] else "inside"
