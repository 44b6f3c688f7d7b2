"""The figures of the report, each a function of an audit that returns a plotly figure.

Every figure stands alone: ``figures.sink_grid(audit).write_html("sinks.html")``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sinkwise.errors import RowError
from sinkwise.report.figures import (
    bands,
    channels,
    distances,
    interchange,
    maps,
    removal,
    reversals,
    sinks,
    sinks_found,
    worst_pairs,
)
from sinkwise.report.figures.bands import band_plot
from sinkwise.report.figures.channels import channels_by_layer, channels_overall
from sinkwise.report.figures.distances import MATRICES, UNITS, head_matrix
from sinkwise.report.figures.reversals import reversal_grid
from sinkwise.report.figures.sinks import sink_by_layer, sink_grid

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = [
    "FIGURES",
    "MATRICES",
    "UNITS",
    "band_plot",
    "channels_by_layer",
    "channels_overall",
    "draw",
    "head_matrix",
    "reversal_grid",
    "sink_by_layer",
    "sink_grid",
]

FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    **sinks.FIGURES,
    **sinks_found.FIGURES,
    **reversals.FIGURES,
    **worst_pairs.FIGURES,
    **distances.FIGURES,
    **channels.FIGURES,
    **bands.FIGURES,
    **interchange.FIGURES,
    **removal.FIGURES,
    **maps.FIGURES,
}
"""Figures by the names that :func:`draw` takes; each study's are declared in its own module."""


def draw(name: str, audit: Audit) -> go.Figure:
    """Return the figure called `name`, one of :data:`FIGURES`."""
    if name not in FIGURES:
        raise RowError(f"no figure is called {name!r}; expected one of {sorted(FIGURES)}")
    return FIGURES[name](audit)
