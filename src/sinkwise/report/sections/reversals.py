"""Section: verdicts that a change of metric or convention reverses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sinkwise.report.figures.reversals import reversal_grid
from sinkwise.report.section import (
    Block,
    Details,
    Figure,
    Figures,
    Paragraph,
    Section,
    Table,
    table,
)
from sinkwise.report.wording import interval, level_words, metric_title, number, percent

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["CLASSICAL", "all_pairs_table", "classical_reversals", "classical_table", "section"]

CLASSICAL = ("cosine", "js_divergence", "euclidean")


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="reversals",
        title="Reversed verdicts",
        question=(
            "Of three heads, which of two is nearer to the third? How often does the answer "
            "change when the sink is dropped, or the metric is another one?"
        ),
        misleads=(
            "Near-ties flip without harm and count all the same, so read the rate among resolved "
            "verdicts beside it. Noise between documents flips verdicts too: a rate below the "
            "smallest detectable one can't be told from 0."
        ),
        content=tuple(_content(audit)),
    )


def _content(audit: Audit) -> Iterator[Block]:
    if len(audit.reversals()):
        every = all_pairs_table(audit)
        yield classical_table(audit)
        yield Figures(
            (
                Figure(
                    "reversals",
                    reversal_grid(audit),
                    "Reversal rates between all metrics and conventions, in percent.",
                    "50 % is what two unrelated distances would give; 0 % means that they never "
                    "disagree.",
                ),
            )
        )
        yield Details(f"All {len(every.rows)} pairs as a table", (every,))
    elif audit.profile.sizes["head"] < 3:
        yield Paragraph("Fewer than three heads: there is no verdict to reverse.")
    not_compared = audit.summary().get("not_compared")
    if not_compared:
        listed = ", ".join(map(metric_title, not_compared))
        yield Paragraph(f"Left out, since some two heads have no distance by it: {listed}.")


def classical_reversals(audit: Audit) -> list[dict[str, Any]]:
    """Return the kept-against-dropped row of each classical metric that has one."""
    pairs = {
        frozenset((str(row["first"]), str(row["second"]))): row
        for row in audit.reversals().to_dict("records")
    }
    wanted = {m: frozenset((f"{m}/kept", f"{m}/dropped")) for m in CLASSICAL}
    return [{**pairs[pair], "metric": m} for m, pair in wanted.items() if pair in pairs]


def classical_table(audit: Audit) -> Table:
    """Kept against dropped for the three classical metrics."""
    return table(
        f"Share of verdicts reversed by dropping the sink, with {level_words(audit)} intervals",
        classical_reversals(audit),
        {
            "metric": lambda r: metric_title(r["metric"]),
            "reversal rate": lambda r: interval(r["rate"], r["low"], r["high"]),
            "among resolved verdicts": lambda r: number(r["resolved_rate"]),
            "share resolved": lambda r: percent(r["resolved_share"]),
            "smallest detectable": lambda r: number(r["smallest_detectable"]),
            "estimated bias": lambda r: number(r["bias"]),
            "note": _note,
        },
    )


def all_pairs_table(audit: Audit) -> Table:
    """Every pair of (metric, convention)."""
    return table(
        f"Share of verdicts on which two distances disagree ({level_words(audit)} intervals)",
        audit.reversals().to_dict("records"),
        {
            "first": lambda r: metric_title(r["first"]),
            "second": lambda r: metric_title(r["second"]),
            "reversal rate": lambda r: interval(r["rate"], r["low"], r["high"]),
            "among resolved verdicts": lambda r: number(r["resolved_rate"]),
            "share resolved": lambda r: percent(r["resolved_share"]),
            "smallest detectable": lambda r: number(r["smallest_detectable"]),
            "note": _note,
        },
    )


def _note(record: Any) -> str:
    return record["note"] if isinstance(record["note"], str) else ""
