"""Section: closed-form ceilings of the classical distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.bands import BAND_METRICS, Band, band
from sinkwise.report.figures.bands import MOST_POINTS, band_plot
from sinkwise.report.section import Block, Figure, Figures, Paragraph, Section, table
from sinkwise.report.wording import count_of, metric_title, number, percent, sentence

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="bands",
        title="Collapse bands",
        question=(
            "How far apart can two heads be at all, under a classical metric with the sink kept, "
            "given their sinks?"
        ),
        misleads=(
            "Points near the ceiling do not make the metric wrong; they say that its scale is set "
            "by the sink. Points well below it are free of that, and there the metric can be read "
            "as it is."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    bands = [b for b in (band(audit.distances, metric) for metric in BAND_METRICS) if b is not None]
    if not bands:
        return (
            Paragraph(
                "No closed-form ceiling applies: it takes a sink of one key and at least two "
                "heads with distances between them."
            ),
        )
    counted = table(
        "Pairs of heads against the closed-form ceiling, sink kept",
        [{"metric": b.metric, "band": b} for b in bands],
        {
            "metric": lambda r: metric_title(r["metric"]),
            "pairs of heads": lambda r: f"{r['band'].distance.size:,}",
            "at or under the ceiling": lambda r: percent(r["band"].share_within),
            "median share of ceiling used": lambda r: percent(r["band"].median_use),
        },
    )
    plots = Figures(tuple(_plot(audit, found) for found in bands), columns=3)
    return (counted, plots, *_ranking(audit, {b.metric for b in bands}))


def _ranking(audit: Audit, metrics: set[str]) -> tuple[Block, ...]:
    """What is left of the order of head pairs where both sinks are large."""
    if metrics != set(BAND_METRICS):
        return ()
    shown = table(
        "What orders the kept distances of pairs of heads whose sinks are both large",
        audit.band_ranking().to_dict("records"),
        {
            "metric": lambda r: metric_title(r["metric"]),
            "smaller sink mass": lambda r: f"≥ {r['threshold']:g}" if r["threshold"] else "any",
            "pairs of heads": lambda r: f"{r['pairs']:,}",
            "share": lambda r: percent(r["share"]),
            "distances, 5–95 %": lambda r: f"{number(r['value_low'])}–{number(r['value_high'])}",
            "median ceiling": lambda r: number(r["ceiling"]),
            "of it used": lambda r: percent(r["ceiling_used"]),
            "ρ with the ceiling": lambda r: number(r["spearman_ceiling"], 2),
            "ρ with the dropped distance": lambda r: number(r["spearman_dropped"], 2),
        },
    )
    told = Paragraph(
        "ρ is Spearman's rank correlation over pairs of heads. With the ceiling it says how much "
        "of the order the sinks alone give; with the dropped distance, how much the content alone "
        "does. Pairs share heads, so there is no interval; with fewer than 10 pairs, no ρ.",
        "aside",
    )
    return shown, told


def _plot(audit: Audit, found: Band) -> Figure:
    caption = (
        f"At or under the ceiling: {percent(found.share_within)} of "
        f"{count_of(found.distance.size, 'pair')}; the median pair uses "
        f"{percent(found.median_use)} of its ceiling."
    )
    if found.distance.size > MOST_POINTS:
        caption += f" A random {MOST_POINTS:,} are drawn."
    if found.metric == "cosine":
        caption += " A pair's ceiling is the mean over its rows, so it leaves the line."
    return Figure(
        f"band-{found.metric}",
        band_plot(audit, found.metric),
        sentence(metric_title(found.metric)),
        caption,
    )
