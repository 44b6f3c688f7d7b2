"""Heat maps of the distances between heads, in one shared order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.matrices import matrix_of
from sinkwise.report.ordering import HeadOrder, shared_order
from sinkwise.report.theme import SEQUENTIAL, graph_objects, new_figure
from sinkwise.report.wording import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "MATRICES", "UNITS", "head_matrix"]

MATRICES = ("js_divergence/kept", "js_divergence/dropped", "content", "content_angle")
"""The distance heat maps that the page shows side by side."""
UNITS = {
    "content": "Aitchison units",
    "content_angle": "radians",
    "aitchison": "Aitchison units",
    "cosine": "1 − similarity",
    "js_divergence": "nats",
    "euclidean": "",
}


def head_matrix(audit: Audit, name: str = "content", order: HeadOrder | None = None) -> go.Figure:
    """Distances between all heads by one metric, in an order shared with the other heat maps.

    The scale ends at the 98th percentile, so that a few far heads don't wash out the rest.
    """
    go = graph_objects()
    distances = audit.distances
    order = order if order is not None else shared_order(distances)
    cells = order.cells(matrix_of(distances, name)).astype(np.float32)
    names = [label(n) for n in order.names([str(n) for n in distances["label"].to_numpy()])]
    layer = order.layers(distances["layer"].to_numpy()).astype(np.float32)
    off = cells[~np.eye(cells.shape[0], dtype=bool)]
    off = off[np.isfinite(off)]
    top = float(np.quantile(off, 0.98)) if off.size else 1.0
    metric = name.partition("/")[0]
    figure = new_figure(height=430, margin={"l": 64, "r": 8, "t": 8, "b": 64})
    figure.add_trace(
        go.Heatmap(
            z=cells,
            x=names,
            y=names,
            hovertemplate="%{y} – %{x}<br>%{z:.4g}<extra></extra>",
            hoverongaps=False,
            colorscale=SEQUENTIAL,
            zmin=0,
            zmax=top if top > 0 else 1.0,
            colorbar={
                "title": {"text": label(UNITS.get(metric, "")), "side": "right"},
                "thickness": 10,
            },
        )
    )
    figure.add_trace(
        go.Heatmap(
            z=layer[None, :],
            x=names,
            y=["layer"],
            yaxis="y2",
            colorscale="Greys",
            showscale=False,
            hovertemplate="%{x}<br>layer %{z:.3g}<extra></extra>",
        )
    )
    figure.update_layout(
        xaxis={"showgrid": False, "nticks": 14, "tickangle": -60, "tickfont": {"size": 10}},
        yaxis={
            "showgrid": False,
            "nticks": 22,
            "tickfont": {"size": 10},
            "autorange": "reversed",
            "domain": [0.0, 0.945],
        },
        yaxis2={"domain": [0.955, 1.0], "showgrid": False, "tickfont": {"size": 10}, "ticks": ""},
    )
    return figure


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    f"distances-{name.replace('/', '-')}": partial(head_matrix, name=name)
    for name in (
        *MATRICES,
        "aitchison",
        *(f"{m}/{c}" for m in ("cosine", "euclidean") for c in ("kept", "dropped")),
    )
}
