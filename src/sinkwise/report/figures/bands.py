"""Figures of the collapse bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.bands import BAND_METRICS, band, row_ceiling
from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import label, metric_title

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "MOST_POINTS", "band_plot"]

MOST_POINTS = 4000
"""Pairs of heads that are drawn, at most."""


def band_plot(audit: Audit, metric: str = "cosine") -> go.Figure:
    """Kept distance of pairs of heads against the content mass that bounds it.

    At most 4,000 pairs are drawn (seed 0).  For cosine the curve is the ceiling of one pair of
    rows; a pair of heads has the mean of its rows' ceilings, drawn as open marks.

    Raises
    ------
    RowError
        If no ceiling holds: the sink set has several keys, or no pair of heads has a distance.
    """
    whole = band(audit.distances, metric)
    if whole is None:
        raise RowError(
            f"no ceiling of {metric!r} arrived; the closed form holds for a sink of one key and "
            'needs the kept distances: audit again with a single sink key, for example sink="first"'
        )
    go = graph_objects()
    shown = whole.subsample(MOST_POINTS)
    names = [label(n) for n in audit.distances["label"].to_numpy()]
    ends = (shown.first, shown.second)
    figure = new_figure(height=360)
    if metric == "cosine":
        figure.add_trace(
            go.Scatter(
                x=shown.larger_content_mass.astype(np.float32),
                y=shown.ceiling.astype(np.float32),
                mode="markers",
                name="its ceiling",
                legendrank=1001,
                hoverinfo="skip",
                marker={"color": COLOURS["orange"], **_point_style(shown.distance.size)},
            )
        )
    figure.add_trace(
        go.Scatter(
            x=shown.larger_content_mass.astype(np.float32),
            y=shown.distance.astype(np.float32),
            mode="markers",
            name="pair of heads",
            marker={"color": COLOURS["blue"], **_point_style(shown.distance.size)},
            text=[f"{names[a]} – {names[b]}" for a, b in zip(*ends, strict=True)],
            hovertemplate="%{text}<br>content mass %{x:.3f}, distance %{y:.4g}<extra></extra>",
        )
    )
    x = np.linspace(0, 1, 101)
    figure.add_trace(
        go.Scatter(
            x=x,
            y=row_ceiling(metric, x),
            mode="lines",
            name="row ceiling" if metric == "cosine" else "ceiling",
            line={"color": COLOURS["vermilion"], "width": 2},
            hovertemplate="ceiling at %{x:.2f}: %{y:.4g}<extra></extra>",
        )
    )
    figure.update_xaxes(title="larger content mass of the two heads", range=[0, 1])
    figure.update_yaxes(title=label(metric_title(f"{metric}/kept")), rangemode="tozero")
    return figure


def _point_style(count: int) -> dict[str, float]:
    """Large and solid for a few points, small and faint for thousands."""
    return {"size": 8, "opacity": 0.8} if count < 200 else {"size": 4, "opacity": 0.35}


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    f"band-{metric}": partial(band_plot, metric=metric) for metric in BAND_METRICS
}
