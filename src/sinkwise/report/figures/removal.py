"""Figures of removed heads: what every score's sets cost, beside random sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.figures.interchange import MEASURES
from sinkwise.report.figures.log_axis import log_ticks
from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import interval, label, short_title
from sinkwise.studies.prune_study import DEFAULT, PruneStudy

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "highlighted", "removal_curves", "removal_of", "shown_range"]

_MARKED = {
    DEFAULT: ("blue", "circle"),
    "js_divergence/kept": ("orange", "square"),
    "michel": ("green", "triangle-up"),
    "relative_output_norm": ("purple", "diamond"),
    "content": ("sky", "cross"),
}
"""Scores that every figure sets apart; the best score too, where it is none of them."""

_FAINT = "rgba(138, 143, 152, 0.55)"
_REACH = 1.3
"""How far above the random band a figure reaches, as a factor of what the band adds to the rest."""


def highlighted(study: PruneStudy) -> dict[str, tuple[str, str]]:
    """Return the scores to set apart, with colour and symbol: the best one, and well-known ones."""
    best = study.best().score
    chosen = {} if best is None or best in _MARKED else {best: ("vermilion", "star")}
    known = {score["name"] for score in study.scores}
    return chosen | {name: look for name, look in _MARKED.items() if name in known}


def removal_curves(study: PruneStudy, operation: str, scope: str) -> go.Figure:
    """Return the value over the share of heads that are gone, one line a score.

    A few scores are coloured, the others thin and grey with their names under the pointer.  The
    band holds all random sets, with their median; the dotted line is the dense model, where it
    has a value of its own.

    Raises
    ------
    RowError
        If the study has no such cell.
    """
    go = graph_objects()
    curves = study.curves()
    curves = curves[(curves.operation == operation) & (curves.scope == scope)]
    band = study.random_band()
    band = band[(band.operation == operation) & (band.scope == scope)].sort_values("sparsity")
    if not len(curves) and not len(band):
        raise RowError(f"no heads were removed by {operation!r} with scope {scope!r}")
    figure = new_figure(
        height=430,
        xaxis={"title": {"text": "heads gone (%)"}},
        yaxis={"title": {"text": MEASURES[study.metric]}, "type": "log"},
    )
    if len(band):
        _add_band(go, figure, band)
    marked = highlighted(study)
    others = [name for name in curves.score.unique() if name not in marked]
    for name in others:
        look = {"color": _FAINT, "width": 1}
        _add_curve(
            go,
            figure,
            study,
            curves[curves.score == name],
            name="other scores",
            line=look,
            marker={"size": 4, "color": _FAINT},
            legendgroup="others",
            showlegend=name == others[0],
        )
    best = study.best().score
    for name, (colour, symbol) in reversed(marked.items()):
        rows = curves[curves.score == name]
        if len(rows):
            _add_curve(
                go,
                figure,
                study,
                rows,
                name=label(short_title(name)) + (" (best here)" if name == best else ""),
                line={"color": COLOURS[colour], "width": 2.5},
                marker={"size": 9, "symbol": symbol, "color": COLOURS[colour]},
                legendrank=list(marked).index(name),
            )
    dense = study.dense_outcome["value"]
    if dense > 0:
        figure.add_hline(y=dense, line={"dash": "dot", "color": COLOURS["grey"], "width": 1})
        figure.add_annotation(
            x=1, xref="paper", y=np.log10(dense), text="dense", showarrow=False, yanchor="top"
        )
    _set_axes(figure, study, operation, scope)
    return figure


def shown_range(study: PruneStudy, operation: str, scope: str) -> tuple[float, float]:
    """Return the values that a figure shows: all, or up to a little above the random band.

    One score may ruin the model where the others do next to nothing; drawn whole, its line would
    press all others onto one.
    """
    points = study.points
    points = points[(points.operation == operation) & (points.scope == scope)]
    values = points.value[np.isfinite(points.value) & (points.value > 0)]
    dense = study.dense_outcome["value"]
    low = float(min([*values, dense] if dense > 0 else values, default=1.0))
    most = float(max(values, default=2.0))
    drawn = values[points.kind == "random"]
    if not len(drawn):
        return 0.97 * low, 1.05 * most
    return 0.97 * low, min(1.05 * most, low * (float(drawn.max()) / low) ** _REACH)


def removal_of(audit: Audit) -> PruneStudy:
    """Return the study beside an audit.

    Raises
    ------
    RowError
        If there is none.
    """
    study = audit.pruning
    if study is None:
        raise RowError(
            "no heads were removed beside this audit: sinkwise prune MODEL --texts ... --eval ... "
            "--out DIR"
        )
    return study


def _add_band(go: Any, figure: go.Figure, band: pd.DataFrame) -> None:
    share = 100 * band.sparsity.to_numpy(dtype=np.float64)
    finite = np.where(np.isfinite(band.value_most), band.value_most, 1e30)
    figure.add_trace(
        go.Scatter(
            x=[*share, *share[::-1]],
            y=[*finite, *band.value_least[::-1]],
            fill="toself",
            fillcolor="rgba(138, 143, 152, 0.18)",
            line={"width": 0},
            mode="lines",
            name="random sets",
            legendrank=2000,
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=share,
            y=band.value_median,
            mode="lines+markers",
            line={"width": 1.5, "color": COLOURS["grey"], "dash": "dash"},
            marker={"size": 5, "color": COLOURS["grey"]},
            name="their median",
            legendrank=2001,
            text=[
                f"random, {row.seeds} seeds<br>{interval(row.value_median, np.nan, np.nan)}, from "
                f"{row.value_least:.4g} to {row.value_most:.4g}"
                for row in band.itertuples()
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )


def _add_curve(
    go: Any, figure: go.Figure, study: PruneStudy, rows: pd.DataFrame, **look: Any
) -> None:
    rows = rows.sort_values("sparsity")
    figure.add_trace(
        go.Scatter(
            x=100 * rows.sparsity,
            y=rows.value.where(np.isfinite(rows.value)),
            mode="lines+markers",
            text=[
                f"{label(row.score)}<br>{label(study.title(row.score))}<br>{row.heads} heads gone"
                f"<br>{interval(row.value, row.low, row.high)}<br>"
                f"damage {interval(row.damage, row.damage_low, row.damage_high)}"
                for row in rows.itertuples()
            ],
            hovertemplate="%{text}<extra></extra>",
            **look,
        )
    )


def _set_axes(figure: go.Figure, study: PruneStudy, operation: str, scope: str) -> None:
    points = study.points
    points = points[(points.operation == operation) & (points.scope == scope)]
    shares = sorted(100 * points.sparsity.unique())
    figure.update_xaxes(tickvals=shares, ticktext=[f"{share:.4g}" for share in shares])
    low, high = shown_range(study, operation, scope)
    shown = log_ticks(low, high)
    figure.update_yaxes(
        range=[float(np.log10(low)), float(np.log10(high))],
        tickvals=shown,
        ticktext=[f"{tick:g}" for tick in shown],
    )


def _curves(operation: str, scope: str) -> Callable[[Audit], Any]:
    return lambda audit: removal_curves(removal_of(audit), operation, scope)


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    f"removal-{operation}-{scope}": _curves(operation, scope)
    for operation in ("zero", "mean")
    for scope in ("model", "layer")
}
"""Figures of this module by name."""
