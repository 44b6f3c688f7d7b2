"""Section: the three channels in which heads differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.figures.channels import channels_by_layer, channels_overall
from sinkwise.report.section import Block, Figure, Figures, Paragraph, Section
from sinkwise.report.wording import percent
from sinkwise.studies.channels import CHANNELS, channel_shares

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
    shares = channel_shares(audit.distances)
    if not shares or not all(np.isfinite(s) for s in shares.values()):
        return (Paragraph("No two heads have a distance to split."),)
    told = ", ".join(
        f"{percent(s)} {CHANNELS[n]}" for n, s in shares.items() if n != "within_sink" or s > 0
    )
    overall = Figure(
        "channels",
        channels_overall(audit),
        "What sets heads apart.",
        f"Shares of the mean squared Aitchison distance over all pairs of heads: {told}. The "
        "squares add up exactly; these shares carry no interval.",
    )
    by_layer = Figure(
        "channels-by-layer",
        channels_by_layer(audit),
        "The same by layer.",
        "Heads of a layer against all other heads, in the colours above.",
    )
    return (Figures((overall, by_layer)),)
