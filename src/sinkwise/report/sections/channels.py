"""Section: the three channels in which heads differ."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.figures.channels import channels_by_layer, channels_overall
from sinkwise.report.section import (
    Block,
    Figure,
    Figures,
    Heading,
    Paragraph,
    Section,
    Table,
    table,
)
from sinkwise.report.wording import interval, level_words, metric_title, percent
from sinkwise.studies.channels import CHANNELS

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="channels",
        title="Three channels",
        question=(
            "When two heads differ, is it in how much goes to the sink, in how sharply the rest "
            "is spread, or in which keys it goes to?"
        ),
        misleads=(
            "Squared log-ratios weigh a faint key as much as a strong one, so large shares may "
            "come from keys that get next to no attention. Shares of squares are not shares of "
            "influence on the output."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    shares = [r for r in audit.channels().to_dict("records") if np.isfinite(r["share"])]
    if not shares:
        return (Paragraph("No two heads have a distance to split."),)
    told = ", ".join(
        f"{percent(r['share'], r['low'], r['high'])} {CHANNELS[r['channel']]}"
        for r in shares
        if r["channel"] != "within_sink" or r["share"] > 0
    )
    overall = Figure(
        "channels",
        channels_overall(audit),
        "What sets heads apart.",
        f"Shares of the mean squared Aitchison distance over all pairs of heads: {told}. The "
        f"squares add up exactly; intervals at the {level_words(audit)} level.",
    )
    by_layer = Figure(
        "channels-by-layer",
        channels_by_layer(audit),
        "The same by layer.",
        "Heads of a layer against all other heads, in the colours above.",
    )
    blocks: list[Block] = [Figures((overall, by_layer))]
    verdicts = audit.channel_verdicts().to_dict("records")
    if verdicts:
        blocks += [
            Heading("Which channel a measure follows"),
            Paragraph(
                "Each channel alone is a distance too. The smaller the share of verdicts on which "
                "a measure and a channel disagree, the more the measure orders heads by that "
                "channel; that does not say the others have no effect."
            ),
            _verdict_table(verdicts),
        ]
    return tuple(blocks)


def _verdict_table(verdicts: list[dict[str, Any]]) -> Table:
    """One row a measure, one column a channel."""
    by_measure: dict[str, dict[str, dict[str, Any]]] = {}
    for row in verdicts:
        by_measure.setdefault(str(row["measure"]), {})[str(row["channel"])] = row
    channels = list(next(iter(by_measure.values())))
    rows = []
    for measure, found in by_measure.items():
        follows = next((r for r in found.values() if r["follows"]), None)
        note = "" if follows is None else str(follows["follows_note"])
        rows.append(
            {
                "measure": metric_title(measure),
                **{c: interval(r["rate"], r["low"], r["high"]) for c, r in found.items()},
                "follows": "" if follows is None else str(follows["channel"]).replace("_", " "),
                "note": note,
            }
        )
    return table(
        "Share of verdicts on which a measure and a channel alone disagree",
        rows,
        {
            "measure": lambda r: r["measure"],
            **{c.replace("_", " "): itemgetter(c) for c in channels},
            "follows": lambda r: r["follows"],
            "note": lambda r: r["note"],
        },
    )
