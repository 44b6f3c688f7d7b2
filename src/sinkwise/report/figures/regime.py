"""Figure of the regime rule: the spread of sink mass among its thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import interval

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["regime_strip"]


def regime_strip(found: Mapping[str, Any]) -> go.Figure:
    """Return the spread and its interval on an axis cut by the two thresholds.

    `found` is the verdict of :func:`sinkwise.studies.regime.regime`.
    """
    go = graph_objects()
    spread, low, high = (
        np.nan if found[key] is None else float(found[key]) for key in ("dispersion", "low", "high")
    )
    safe, unsafe = found["safe_below"], found["unsafe_above"]
    end = max(0.3, 1.1 * np.nanmax([spread, high]))
    figure = new_figure(height=170)
    for left, right, colour, words in (
        (0, safe, "blue", "safe"),
        (safe, unsafe, "grey", "abstain"),
        (unsafe, end, "vermilion", "unsafe"),
    ):
        figure.add_vrect(
            x0=left,
            x1=right,
            fillcolor=COLOURS[colour],
            opacity=0.15,
            line_width=0,
            annotation_text=words,
            annotation_position="top left",
        )
    known = np.isfinite(low) and np.isfinite(high)
    figure.add_trace(
        go.Scatter(
            x=[(low + high) / 2] if known else [],
            y=[0] if known else [],
            error_x={"type": "data", "array": [(high - low) / 2] if known else [], "width": 6},
            mode="markers",
            marker={"size": 1, "color": COLOURS["vermilion"]},
            showlegend=False,
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[spread],
            y=[0],
            mode="markers",
            marker={"size": 11, "symbol": "diamond", "color": COLOURS["vermilion"]},
            showlegend=False,
            text=[f"spread {interval(spread, low, high)}"],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(title="standard deviation of mean sink mass over heads", range=[0, end])
    figure.update_yaxes(visible=False, range=[-1, 1.4])
    return figure
