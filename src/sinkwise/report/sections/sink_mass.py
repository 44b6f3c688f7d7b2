"""Section: sink mass by layer and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.figures.sinks import sink_by_layer, sink_grid
from sinkwise.report.section import Figure, Figures, Section
from sinkwise.report.wording import number

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    mass = audit.profile["sink_mass"].to_numpy()
    known = mass[np.isfinite(mass)]
    spread = (
        f"Heads range from {number(known.min(), 2)} to {number(known.max(), 2)}, half of them "
        f"over {number(float(np.median(known)), 2)}."
        if known.size
        else "No head has a sink mass."
    )
    return Section(
        id="sink-mass",
        short="Sink mass",
        title="Sink mass by layer and head",
        question="How much of a head's attention goes to the sink, and where in the model?",
        misleads=(
            "A mean hides its rows: a head may send everything to the sink on some queries and "
            "nothing on others. A high share on the sink is not by itself a sign that a head is "
            "idle."
        ),
        content=(
            Figures(
                (
                    Figure(
                        "sink-grid",
                        sink_grid(audit),
                        "Mean sink mass of every head.",
                        f"{spread} Empty cells: no such head in that layer, or no usable row.",
                    ),
                    Figure(
                        "sink-by-layer",
                        sink_by_layer(audit),
                        "Mean sink mass by layer.",
                        "Grey dots are heads. Where heads of a layer lie far apart, the sink sets "
                        "them apart for every metric that keeps it.",
                    ),
                ),
                columns=2,
            ),
        ),
    )
