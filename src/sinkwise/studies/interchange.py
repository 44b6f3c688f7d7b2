"""An interchange study: what a model loses when heads attend with other heads' patterns.

``interchange.json`` holds it (schema ``sinkwise.interchange/1``)::

    {"schema", "level", "seed", "heads": [[layer, index], ...],
     "dense": {"metric": "perplexity" | "cosine" | "kl", "value", "low", "high",
               "documents": [{"loss": total nats, "tokens"} or {"damage": mean, "tokens"}, ...]},
     "points": [{"metric": a distance or "random", "mode": "whole" | "split",
                 "scope": "model" | "layer", "share", "seed": null unless random,
                 "pairs": [[[layer, head] that borrows, [layer, head] that lends], ...],
                 "value", "low", "high", "damage": {"value", "low", "high"},
                 "documents": [...as above...], "top1_agreement": share of tokens | null}],
     "singles": {"pairs": [as above], "distances": {metric: [one number a pair]},
                 "clusters": [{"metric", "method", "labels": [one number a head]}],
                 "damages": {mode: [{"damage": {...}, "documents": [...]}, one a pair]}},
     "correlations": [...], "clusters": [...],   the tables of the same names
     "card": {"calibration": the audit's card, "evaluation": the protocol}, "versions"}

NaN is ``null`` everywhere.  Files in which `dense` and `documents` are as in ``prune.json``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.errors import RunError
from sinkwise.rowdata import HeadId
from sinkwise.studies.document_damage import damage_sums, document_outcome
from sinkwise.studies.exchange_damage import (
    CLUSTER_DAMAGE_COLUMNS,
    CORRELATION_COLUMNS,
    cluster_damage,
    damage_correlations,
)
from sinkwise.studies.exchanged_pairs import Pair
from sinkwise.studies.jsonable import jsonable

__all__ = ["CURVE_COLUMNS", "RANDOM", "SCHEMA", "ExchangePoint", "InterchangeStudy", "Singles"]

SCHEMA = "sinkwise.interchange/1"
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

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ExchangePoint:
    """One evaluated exchange.

    Attributes
    ----------
    metric
        The distance that chose the pairs, or ``"random"``.
    mode
        ``"whole"`` or ``"split"``.
    scope
        ``"model"`` or ``"layer"``.
    share
        Share of the heads that borrow.
    seed
        Of random pairs; ``None`` otherwise.
    pairs
        Numbers of borrower and donor.
    documents
        The evaluation's records, one a document.
    top1_agreement
        Share of tokens whose most likely label is the dense model's, or ``None``.
    """

    metric: str
    mode: str
    scope: str
    share: float
    seed: int | None
    pairs: tuple[Pair, ...]
    documents: Records
    top1_agreement: float | None = None


@dataclass(frozen=True)
class Singles:
    """Pairs exchanged one at a time.

    Attributes
    ----------
    pairs
        Numbers of borrower and donor.
    distances
        ``(pairs,)`` by metric.
    clusters
        ``(heads,)`` cluster numbers by metric and clustering method.
    documents
        By mode, one list of the evaluation's records a pair.
    """

    pairs: tuple[Pair, ...]
    distances: Mapping[str, Sequence[float]]
    clusters: Mapping[tuple[str, str], Sequence[int]]
    documents: Mapping[str, Sequence[Records]]


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
                found = self._outcome(documents)["damage"]
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
        return jsonable(
            {
                "schema": SCHEMA,
                "level": self.level,
                "seed": self.seed,
                "heads": [self._head(number) for number in range(len(self.heads))],
                "dense": {"metric": self.measure, **self.dense_outcome, "documents": self.dense},
                "points": [self._point(point) for point in self.points],
                "singles": None if self.singles is None else self._singles(self.singles),
                "correlations": self.correlations(),
                "clusters": self.clusters(),
                "card": self.card,
                "versions": self.versions,
            }
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> InterchangeStudy:
        """Return the study kept in ``interchange.json``.

        Raises
        ------
        RunError
            If the content has another schema, or is damaged.
        """
        schema = content.get("schema") if isinstance(content, Mapping) else None
        if schema != SCHEMA:
            raise RunError(
                f"interchange.json has the schema {schema!r}; this version reads {SCHEMA!r}. Run "
                "the study again, or open it with the version that wrote it"
            )
        try:
            return cls._read(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"interchange.json is damaged ({type(error).__name__}: {error}): run the study "
                "again with resume=True (--resume)"
            ) from error

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> InterchangeStudy:
        heads = tuple(HeadId(layer, index) for layer, index in content["heads"])
        number = {(head.layer, head.index): i for i, head in enumerate(heads)}

        def pairs(found: Any) -> tuple[Pair, ...]:
            return tuple((number[tuple(b)], number[tuple(d)]) for b, d in found)

        points = tuple(
            ExchangePoint(
                point["metric"],
                point["mode"],
                point["scope"],
                point["share"],
                point["seed"],
                pairs(point["pairs"]),
                point["documents"],
                point["top1_agreement"],
            )
            for point in content["points"]
        )
        single = content["singles"]
        singles = single and Singles(
            pairs(single["pairs"]),
            single["distances"],
            {(c["metric"], c["method"]): c["labels"] for c in single["clusters"]},
            {
                mode: [found["documents"] for found in records]
                for mode, records in single["damages"].items()
            },
        )
        dense = content["dense"]
        return cls(
            heads,
            dense["metric"],
            dense["documents"],
            points,
            singles,
            content["card"],
            content["seed"],
            content["level"],
            content["versions"],
        )

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

    def _outcome(self, documents: Records) -> dict[str, Any]:
        return document_outcome(documents, self.dense, self.measure, level=self.level)

    def _row(self, point: ExchangePoint) -> dict[str, Any]:
        found = self._outcome(point.documents)
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

    def _point(self, point: ExchangePoint) -> dict[str, Any]:
        return {
            "metric": point.metric,
            "mode": point.mode,
            "scope": point.scope,
            "share": point.share,
            "seed": point.seed,
            "pairs": self._labels(point.pairs),
            **self._outcome(point.documents),
            "documents": point.documents,
            "top1_agreement": point.top1_agreement,
        }

    def _singles(self, singles: Singles) -> dict[str, Any]:
        return {
            "pairs": self._labels(singles.pairs),
            "distances": singles.distances,
            "clusters": [
                {"metric": metric, "method": method, "labels": labels}
                for (metric, method), labels in singles.clusters.items()
            ],
            "damages": {
                mode: [
                    {"damage": self._outcome(documents)["damage"], "documents": documents}
                    for documents in records
                ]
                for mode, records in singles.documents.items()
            },
        }

    def _labels(self, pairs: Sequence[Pair]) -> list[list[list[int]]]:
        return [[self._head(borrower), self._head(donor)] for borrower, donor in pairs]

    def _head(self, number: int) -> list[int]:
        return [self.heads[number].layer, self.heads[number].index]


def _cell(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["mode"], row["scope"], row["share"]


def _against(row: Mapping[str, Any]) -> str:
    if not np.isfinite(row["random_least"]):
        return ""
    if row["damage"] < row["random_least"]:
        return "below"
    return "above" if row["damage"] > row["random_most"] else "inside"
