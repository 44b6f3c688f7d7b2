"""Section: the verdict and the key figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.section import Cards, KeyFigure, Paragraph, Section
from sinkwise.report.sections.reversals import classical_reversals
from sinkwise.report.wording import interval, level_words, metric_title, percent, plain

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["HARDLY", "STRONGLY", "key_figures", "section", "verdict"]

HARDLY, STRONGLY = 0.05, 0.10
"""Reversal rates under which, and from which, the page calls the convention harmless or strong."""


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    regime = audit.summary().get("regime") or {}
    told = ": ".join(plain(regime[k]) for k in ("verdict", "why") if regime.get(k))
    rule = f"Regime rule: {told}. {regime.get('record', '')}".strip()
    return Section(
        id="headline",
        title="Headline",
        question="Do verdicts on these heads depend on whether the sink is kept?",
        misleads=(
            "One sentence stands for one model, one set of documents and the verdicts named; "
            "the sections below say where it holds and how surely."
        ),
        content=(
            Paragraph(verdict(audit), "verdict"),
            Cards(tuple(key_figures(audit))),
            *([Paragraph(rule, "aside")] if told else []),
        ),
    )


def key_figures(audit: Audit) -> list[KeyFigure]:
    """Return the headline's numbers."""
    level = level_words(audit)
    mass = audit.profile["sink_mass"].to_numpy()
    mass = mass[np.isfinite(mass)]
    pooled = audit.summary().get("sink_mass") or {}
    mean = pooled.get("mean", float(mass.mean()) if mass.size else math.nan)
    value, _, bounds = interval(mean, pooled.get("low"), pooled.get("high")).partition(" ")
    over = [percent(float((mass > eps).mean())) if mass.size else "–" for eps in (0.3, 0.8)]
    figures = [
        KeyFigure("mean sink mass", value, _bounds_note(level, bounds)),
        KeyFigure("heads whose mean sink mass is over 0.3", over[0], f"over 0.8: {over[1]}"),
    ]
    for row in classical_reversals(audit):
        share, _, bounds = percent(row["rate"], row["low"], row["high"]).partition(" % ")
        figures.append(
            KeyFigure(
                f"verdicts reversed, {metric_title(row['metric'])} kept vs dropped",
                share if share.endswith("%") or share == "–" else f"{share} %",
                _bounds_note(level, bounds, str(row.get("note") or "")),
            )
        )
    return figures


def verdict(audit: Audit) -> str:
    """Return two or three sentences on how far verdicts depend on the sink convention."""
    rows = [r for r in classical_reversals(audit) if _finite(r["rate"])]
    if not rows:
        return (
            "There is no verdict here on whether the convention matters: that takes at least "
            "three heads with distances between them."
        )
    listed = [
        f"for {metric_title(r['metric'])} in {percent(r['rate'], r['low'], r['high'])} of cases"
        for r in rows
    ]
    told = (
        "Which of two heads is nearer to a third? Dropping the sink reverses that verdict "
        f"{_and(listed)}."
    )
    known = [r for r in rows if _finite(r["low"]) and _finite(r["high"])]
    if len(known) < len(rows):
        unknown = _and([metric_title(r["metric"]) for r in rows if r not in known])
        caution = (
            f" For {unknown} these documents are too few for an interval, and noise between "
            "documents alone reverses some verdicts."
        )
    else:
        caution = ""
    return f"{told}{caution} {_judgement(rows, known)}"


def _and(items: list[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def _judgement(rows: list[dict[str, Any]], known: list[dict[str, Any]]) -> str:
    if any(r["low"] >= STRONGLY for r in known):
        return (
            "So on this model and text, conclusions drawn from such verdicts depend on the "
            "convention: state it, or report both. That does not say which is right; it depends "
            "on whether the sink belongs to the question."
        )
    if not known:
        return "Measure more documents before drawing a conclusion from these rates."
    if len(known) == len(rows) and all(r["high"] < HARDLY for r in known):
        return (
            "So on this model and text the convention hardly matters for these verdicts, and the "
            "plain classical distances can be used as they are."
        )
    return (
        "So the convention matters for some verdicts; whether it matters for a given conclusion "
        "has to be checked by computing it both ways."
    )


def _bounds_note(level: str, bounds: str, note: str = "") -> str:
    if bounds:
        return f"{level} interval {bounds.strip('()')}"
    return note or "no interval"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and math.isfinite(value)
