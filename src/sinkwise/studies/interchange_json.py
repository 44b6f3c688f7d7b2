"""An interchange study as ``interchange.json``, written and read.

The file (schema ``sinkwise.interchange/1``)::

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
from typing import TYPE_CHECKING, Any

from sinkwise.errors import RunError
from sinkwise.rowdata import HeadId
from sinkwise.studies.exchange_records import ExchangePoint, Singles
from sinkwise.studies.exchanged_pairs import Pair
from sinkwise.studies.jsonable import jsonable

if TYPE_CHECKING:
    from sinkwise.studies.interchange import InterchangeStudy

__all__ = ["SCHEMA", "read", "written"]

SCHEMA = "sinkwise.interchange/1"

_POINT = ("metric", "mode", "scope", "share", "seed")


def written(study: InterchangeStudy) -> dict[str, Any]:
    """Return the file's content; NaN becomes None."""
    heads = study.heads
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "level": study.level,
        "seed": study.seed,
        "heads": [[head.layer, head.index] for head in heads],
        "dense": {"metric": study.measure, **study.dense_outcome, "documents": study.dense},
        "points": [
            {name: getattr(point, name) for name in _POINT}
            | {"pairs": _named(heads, point.pairs), **study.outcome(point.documents)}
            | {"documents": point.documents, "top1_agreement": point.top1_agreement}
            for point in study.points
        ],
        "singles": None if study.singles is None else _singles(study, study.singles),
        "correlations": study.correlations(),
        "clusters": study.clusters(),
        "card": study.card,
        "versions": study.versions,
    }
    found: dict[str, Any] = jsonable(content)
    return found


def read(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the study that the file holds.

    Raises
    ------
    RunError
        If the content has another schema, or is damaged.
    """
    schema = content.get("schema") if isinstance(content, Mapping) else None
    if schema != SCHEMA:
        raise RunError(
            f"interchange.json has the schema {schema!r}; this version reads {SCHEMA!r}. Run the "
            "study again, or open it with the version that wrote it"
        )
    try:
        return _attributes(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"interchange.json is damaged ({type(error).__name__}: {error}): run the study again "
            "with resume=True (--resume)"
        ) from error


def _attributes(content: Mapping[str, Any]) -> dict[str, Any]:
    heads = tuple(HeadId(layer, index) for layer, index in content["heads"])
    number = {(head.layer, head.index): i for i, head in enumerate(heads)}

    def pairs(found: Any) -> tuple[Pair, ...]:
        return tuple((number[tuple(b)], number[tuple(d)]) for b, d in found)

    points = tuple(
        ExchangePoint(
            **{name: point[name] for name in _POINT},
            pairs=pairs(point["pairs"]),
            documents=point["documents"],
            top1_agreement=point["top1_agreement"],
        )
        for point in content["points"]
    )
    single = content["singles"]
    singles = single and Singles(
        pairs(single["pairs"]),
        single["distances"],
        {(c["metric"], c["method"]): c["labels"] for c in single["clusters"]},
        {mode: [r["documents"] for r in records] for mode, records in single["damages"].items()},
    )
    shared = {name: content[name] for name in ("card", "seed", "level", "versions")}
    return {
        "heads": heads,
        "measure": content["dense"]["metric"],
        "dense": content["dense"]["documents"],
        "points": points,
        "singles": singles,
        **shared,
    }


def _singles(study: InterchangeStudy, singles: Singles) -> dict[str, Any]:
    return {
        "pairs": _named(study.heads, singles.pairs),
        "distances": singles.distances,
        "clusters": [
            {"metric": metric, "method": method, "labels": labels}
            for (metric, method), labels in singles.clusters.items()
        ],
        "damages": {
            mode: [
                {"damage": study.outcome(documents)["damage"], "documents": documents}
                for documents in records
            ]
            for mode, records in singles.documents.items()
        },
    }


def _named(heads: Sequence[HeadId], pairs: Sequence[Pair]) -> list[list[list[int]]]:
    return [[[heads[i].layer, heads[i].index] for i in pair] for pair in pairs]
