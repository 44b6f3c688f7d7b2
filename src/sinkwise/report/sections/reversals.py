"""Section: verdicts that a change of metric or convention reverses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sinkwise.report.figures.reversals import (
    reversal_grid,
    reversals_by_layer_distance,
    reversals_by_sink_gap,
)
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
from sinkwise.report.sections.worst_pairs import two_conventions
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
            "verdicts (their margin exceeds its noise over documents) and the one weighted by "
            "margin beside it. Noise between documents flips verdicts too: a rate below the "
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
        measures = two_conventions(audit)
        if measures is not None:
            yield _places(audit, *measures)
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
            "weighted by margin": lambda r: number(r["margin_weighted_rate"]),
            "nearest head changes": lambda r: percent(r["nearest_changed"]),
            "nearest shared": _overlap,
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
            "weighted by margin": lambda r: number(r["margin_weighted_rate"]),
            "nearest head changes": lambda r: percent(r["nearest_changed"]),
            "nearest shared": _overlap,
            "smallest detectable": lambda r: number(r["smallest_detectable"]),
            "note": _note,
        },
    )


def _places(audit: Audit, first: str, second: str) -> Figures:
    """Where the verdicts of two measures reverse."""
    names = f"{metric_title(first)} against {metric_title(second)}"
    return Figures(
        (
            Figure(
                "reversals-by-layer-distance",
                reversals_by_layer_distance(audit, first, second),
                "Reversals by the layers between two heads.",
                f"{names}: mean over pairs of heads of the share of the verdicts on their "
                "distance that reverse.",
            ),
            Figure(
                "reversals-by-sink-gap",
                reversals_by_sink_gap(audit, first, second),
                "Reversals by the gap in sink mass of two heads.",
                "The same shares; every bar holds about a tenth of the pairs. A reversal lies "
                "between two pairs and counts for both.",
            ),
        ),
        columns=2,
    )


def _overlap(record: Any) -> str:
    return f"{percent(record['neighbour_overlap'])} of {record['neighbours']}"


def _note(record: Any) -> str:
    return record["note"] if isinstance(record["note"], str) else ""
