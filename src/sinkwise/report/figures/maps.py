"""Figures of heads as points: maps by several measures, and the biplot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.theme import COLOURS, SEQUENTIAL, graph_objects, new_figure
from sinkwise.report.wording import label, percent
from sinkwise.studies.head_map import aligned_with

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "MAPPED", "biplot_figure", "map_figure"]

MAPPED = ("js_divergence/kept", "js_divergence/dropped", "content", "content_angle")
"""Measures whose maps the page shows; the first decides how the others are turned."""

_NAMED = 0.4  # of the longest arrow


def map_figure(audit: Audit, name: str = "content") -> go.Figure:
    """Heads as points by multidimensional scaling, coloured by sink mass."""
    points = audit.head_map(name).coordinates
    if name != MAPPED[0] and MAPPED[0] not in audit.not_compared:
        points = aligned_with(audit.head_map(MAPPED[0]).coordinates, points)
    points = points / max(float(np.sqrt((points**2).mean())), np.finfo(float).tiny)
    figure = _points(audit, points, colour=audit.profile["sink_mass"].to_numpy(), name="sink mass")
    figure.update_xaxes(showticklabels=False, ticks="", zeroline=False)
    figure.update_yaxes(showticklabels=False, ticks="", zeroline=False, scaleanchor="x")
    return figure


def biplot_figure(audit: Audit) -> go.Figure:
    """Heads as points and the parts of their rows as arrows."""
    found = audit.biplot()
    points, arrows = found.points.to_numpy()[:, :2], found.arrows.to_numpy()[:, :2]
    figure = _points(audit, points, colour=audit.profile["layer"].to_numpy(), name="layer")
    reach = 0.9 * float(np.abs(points).max()) / max(float(np.abs(arrows).max()), 1e-300)
    lengths = np.linalg.norm(arrows, axis=1)
    for part, length, (x, y) in zip(found.part.to_numpy(), lengths, arrows * reach, strict=True):
        figure.add_annotation(
            x=x, y=y, ax=0, ay=0, axref="x", ayref="y", showarrow=True, arrowhead=2,
            arrowcolor=COLOURS["vermilion"], arrowwidth=1.5, text="",
        )  # fmt: skip
        if length < _NAMED * lengths.max():
            continue  # short arrows lie on top of each other, and so would their names
        figure.add_annotation(
            x=1.08 * x, y=1.08 * y, showarrow=False, text=label(part),
            font={"color": COLOURS["vermilion"], "size": 12},
        )  # fmt: skip
    explained = found.explained.to_numpy()
    figure.update_xaxes(title=f"first axis ({percent(explained[0])} of the variance)")
    side = 1.05 * float(np.abs(np.concatenate([points, 1.1 * reach * arrows])).max())
    figure.update_xaxes(range=[-side, side], constrain="domain")
    figure.update_yaxes(range=[-side, side], scaleanchor="x", constrain="domain")
    figure.update_yaxes(title=f"second axis ({percent(explained[1])})")
    return figure


def _points(audit: Audit, points: np.ndarray, *, colour: np.ndarray, name: str) -> go.Figure:
    go = graph_objects()
    figure = new_figure(height=420)
    figure.add_trace(
        go.Scatter(
            x=points[:, 0].astype(np.float32),
            y=points[:, 1].astype(np.float32),
            mode="markers",
            marker={
                "size": 7,
                "opacity": 0.85,
                "color": np.asarray(colour, dtype=np.float32),
                "colorscale": SEQUENTIAL,
                "line": {"width": 0.5, "color": "#8a8f98"},
                "colorbar": {"title": {"text": name, "side": "right"}, "thickness": 10},
            },
            text=[
                f"{label(n)}<br>sink mass {m:.3f}"
                for n, m in zip(
                    audit.profile["label"].to_numpy(),
                    audit.profile["sink_mass"].to_numpy(),
                    strict=True,
                )
            ],
            hovertemplate="%{text}<extra></extra>",
            showlegend=False,
        )
    )
    return figure


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    **{f"map-{name.replace('/', '-')}": partial(map_figure, name=name) for name in MAPPED},
    "biplot": biplot_figure,
}
