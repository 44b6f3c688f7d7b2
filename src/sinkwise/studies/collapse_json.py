"""``collapse.json``: what a collapse study says, for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinkwise.accumulate.intervals import Interval
from sinkwise.studies.collapse_sums import CHANNELS
from sinkwise.studies.jsonable import jsonable

if TYPE_CHECKING:
    from sinkwise.studies.collapse import CollapseStudy
    from sinkwise.studies.collapse_records import EntropyShift

__all__ = ["SCHEMA", "WITHHELD", "written"]

SCHEMA = "sinkwise.collapse/1"

WITHHELD = {
    "zero": "no shares: the interval of the change of entropy holds 0",
    "single": "no intervals and no shares: they need two documents",
}
"""Why shares are withheld."""


def written(study: CollapseStudy) -> dict[str, Any]:
    """Return the file's content: every number a number, or None where there is none.

    ``changes`` are between consecutive checkpoints, ``overall`` is from the first to the last;
    ``heads`` and ``layers`` belong to the latter.
    """
    found: dict[str, Any] = jsonable(
        {
            "schema": SCHEMA,
            "versions": study.versions,
            "card": study.card(),
            "checkpoints": study.checkpoints.astype({"step": object}).to_dict("records"),
            "changes": [_change(study, shift) for shift in study.changes()],
            "overall": _change(study, study.overall),
            "layers": study.by_layer(),
            "heads": study.by_head(),
            "extremes": study.extremes().astype({"step": object}),
        }
    )
    for record in (*found["checkpoints"], *found["extremes"]):
        record["step"] = None if record["step"] is None else int(record["step"])
    return found


def _change(study: CollapseStudy, shift: EntropyShift) -> dict[str, Any]:
    whole = Interval(1.0, 1.0, 1.0)
    given = shift.shares["sink"].value == shift.shares["sink"].value
    single = shift.verdict == "no interval"
    calls = study.by_head(shift.first, shift.second).verdict.value_counts()
    return {
        "first": shift.first,
        "second": shift.second,
        "total": _channel(shift.total, whole if given else shift.shares["sink"]),
        **{name: _channel(getattr(shift, name), shift.shares[name]) for name in CHANNELS},
        "sink_mass": _value(shift.sink_mass),
        "content_entropy": _value(shift.content_entropy),
        "verdict": shift.verdict,
        "mostly": shift.mostly,
        "words": shift.words,
        "share_withheld": None if given else WITHHELD["single" if single else "zero"],
        "heads_by_verdict": {str(name): int(number) for name, number in calls.items()},
        "largest_residual": shift.residual,
    }


def _channel(found: Interval, share: Interval) -> dict[str, Any]:
    return {
        **_value(found),
        "share": share.value,
        "share_low": share.low,
        "share_high": share.high,
    }


def _value(found: Interval) -> dict[str, Any]:
    return {"value": found.value, "low": found.low, "high": found.high}
