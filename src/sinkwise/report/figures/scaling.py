"""Sink mass against model size: one point a model, one line a family."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.theme import COLOURS, CONFIG, graph_objects, new_figure
from sinkwise.studies.scaling import Scaling

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["scaling_figure", "write_scaling"]

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")


def scaling_figure(found: Scaling) -> go.Figure:
    """Return mean sink mass against parameters, a Theil-Sen line for each family that has one.

    Bars are intervals over documents; the lines pass through the median point of their family.

    Raises
    ------
    MissingExtraError
        If plotly is not installed.
    """
    go = graph_objects()
    sizes = found.models["parameters"].to_numpy(dtype=np.float64)
    figure = new_figure(
        height=460,
        xaxis={
            "type": "log",
            "title": {"text": "parameters"},
            "tickmode": "array",
            **_ticks(sizes.min(), sizes.max()),
        },
        yaxis={"title": {"text": "mean sink mass"}, "range": [0, 1]},
    )
    lines = found.slopes[found.slopes["statistic"] == "sink_mass"].set_index("family")
    names = found.models["family"].fillna("no family")
    for i, (family, group) in enumerate(found.models.groupby(names, sort=True)):
        colour = list(COLOURS.values())[i % len(COLOURS)]
        x, y = group["parameters"].to_numpy(dtype=np.float64), group["sink_mass"].to_numpy()
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": group["sink_mass_high"] - y,
                    "arrayminus": y - group["sink_mass_low"],
                    "thickness": 1,
                },
                mode="markers",
                marker={"color": colour, "symbol": _SYMBOLS[i % len(_SYMBOLS)], "size": 9},
                name=str(family),
                text=group["model"],
                hovertemplate="%{text}<br>%{x:.3s} parameters<br>sink mass %{y:.3f}<extra></extra>",
            )
        )
        rate = lines["theil_sen"].get(family, np.nan)
        if np.isfinite(rate):
            log_x = np.log10(x)
            ends = np.array([log_x.min(), log_x.max()])
            figure.add_trace(
                go.Scatter(
                    x=10**ends,
                    y=np.median(y) + rate * (ends - np.median(log_x)),
                    mode="lines",
                    line={"color": colour},
                    name=f"{family}: {rate:+.3f} per factor of ten",
                    hoverinfo="skip",
                )
            )
    return figure


def _ticks(smallest: float, largest: float) -> dict[str, list[Any]]:
    """One, two and five times every power of ten in sight, in thousands, millions, billions."""
    low, high = math.floor(math.log10(smallest / 2)), math.ceil(math.log10(2 * largest))
    found = [m * 10**k for k in range(max(low, 0), high + 1) for m in (1, 2, 5)]
    if len(found) > 15:
        found = found[::3]
    units = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"), (1, ""))
    texts = [next(f"{v // size} {unit}" for size, unit in units if v >= size) for v in found]
    return {"tickvals": found, "ticktext": texts}


def write_scaling(found: Scaling, path: str | Path) -> Path:
    """Write the figure as one HTML file that opens offline, and return its path."""
    figure = scaling_figure(found)
    # plotly takes entries out of the settings that it is given
    figure.write_html(str(path), config=dict(CONFIG), include_plotlyjs=True)
    return Path(path)
