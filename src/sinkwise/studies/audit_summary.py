"""The content of ``summary.json``: an audit in numbers that any language reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.accumulate.profile import SHARE_THRESHOLDS
from sinkwise.errors import RowError
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.jsonable import jsonable

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["SCHEMA", "audit_summary"]

SCHEMA = "sinkwise.summary/1"


def audit_summary(audit: Audit, store: DocumentStore) -> dict[str, Any]:
    """Return every finding of `audit` as what JSON holds; NaN becomes None."""
    card = audit.card()
    return jsonable(
        {
            "schema": SCHEMA,
            "model": card.get("model"),
            "sink": card.get("sink"),
            "conventions": card["conventions"],
            "heads": len(audit.heads),
            "layers": len({h.layer for h in audit.heads}),
            "documents": len(store.documents),
            "rows": store.n_rows,
            "rows_excluded": store.excluded,
            "sink_mass": _sink_mass(audit, store),
            "taxonomy_effects": audit.taxonomy_effects().to_dict("records"),
            "channels": audit.channels().to_dict("records"),
            "sinks_found": _sinks_found(audit),
            "sink_sets": audit.sink_sets().to_dict("records"),
            "position": _position(audit),
            "repeated_tokens": audit.repeated_tokens(),
            "not_compared": list(audit.not_compared),
            "reversals": audit.reversals().to_dict("records"),
            "taxonomy": [_with_lesser_ceiling(r) for r in audit.taxonomy().to_dict("records")],
            "regime": audit.regime(),
            "versions": card.get("versions", {}),
            "seed": card.get("seed", audit.seed),
            "card": card,
        }
    )


def _sink_mass(audit: Audit, store: DocumentStore) -> dict[str, Any]:
    sums, counts = store.profile("sink_mass")
    value, low, high = jackknife_mean(sums.sum(1), counts.sum(1), level=audit.level)
    by_layer = []
    for layer in sorted({h.layer for h in audit.heads}):
        mine = [i for i, h in enumerate(audit.heads) if h.layer == layer]
        parts = jackknife_mean(sums[:, mine].sum(1), counts[:, mine].sum(1), level=audit.level)
        by_layer.append(
            {"layer": layer} | dict(zip(("mean", "low", "high"), map(float, parts), strict=True))
        )
    per_head = sums.sum(0) / counts.sum(0)
    share_over = []
    for eps in SHARE_THRESHOLDS:
        over, rows = store.profile(f"over_{eps}")
        share_over.append(
            {
                "eps": eps,
                "share": float(np.mean(per_head > eps)),  # of heads, by their mean
                "share_of_rows": float(over.sum() / rows.sum()),
            }
        )
    return {
        "mean": float(value),
        "low": float(low),
        "high": float(high),
        "by_layer": by_layer,
        "share_over": share_over,
    }


def _sinks_found(audit: Audit) -> dict[str, Any]:
    evidence = audit.sinks()
    return {
        "warning": evidence.warning,
        "secondary_mass": float(evidence.documents.secondary_mass.mean()),
        "positions": evidence.positions.to_dict("records"),
        "tokens": evidence.tokens.to_dict("records"),
        "by_layer": evidence.layers.to_dict("records"),
    }


def _position(audit: Audit) -> dict[str, Any]:
    """What position explains of the content distances, or why that can't be said."""
    try:
        null = audit.positional_null()
    except RowError as error:
        return {"share": None, "low": None, "high": None, "note": str(error)}
    return {"share": null.share, "low": null.low, "high": null.high, "note": ""}


def _with_lesser_ceiling(record: dict[str, Any]) -> dict[str, Any]:
    """Add what two clusterings can reach: no more than the shakier one agrees with itself."""
    ceilings = [record["ceiling_first"], record["ceiling_second"]]
    sizes = {"first": record["sizes_first"], "second": record["sizes_second"]}
    return {**record, "ceiling": float(np.min(ceilings)), "sizes": sizes}
