"""One look for every figure: colour-blind-safe colours, perceptually uniform scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinkwise.errors import MissingExtraError

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = ["COLOURS", "CONFIG", "SEQUENTIAL", "graph_objects", "new_figure"]

# Okabe and Ito (2008): told apart with every common form of colour blindness
COLOURS = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermilion": "#D55E00",
    "sky": "#56B4E9",
    "purple": "#CC79A7",
    "grey": "#8a8f98",
}
SEQUENTIAL = "Viridis"
CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    "plotlyServerURL": "",
}
"""Settings of plotly's own controls, for ``figure.write_html(path, config=CONFIG)`` too.

The buttons are listed by name because plotly's default ones can send the data to its servers.
"""
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def graph_objects() -> Any:
    """Return ``plotly.graph_objects``.

    Raises
    ------
    MissingExtraError
        If plotly is not installed.
    """
    try:
        import plotly.graph_objects as go
    except ImportError as error:
        raise MissingExtraError(
            "figures and reports need plotly and Jinja2, and plotly is not installed; type: "
            'pip install "sinkwise[report]"'
        ) from error
    return go


def new_figure(*, height: int, **layout: Any) -> go.Figure:
    """Return an empty figure in the house style; `layout` is passed to ``update_layout``."""
    go = graph_objects()
    axis = {
        "gridcolor": "#e3e6ea",
        "linecolor": "#b6bcc4",
        "zerolinecolor": "#c9ced5",
        "automargin": True,
        "ticks": "outside",
        "tickcolor": "#b6bcc4",
        "title": {"standoff": 8},
    }
    template = go.layout.Template(
        layout={
            "font": {"family": _FONT, "size": 13, "color": "#1c2127"},
            "paper_bgcolor": "#ffffff",
            "plot_bgcolor": "#ffffff",
            "colorway": list(COLOURS.values()),
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
            "hoverlabel": {"align": "left"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#8a8f98"},
            "legend": {
                "orientation": "h",
                "yanchor": "bottom",
                "y": 1.02,
                "x": 0,
                "itemsizing": "constant",
                "traceorder": "normal",
            },
        }
    )
    return go.Figure(layout={"template": template, "height": height, **layout})
