"""Tables and the convention card as plain rows of text; the template escapes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sinkwise.report.bands import BAND_METRICS, band
from sinkwise.report.snapshot import AuditLike, level_words
from sinkwise.report.story import CLASSICAL, classical_reversals
from sinkwise.report.wording import interval, metric_title, number, percent, plain, short_title
from sinkwise.studies.guide import GUIDE

__all__ = [
    "Node",
    "Table",
    "all_reversals_table",
    "bands_table",
    "classical_table",
    "guide_table",
    "node",
    "taxonomy_table",
]


_MAIN_PAIRS = {
    *(frozenset((f"{metric}/kept", f"{metric}/dropped")) for metric in CLASSICAL),
    frozenset(("js_divergence/kept", "content")),
    frozenset(("js_divergence/kept", "content_angle")),
}


@dataclass(frozen=True)
class Table:
    """Column heads and rows of text."""

    caption: str
    head: list[str]
    rows: list[list[str]]
    compact: bool = False  # keep every cell on one line
    kind: str = "table"


def _without_empty_last(table: Table) -> Table:
    """Drop the last column (notes, flags) where no row has one."""
    if any(row[-1] for row in table.rows):
        return table
    return replace(table, head=table.head[:-1], rows=[row[:-1] for row in table.rows])


@dataclass(frozen=True)
class Node:
    """A nested entry: either `text` or `entries` of further nodes and tables."""

    kind: str
    text: str = ""
    entries: tuple[tuple[str, Node | Table], ...] = ()


def classical_table(audit: AuditLike) -> Table:
    """Kept against dropped for the three classical metrics."""
    rows = [
        [
            metric_title(row["metric"]),
            interval(row["rate"], row["low"], row["high"]),
            number(row["resolved_rate"]),
            percent(row["resolved_share"]),
            number(row["smallest_detectable"]),
            number(row["bias"]),
            _note(row["note"]),
        ]
        for row in classical_reversals(audit)
    ]
    return _without_empty_last(
        Table(
            f"Share of verdicts reversed by dropping the sink, with {level_words(audit)} intervals",
            [
                *("metric", "reversal rate", "among resolved verdicts", "share resolved"),
                *("smallest detectable", "estimated bias", "note"),
            ],
            rows,
            compact=True,
        )
    )


def all_reversals_table(audit: AuditLike) -> Table:
    """Every pair of (metric, convention)."""
    rows = [
        [
            metric_title(row["first"]),
            metric_title(row["second"]),
            interval(row["rate"], row["low"], row["high"]),
            number(row["resolved_rate"]),
            percent(row["resolved_share"]),
            number(row["smallest_detectable"]),
            _note(row["note"]),
        ]
        for row in audit.reversals().to_dict("records")
    ]
    return _without_empty_last(
        Table(
            f"Share of verdicts on which two distances disagree ({level_words(audit)} intervals)",
            [
                *("first", "second", "reversal rate", "among resolved verdicts", "share resolved"),
                *("smallest detectable", "note"),
            ],
            rows,
            compact=True,
        )
    )


def bands_table(audit: AuditLike) -> Table:
    """How many pairs lie under their ceiling and how much of it they use."""
    rows = []
    for metric in BAND_METRICS:
        found = band(audit.distances, metric)
        if found is not None:
            rows.append(
                [
                    metric_title(metric),
                    f"{found.distance.size:,}",
                    percent(found.share_within),
                    percent(found.median_use),
                ]
            )
    return Table(
        "Pairs of heads against the closed-form ceiling, sink kept",
        ["metric", "pairs of heads", "at or under the ceiling", "median share of ceiling used"],
        rows,
        compact=True,
    )


def taxonomy_table(audit: AuditLike, *, main_pairs: bool = False) -> Table:
    """Agreement between clusterings, with ceilings, sizes and the degeneracy flag.

    With `main_pairs` only each metric against itself under the other convention, and the
    content forms against JS kept.
    """
    rows = [
        [
            short_title(row["first"]),
            short_title(row["second"]),
            str(row["method"]),
            plain(row["k"]),
            interval(row["ari"], row["low"], row["high"]),
            f"{number(row['ceiling_first'], 2)} / {number(row['ceiling_second'], 2)}",
            _sizes(row["sizes_first"]),
            _sizes(row["sizes_second"]),
            "degenerate" if row["degenerate"] is True else "",
        ]
        for row in audit.taxonomy().to_dict("records")
        if not main_pairs or frozenset((row["first"], row["second"])) in _MAIN_PAIRS
    ]
    return _without_empty_last(
        Table(
            "Agreement between clusterings of heads (adjusted Rand index)",
            [
                *("first", "second", "method", "k", "agreement", "ceilings"),
                *("sizes, first", "sizes, second", "flag"),
            ],
            rows,
            compact=True,
        )
    )


def guide_table() -> Table:
    """The guide's questions."""
    return Table(
        "Questions, estimators and their limits",
        ["question", "estimator", "safe", "misleads", "report"],
        [[a.question, a.estimator, a.safe, a.misleads, a.report] for a in GUIDE],
    )


def node(value: Any, caption: str = "entries") -> Node | Table:
    """Return any JSON-like value as nested entries; a list of mappings becomes a table."""
    if isinstance(value, Mapping) and value:
        entries = tuple((_words(k), node(v, _words(k))) for k, v in value.items())
        return Node("entries", entries=entries)
    if _is_records(value):
        head = list(dict.fromkeys(key for record in value for key in record))
        rows = [
            ["–" if record.get(k) is None else plain(record[k]) for k in head] for record in value
        ]
        return Table(caption, [_words(k) for k in head], rows)
    if isinstance(value, Mapping):
        return Node("text", text="none")
    return Node("text", text=plain(value))


def _is_records(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(v, Mapping) for v in value)
    )


def _words(key: Any) -> str:
    return str(key).replace("_", " ")


def _note(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _sizes(sizes: Any) -> str:
    if isinstance(sizes, str):
        return sizes
    return ", ".join(str(int(s)) for s in sizes)
