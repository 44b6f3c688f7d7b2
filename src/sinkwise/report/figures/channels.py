"""Figures of the three channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import number, percent
from sinkwise.studies.channels import CHANNELS, channel_shares, channel_shares_by_layer

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "channels_by_layer", "channels_overall"]

_CHANNEL_COLOURS = {
    "balance": COLOURS["blue"],
    "dispersion": COLOURS["orange"],
    "direction": COLOURS["green"],
    "within_sink": COLOURS["purple"],
}


def channels_overall(audit: Audit) -> go.Figure:
    """Share of the squared Aitchison distance taken by each channel, over all pairs of heads."""
    go = graph_objects()
    figure = new_figure(height=170, barmode="stack", margin={"l": 16, "r": 30, "t": 76, "b": 36})
    for name, share in _channels_shown(channel_shares(audit.distances)).items():
        figure.add_trace(
            go.Bar(
                x=[share],
                y=["all pairs"],
                orientation="h",
                name=f"{name.replace('_', ' ')}: {CHANNELS[name]}",
                marker={"color": _CHANNEL_COLOURS[name]},
                text=[percent(share)],
                textposition="inside",
                insidetextanchor="middle",
                insidetextfont={"color": "#ffffff" if name == "balance" else "#14171a"},
                hovertemplate=f"{CHANNELS[name]}: %{{text}}<extra></extra>",
            )
        )
    figure.update_xaxes(range=[0, 1], tickformat=".0%", dtick=0.2)
    figure.update_yaxes(visible=False)
    return figure


def channels_by_layer(audit: Audit) -> go.Figure:
    """The same shares for the heads of each layer against all other heads."""
    go = graph_objects()
    layers = channel_shares_by_layer(audit.distances)
    x = [str(entry["layer"]) for entry in layers]
    figure = new_figure(height=320, barmode="stack", bargap=0.15, showlegend=False)
    for name in _channels_shown(channel_shares(audit.distances)):
        share = np.array([entry[name] for entry in layers])
        figure.add_trace(
            go.Bar(
                x=x,
                y=share,
                name=name,
                marker={"color": _CHANNEL_COLOURS[name]},
                customdata=[
                    f"layer {e['layer']}<br>{CHANNELS[name]}: {percent(e[name])}"
                    f"<br>of a mean squared distance of {number(e['total'])}"
                    for e in layers
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure.update_xaxes(title="layer", type="category", nticks=20)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", title="share of squared distance")
    return figure


def _channels_shown(shares: Mapping[str, float]) -> dict[str, float]:
    """Leave out the within-sink channel where the sink has one key."""
    return {n: s for n, s in shares.items() if n != "within_sink" or s > 0}


FIGURES = {"channels": channels_overall, "channels-by-layer": channels_by_layer}
