"""A pruning study: what a model loses when heads chosen by several scores go.

``prune.json`` holds it (schema ``sinkwise.prune/1``)::

    {"schema", "level", "seed",
     "dense": {"metric": "perplexity" | "cosine" | "kl", "value", "low", "high",
               "documents": [{"loss": total nats, "tokens"} or {"damage": mean, "tokens"}, ...]},
     "points": [{"score", "scope": "model" | "layer", "sparsity", "seed": null unless random,
                 "operation": "zero" | "mean" | "remove", "removed": [[layer, head], ...],
                 "metric", "value", "low", "high", "damage": {"value", "low", "high"},
                 "documents": [...as above...], "top1_agreement": share of tokens | null,
                 "kl": nats | null, "energy_ratio", "constant_share", "note"}],
     "scores": [{"name", "title", "kind", "classical", "parameters"}],
     "best": {"score", "not_told_apart", "cells", "ranking", ...},
     "predicted": {"verdict", "why"} | null, "happened": {...},
     "against_classical": {...} | null, "warnings": [text, ...],
     "card": {"calibration": the audit's card, "evaluation": the protocol, ...}, "versions"}

What is not finite is ``null`` everywhere; `note` says why a point's value is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.errors import RowError, RunError
from sinkwise.studies.document_damage import Documents
from sinkwise.studies.head_scores.registry import DEFAULT
from sinkwise.studies.jsonable import jsonable
from sinkwise.studies.prune_best import BestScore, best_score
from sinkwise.studies.prune_cells import Damages
from sinkwise.studies.prune_classical import AgainstClassical, against_classical
from sinkwise.studies.prune_columns import (
    CURVE_COLUMNS,
    MEASURED,
    PAIRED_COLUMNS,
    POINT_COLUMNS,
    point_note,
    point_record,
)
from sinkwise.studies.prune_intervals import outcome
from sinkwise.studies.prune_random import CELL, band_warnings, random_band, side_of_band
from sinkwise.studies.prune_regime import what_happened

__all__ = ["CURVE_COLUMNS", "POINT_COLUMNS", "SCHEMA", "PruneStudy"]

SCHEMA = "sinkwise.prune/1"

_RANDOM = "random"
_NUMBERS = ("value", "low", "high", "damage", "damage_low", "damage_high")
"""Columns of numbers in a table without rows too."""


@dataclass(frozen=True)
class PruneStudy:
    """Damage over the share of heads that are gone, by the score that chose them.

    Made by :func:`sinkwise.prune_study`; every number is computed from the evaluation's records
    of single documents, so that it can be opened without the model.

    Attributes
    ----------
    metric
        What the model was judged by: ``"perplexity"`` (exp of the total loss over the predicted
        tokens), ``"cosine"`` (mean 1 - cosine to the dense states) or ``"kl"`` (mean divergence
        from the dense labels, nats).
    dense
        Records of the dense model, one a document.
    records
        The evaluated points, as ``prune.json`` keeps them save for what is computed.
    scores
        ``{"name", "title", "kind", "classical", "parameters"}`` of every score.
    card
        ``calibration`` and ``evaluation``: conventions and protocol.
    predicted
        ``{"verdict", "why"}`` of the regime rule, from the calibration documents alone.
    seed
        Of the random sets and the calibration.
    level
        Two-sided level of all intervals, which are over documents.
    versions
        Of the libraries.

    Notes
    -----
    *Damage* is the rise in log-perplexity over the dense model, in nats a token, paired by
    document; or the mean 1 - cosine, or divergence, to the dense output.  It can be negative: the
    model got better.  A model whose loss is not finite at some document is *ruined*: its value and
    damage are infinite, without an interval, and it comes last in every ranking.  With a single
    document there are no intervals, and nothing tells scores apart.

    Examples
    --------
    >>> dense = [{"loss": 30.0, "tokens": 10}, {"loss": 28.0, "tokens": 10}]
    >>> after = [{"loss": 33.0, "tokens": 10}, {"loss": 29.0, "tokens": 10}]
    >>> study = PruneStudy.from_points(
    ...     dense={"metric": "perplexity", "documents": dense},
    ...     points=[{"score": "michel", "scope": "model", "sparsity": 0.1, "seed": None,
    ...              "operation": "zero", "removed": [[0, 1]], "documents": after}],
    ...     scores=[{"name": "michel", "title": "smallest gradient first", "kind": "single",
    ...              "classical": True, "parameters": {}}],
    ...     card={}, predicted=None, seed=0, versions={})
    >>> study.points[["score", "heads", "damage"]].values.tolist()
    [['michel', 1, 0.2]]
    >>> study == PruneStudy.from_json(study.to_json())
    True
    """

    metric: str
    dense: Documents
    records: tuple[Mapping[str, Any], ...]
    scores: tuple[Mapping[str, Any], ...]
    card: Mapping[str, Any] = field(default_factory=dict)
    predicted: Mapping[str, Any] | None = None
    seed: int = 0
    level: float = 0.95
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_points(
        cls,
        *,
        dense: Mapping[str, Any],
        points: Iterable[Mapping[str, Any]],
        scores: Iterable[Mapping[str, Any]],
        card: Mapping[str, Any],
        predicted: Mapping[str, Any] | None,
        seed: int,
        versions: Mapping[str, str],
        level: float = 0.95,
    ) -> PruneStudy:
        """Return the study of evaluated points.

        Parameters
        ----------
        dense
            ``metric`` and ``documents`` of the dense model.
        points
            ``score``, ``scope``, ``sparsity``, ``seed``, ``operation``, ``removed`` and
            ``documents`` of each, and what was measured beside: ``top1_agreement``, ``kl``,
            ``energy_ratio``, ``constant_share``.  A document's record is ``{"loss": summed nats,
            "tokens"}`` for perplexity, else ``{"damage": mean, "tokens"}``; ``None`` stands for
            what is not finite.
        scores, card, predicted, seed, versions, level
            See the attributes.

        Raises
        ------
        RowError
            If a point lacks a key, was measured on other documents than the dense model, is given
            twice, or names a score that is not among `scores`; if the dense model's own loss is
            not finite.
        """
        known = tuple(jsonable(list(scores)))
        records = tuple(point_record(point) for point in points)
        documents = jsonable(list(dense["documents"]))
        study = cls(
            str(dense["metric"]),
            documents,
            records,
            known,
            jsonable(dict(card)),
            None if predicted is None else jsonable(dict(predicted)),
            seed,
            level,
            jsonable(dict(versions)),
        )
        study._check()
        return study

    @cached_property
    def dense_outcome(self) -> dict[str, float]:
        """``value``, ``low`` and ``high`` of the dense model; a damage is 0 there."""
        found = self._outcome(self.dense)
        return {key: found[key] for key in ("value", "low", "high")}

    @property
    def points(self) -> pd.DataFrame:
        """Every evaluated set of heads, a row each.

        ``score``, its ``kind`` and whether it is ``classical``; ``operation``, ``scope``,
        ``sparsity``; ``seed`` (of random sets, else None); how many ``heads`` went and which
        (``removed``, in the order they went); ``value`` with ``low`` and ``high`` in the study's
        metric; ``damage`` with ``damage_low`` and ``damage_high``, paired with the dense model;
        ``top1_agreement``: share of tokens whose most likely label is the dense model's; ``kl``;
        ``energy_ratio``: energy of the set's joint output over the sum of its heads' (above 1 the
        losses add up); ``constant_share`` of that energy which is the same at every token;
        ``note``.  NaN where something was not measured.
        """
        return self._points.copy()

    def random_band(self) -> pd.DataFrame:
        """Return least, median and most damage of the random sets, by cell.

        See :func:`~sinkwise.studies.prune_random.random_band`.
        """
        drawn = self._points[self._points.kind == _RANDOM]
        return random_band(drawn)

    def curves(self) -> pd.DataFrame:
        """Return what every score did in every cell, beside the random sets there.

        Returns
        -------
        pandas.DataFrame
            A row per score (random ones left out), operation, scope and sparsity: ``score``,
            ``kind``, ``classical``, ``operation``, ``scope``, ``sparsity``, ``heads``; ``value``,
            ``low``, ``high``; ``damage``, ``damage_low``, ``damage_high``; ``random_least``,
            ``random_median``, ``random_most``: damage of random sets over the seeds (NaN without
            any); ``against_random``: ``"below"``, ``"inside"`` or ``"above"`` that band, empty
            without one.
        """
        return self._curves.copy()

    def against_classical(self, score: str = DEFAULT) -> AgainstClassical:
        """Return a score's damage over that of the best classical score in each cell.

        Classical are the scores in use before this library, relative output norm and AHON-LN
        among them; random sets never.  See
        :func:`~sinkwise.studies.prune_classical.against_classical`.

        Raises
        ------
        RowError
            If the score, or any other classical one, was not evaluated.
        """
        classical = [s["name"] for s in self.scores if s["classical"] and s["kind"] != _RANDOM]
        return against_classical(self.damages, score, classical)

    def paired(self, first: str, second: str) -> pd.DataFrame:
        """Return the difference of two scores' damages, paired by document.

        Parameters
        ----------
        first, second
            Names of scores; a random one stands for the mean over its seeds, whose spread is not
            in the interval (:meth:`random_band` shows it).

        Returns
        -------
        pandas.DataFrame
            A row a cell in which both have a point: ``operation``, ``scope``, ``sparsity``,
            damages ``first`` and ``second``, ``difference`` (first minus second: below 0 the first
            did less damage) with ``low`` and ``high``.

        Raises
        ------
        RowError
            If one of them was not evaluated.
        """
        damages = self.damages
        one, other = damages.place(first), damages.place(second)
        gap = damages.difference(one, other)
        rows = [
            (*cell, damages.value[one, i], damages.value[other, i], *(end[i] for end in gap))
            for i, cell in enumerate(damages.cells)
            if not np.isnan(damages.value[[one, other], i]).any()
        ]
        return pd.DataFrame(rows, columns=PAIRED_COLUMNS)

    def best(self) -> BestScore:
        """Return the score that did the least damage to this model, by cell and over all.

        It holds for this model, these documents and these cells.  See
        :func:`~sinkwise.studies.prune_best.best_score`.
        """
        return self._best

    def happened(self) -> dict[str, Any]:
        """Return whether classical pair scores beat the content distance at deletion.

        Beside what the regime rule had :attr:`predicted`.  See
        :func:`~sinkwise.studies.prune_regime.what_happened`.
        """
        return what_happened(self.damages, self.predicted)

    def warnings(self) -> list[str]:
        """Return what a reader must not miss, in words.

        Scores that some random set matched or beat, cell by cell; ruined models; a single
        document; no random sets to compare with.
        """
        found = []
        if len(self.damages.tokens) < 2:
            found.append(
                "one held-out document: no value has an interval, and no two scores can be told "
                "apart"
            )
        if self.records and not (self._points.kind == _RANDOM).any():
            found.append("no random sets were evaluated: nothing says what any score is worth")
        ruined = self._points[np.isinf(self._points.damage)]
        for score, group in ruined.groupby("score", sort=False):
            found.append(
                f"{score}: the loss is not finite in {len(group)} of its points; they count as "
                "infinite damage"
            )
        titles = {score["name"]: score["title"] for score in self.scores}
        return [*found, *band_warnings(self._curves, titles)]

    def title(self, score: str) -> str:
        """Return the words for a score; its name where it has none."""
        return str(self._score_of.get(score, {}).get("title") or score)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``prune.json``; what is not finite becomes None."""
        return jsonable(
            {
                "schema": SCHEMA,
                "level": self.level,
                "seed": self.seed,
                "dense": {"metric": self.metric, **self.dense_outcome, "documents": self.dense},
                "points": [
                    self._point(record, found)
                    for record, found in zip(self.records, self._outcomes, strict=True)
                ],
                "scores": self.scores,
                "best": self.best().to_json(),
                "predicted": self.predicted,
                "happened": self.happened(),
                "against_classical": self._default_against(),
                "warnings": self.warnings(),
                "card": self.card,
                "versions": self.versions,
            }
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PruneStudy:
        """Return the study kept in ``prune.json``; what is computed is computed anew.

        Raises
        ------
        RunError
            If the content has another schema, or is damaged.
        """
        schema = content.get("schema") if isinstance(content, Mapping) else None
        if schema != SCHEMA:
            raise RunError(
                f"prune.json has the schema {schema!r}; this version reads {SCHEMA!r}. Run the "
                "study again, or open it with the version that wrote it"
            )
        try:
            return cls.from_points(
                **{key: content[key] for key in ("dense", "points", "scores", "card")},
                **{key: content[key] for key in ("predicted", "seed", "versions", "level")},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"prune.json is damaged ({type(error).__name__}: {error}): run the study again "
                "with resume=True (--resume)"
            ) from error

    @cached_property
    def damages(self) -> Damages:
        """Damage by document, score and cell, what every comparison is made of."""
        return Damages.of_points(self.records, self.dense, self.metric, level=self.level)

    @cached_property
    def _best(self) -> BestScore:
        drawn = {s["name"] for s in self.scores if s["kind"] == _RANDOM}
        return best_score(self.damages, [n for n in self.damages.scores if n not in drawn])

    @cached_property
    def _score_of(self) -> dict[str, Mapping[str, Any]]:
        return {str(score["name"]): score for score in self.scores}

    @cached_property
    def _outcomes(self) -> list[dict[str, Any]]:
        return [self._outcome(record["documents"]) for record in self.records]

    @cached_property
    def _points(self) -> pd.DataFrame:
        rows = []
        for record, found in zip(self.records, self._outcomes, strict=True):
            score, point = self._score_of[record["score"]], self._point(record, found)
            row = {name: point.get(name) for name in POINT_COLUMNS}
            row |= {"kind": score["kind"], "classical": score["classical"]}
            row |= {"heads": len(record["removed"]), "removed": record["removed"]}
            row |= {f"damage_{end}": found["damage"][end] for end in ("low", "high")}
            row["damage"] = found["damage"]["value"]
            row |= {name: _number(point[name]) for name in MEASURED}
            rows.append(row)
        table = pd.DataFrame(rows, columns=POINT_COLUMNS)
        table = table.astype(dict.fromkeys([*_NUMBERS, *MEASURED], np.float64))
        table["seed"] = pd.Series([record["seed"] for record in self.records], dtype=object)
        return table

    @cached_property
    def _curves(self) -> pd.DataFrame:
        bands = {
            tuple(getattr(row, name) for name in CELL): (row.least, row.median, row.most)
            for row in self.random_band().itertuples()
        }
        chosen = self._points[self._points.kind != _RANDOM]
        rows = []
        for record in chosen.to_dict("records"):
            least, median, most = bands.get(tuple(record[n] for n in CELL), (np.nan,) * 3)
            band = {"random_least": least, "random_median": median, "random_most": most}
            side = side_of_band(record["damage"], least, most)
            rows.append(record | band | {"against_random": side})
        table = pd.DataFrame(rows, columns=CURVE_COLUMNS)
        return table.astype(dict.fromkeys(_NUMBERS, np.float64))

    def _outcome(self, documents: Documents) -> dict[str, Any]:
        return outcome(documents, self.dense, self.metric, level=self.level)

    def _point(self, record: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        kl = found["value"] if self.metric == "kl" else record["kl"]
        note = point_note(found)
        return {**record, "metric": self.metric, **found, "kl": kl, "note": note}

    def _default_against(self) -> dict[str, Any] | None:
        try:
            return self.against_classical().to_json()
        except RowError:  # the default score, or every classical one, was not asked for
            return None

    def _check(self) -> None:
        if not np.isfinite([self._outcome(self.dense)["value"]]).all():
            raise RowError(
                "the dense model's loss is not finite: nothing can be held against it. Load the "
                'model with dtype="float32"'
            )
        seen = set()
        for record in self.records:
            if record["score"] not in self._score_of:
                raise RowError(
                    f"a point is of the score {record['score']!r}, which is not among the scores "
                    f"given: {', '.join(self._score_of) or 'none'}"
                )
            key = tuple(record[name] for name in ("score", *CELL, "seed"))
            if key in seen:
                raise RowError(f"the point {key} arrived twice")
            seen.add(key)
        _ = self.damages  # refuses points measured on other documents


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
