"""Sentences and key figures made from the data of one audit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkwise.report.snapshot import AuditLike, level_words
from sinkwise.report.wording import count_of, interval, metric_title, percent, plain

__all__ = [
    "CLASSICAL",
    "HARDLY",
    "STRONGLY",
    "KeyFigure",
    "classical_reversals",
    "key_figures",
    "methods_paragraph",
    "verdict",
]

CLASSICAL = ("cosine", "js_divergence", "euclidean")
HARDLY, STRONGLY = 0.05, 0.10
"""Reversal rates under which, and from which, the page calls the convention harmless or strong."""


@dataclass(frozen=True)
class KeyFigure:
    """One number of the headline."""

    title: str
    value: str
    note: str


def classical_reversals(audit: AuditLike) -> list[dict[str, Any]]:
    """Return the kept-against-dropped row of each classical metric that has one."""
    pairs = {
        frozenset((str(row["first"]), str(row["second"]))): row
        for row in audit.reversals().to_dict("records")
    }
    wanted = {m: frozenset((f"{m}/kept", f"{m}/dropped")) for m in CLASSICAL}
    return [{**pairs[pair], "metric": m} for m, pair in wanted.items() if pair in pairs]


def key_figures(audit: AuditLike) -> list[KeyFigure]:
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


def verdict(audit: AuditLike) -> str:
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


def methods_paragraph(audit: AuditLike) -> str:
    """Return a paragraph for a paper, from the convention card."""
    card, summary = audit.card(), audit.summary()
    version = (card.get("versions") or summary.get("versions") or {}).get("sinkwise")
    model = plain(card.get("model") or summary.get("model") or "the given attention arrays")
    details = [
        f"{word} {plain(card[key])}"
        for key, word in (
            ("revision", "revision"),
            ("dtype", "dtype"),
            ("quantization", "quantization"),
            ("attn_implementation", "attention implementation"),
            ("attention_implementation", "attention implementation"),
        )
        if card.get(key)
    ]
    excluded = summary.get("rows_excluded") or card.get("rows_excluded") or {}
    # a row that only some heads can't use stays for the others: it is listed, not summed
    left_out = sum(int(v) for k, v in excluded.items() if not str(k).endswith("_in_some_heads"))
    sentences = [
        f"Attention rows of {model}{_bracketed(details)} were analysed "
        f"with sinkwise{' ' + plain(version) if version else ''}: {_count(summary, 'heads')} "
        f"in {_count(summary, 'layers')}, "
        f"{_count(summary, 'rows', 'query positions')} from {_count(summary, 'documents')}"
        + (f" ({plain(card['queries'])} queries per document)" if card.get("queries") else "")
        + (f", each cut to {plain(card['max_length'])} tokens" if card.get("max_length") else "")
        + ".",
        f"Sink set: {_phrase(card.get('sink', summary.get('sink')))}. "
        f"Rounding zeros: {_zero_rule(card.get('zeros'))}.",
        f"Rows that could not be used were left out of every statistic ({left_out:,}"
        f"{_reasons(excluded)})."
        if any(excluded.values())
        else "No row had to be left out.",
        "Content is the attention on the remaining keys, re-closed; it was compared by the "
        "Aitchison distance and by the angle between centred log-ratio vectors. Cosine distance, "
        "Jensen–Shannon divergence (natural logarithms) and Euclidean distance were computed with "
        "the sink kept and with the sink dropped. Distances between heads are means over rows.",
    ]
    if len(audit.reversals()):
        sentences.append(
            "The reversal rate is the share of triples of heads on which two distances disagree "
            "about which of two heads is nearer to the third, exact over all triples."
        )
    if summary.get("documents", 0) and summary["documents"] > 1:
        sentences.append(
            f"Intervals are at the {level_words(audit)} level: for means the delete-one-document "
            "jackknife with t quantiles, for reversal rates random halves of the documents with a "
            "correction for bias."
        )
    else:
        sentences.append("One document gives no intervals.")
    if card.get("seed", summary.get("seed")) is not None:
        sentences.append(f"Seed {plain(card.get('seed', summary.get('seed')))}.")
    return " ".join(sentences)


def _bracketed(details: list[str]) -> str:
    return f" ({', '.join(details)})" if details else ""


def _phrase(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{str(k).replace('_', ' ')} {plain(v)}" for k, v in value.items())
    return plain(value)


def _zero_rule(rule: Any) -> str:
    known = {
        "error": "refused (none arose)",
        "exclude": "left out of log-ratios, part by part",
    }
    return known.get(rule, _phrase(rule)) if isinstance(rule, str) else _phrase(rule)


def _reasons(excluded: Mapping[str, Any]) -> str:
    listed = [f"{str(k).replace('_', ' ')}: {plain(v)}" for k, v in excluded.items() if v]
    return f"; {', '.join(listed)}" if listed else ""


def _count(summary: Mapping[str, Any], key: str, plural: str = "") -> str:
    plural = plural or key
    if key not in summary:
        return f"an unstated number of {plural}"
    return count_of(int(summary[key]), plural.removesuffix("s"))


def _bounds_note(level: str, bounds: str, note: str = "") -> str:
    if bounds:
        return f"{level} interval {bounds.strip('()')}"
    return note or "no interval"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and math.isfinite(value)
