"""Figures of reversed verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.theme import COLOURS, SEQUENTIAL, graph_objects, new_figure
from sinkwise.report.wording import interval, label, metric_title, short_title

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "reversal_grid", "reversals_by_layer_distance", "reversals_by_sink_gap"]


def reversal_grid(audit: Audit) -> go.Figure:
    """Reversal rate between every two (metric, convention) names."""
    frame = audit.reversals()
    if len(frame) == 0:
        raise RowError(
            "no reversal rates arrived, expected at least 3 heads: with fewer there is no "
            'verdict "which of two heads is nearer" to reverse; audit a model with more heads'
        )
    go = graph_objects()
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    place = {name: i for i, name in enumerate(names)}
    rate = np.full((len(names), len(names)), np.nan)
    hover = np.full(rate.shape, "", dtype=object)
    for pair in frame.itertuples():
        shown = interval(pair.rate, pair.low, pair.high)
        text = f"{label(metric_title(pair.first))}<br>{label(metric_title(pair.second))}"
        text += f"<br>reversed {shown}" + _note(pair.note)
        for r, c in ((pair.first, pair.second), (pair.second, pair.first)):
            rate[place[r], place[c]] = pair.rate
            hover[place[r], place[c]] = text
    titles = [label(short_title(name)) for name in names]
    figure = new_figure(height=90 + 44 * len(names) + 80)
    figure.add_trace(
        go.Heatmap(
            z=rate,
            x=titles,
            y=titles,
            text=hover.tolist(),
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=SEQUENTIAL,
            zmin=0,
            zmax=0.5,
            xgap=1,
            ygap=1,
            colorbar={
                "title": {"text": "share of verdicts reversed", "side": "right"},
                "tickformat": ".0%",
                "thickness": 12,
            },
        )
    )
    row, column = np.nonzero(np.isfinite(rate))
    # one text trace rather than the cells' own text: its colour follows the cell under it
    figure.add_trace(
        go.Scatter(
            x=[titles[c] for c in column],
            y=[titles[r] for r in row],
            mode="text",
            text=[f"{100 * v:.0f}" for v in rate[row, column]],
            textfont={"color": ["#14171a" if v > 0.28 else "#ffffff" for v in rate[row, column]]},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.update_xaxes(showgrid=False, tickangle=-40)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    return figure


def reversals_by_layer_distance(
    audit: Audit, first: str = "js_divergence/kept", second: str = "js_divergence/dropped"
) -> go.Figure:
    """Mean share of reversed verdicts of two heads, by how many layers lie between them."""
    places = _places(audit, first, second, "layer_distance")
    go = graph_objects()
    figure = new_figure(height=300)
    figure.add_trace(
        go.Bar(
            x=places["low"],
            y=places["rate"],
            marker={"color": COLOURS["blue"]},
            customdata=places["pairs"],
            hovertemplate="%{x:.0f} layers apart<br>reversed %{y:.1%}"
            "<br>%{customdata:,} pairs of heads<extra></extra>",
        )
    )
    figure.update_xaxes(title="layers between the two heads", rangemode="tozero")
    figure.update_yaxes(title="share reversed", tickformat=".0%", rangemode="tozero")
    return figure


def reversals_by_sink_gap(
    audit: Audit, first: str = "js_divergence/kept", second: str = "js_divergence/dropped"
) -> go.Figure:
    """Mean share of reversed verdicts of two heads, by the gap of their sink masses."""
    places = _places(audit, first, second, "sink_mass_gap").dropna()
    go = graph_objects()
    figure = new_figure(height=300)
    width = places["high"] - places["low"]
    figure.add_trace(
        go.Bar(
            x=places["low"] + width / 2,
            y=places["rate"],
            width=width.clip(lower=0.004),
            marker={"color": COLOURS["orange"], "line": {"color": "#ffffff", "width": 1}},
            customdata=places[["low", "high", "pairs"]],
            hovertemplate="gap %{customdata[0]:.3f} to %{customdata[1]:.3f}"
            "<br>reversed %{y:.1%}<br>%{customdata[2]:,} pairs of heads<extra></extra>",
        )
    )
    figure.update_xaxes(title="gap in mean sink mass of the two heads", rangemode="tozero")
    figure.update_yaxes(title="share reversed", tickformat=".0%", rangemode="tozero")
    return figure


def _places(audit: Audit, first: str, second: str, by: str) -> Any:
    places = audit.reversal_places(first, second)
    if len(places) == 0:
        raise RowError(
            "no reversals to place arrived, expected at least 3 heads: audit a model with more"
        )
    return places[places["by"] == by]


def _note(note: Any) -> str:
    return f"<br>{label(note)}" if isinstance(note, str) and note else ""


FIGURES = {
    "reversals": reversal_grid,
    "reversals-by-layer-distance": reversals_by_layer_distance,
    "reversals-by-sink-gap": reversals_by_sink_gap,
}
