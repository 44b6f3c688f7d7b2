"""Figures of found sinks, of the repeated-token control and of what position explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "nearest_beyond_position", "sinks_by_layer", "value_weighted"]


def sinks_by_layer(audit: Audit) -> go.Figure:
    """Mass on the declared sink and on the other found sinks, stacked, layer by layer."""
    go = graph_objects()
    layers = audit.sinks().layers
    figure = new_figure(height=320, barmode="stack", bargap=0.15)
    shown = (
        ("declared_mass", "declared sink", COLOURS["vermilion"]),
        ("secondary_mass", "other found sinks", COLOURS["sky"]),
    )
    for column, name, colour in shown:
        figure.add_trace(
            go.Bar(
                x=[str(layer) for layer in layers["layer"]],
                y=layers[column],
                name=name,
                marker={"color": colour},
                hovertemplate=f"layer %{{x}}<br>{name}: %{{y:.3f}}<extra></extra>",
            )
        )
    figure.update_xaxes(title="layer", type="category", nticks=20)
    figure.update_yaxes(title="mean share of a row", rangemode="tozero")
    return figure


def value_weighted(audit: Audit) -> go.Figure:
    """Sink mass of every head beside the same weighted by the norms of the values."""
    go = graph_objects()
    profile = audit.profile
    figure = new_figure(height=320)
    names = [label(name) for name in profile["label"].to_numpy()]
    figure.add_trace(
        go.Scatter(
            x=profile["sink_mass"].to_numpy(),
            y=profile["value_weighted_sink_mass"].to_numpy(),
            mode="markers",
            name="a head",
            marker={"size": 6, "color": COLOURS["blue"], "opacity": 0.6},
            text=names,
            hovertemplate="%{text}<br>sink mass %{x:.3f}, by value norm %{y:.3f}<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[0, 1],
            y=[0, 1],
            mode="lines",
            name="the same",
            line={"color": COLOURS["grey"], "width": 1, "dash": "dot"},
            hoverinfo="skip",
        )
    )
    figure.update_xaxes(title="sink mass", range=[0, 1])
    figure.update_yaxes(title="sink mass, weighted by value norm", range=[0, 1])
    return figure


def nearest_beyond_position(audit: Audit) -> go.Figure:
    """Likeness of every head with its nearest head beyond what position explains."""
    go = graph_objects()
    nearest = audit.positional_null().nearest.dropna()
    figure = new_figure(height=320)
    figure.add_trace(
        go.Histogram(
            x=nearest["beyond"],
            xbins={"start": -1, "end": 1.05, "size": 0.05},
            marker={"color": COLOURS["green"]},
            hovertemplate="%{x}: %{y} heads<extra></extra>",
            showlegend=False,
        )
    )
    low = min(-0.1, float(np.min(nearest["beyond"].to_numpy(), initial=0.0)))
    figure.add_vline(x=0, line={"color": COLOURS["vermilion"], "width": 2})
    figure.update_xaxes(title="likeness beyond position (0: position alone)", range=[low, 1.05])
    figure.update_yaxes(title="heads")
    return figure


FIGURES = {
    "sinks-by-layer": sinks_by_layer,
    "sinks-by-value": value_weighted,
    "beyond-position": nearest_beyond_position,
}
