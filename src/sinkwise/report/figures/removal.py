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
from sinkwise.studies.head_scores.registry import DEFAULT
from sinkwise.studies.prune_study import PruneStudy

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
_DECADES = 3
"""How far below the largest damage a figure reaches at most, in powers of ten."""


def highlighted(study: PruneStudy) -> dict[str, tuple[str, str]]:
    """Return the scores to set apart, with colour and symbol: the best one, and well-known ones."""
    best = study.best().score
    chosen = {} if best is None or best in _MARKED else {best: ("vermilion", "star")}
    known = {score["name"] for score in study.scores}
    return chosen | {name: look for name, look in _MARKED.items() if name in known}


def removal_curves(study: PruneStudy, operation: str, scope: str) -> go.Figure:
    """Return the damage over the share of heads that are gone, one line a score.

    On a logarithmic axis, so that a score that ruins the model hides no other.  A few scores are
    coloured, the others thin and grey with their names under the pointer.  The band holds all
    random sets, with their median.

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
        yaxis={"title": {"text": _axis_title(study)}, "type": "log"},
        legend={"entrywidth": 128},
    )
    low, high = shown_range(study, operation, scope)
    if len(band):
        _add_band(go, figure, band, low, high)
    marked = highlighted(study)
    others = [name for name in curves.score.unique() if name not in marked]
    for name in others:
        _add_curve(
            go,
            figure,
            study,
            curves[curves.score == name],
            name="other scores",
            line={"color": _FAINT, "width": 1},
            marker={"size": 4, "color": _FAINT},
            legendgroup="others",
            showlegend=name == others[0],
        )
    for name, (colour, symbol) in reversed(marked.items()):
        rows = curves[curves.score == name]
        if len(rows):
            _add_curve(
                go,
                figure,
                study,
                rows,
                name=label(short_title(name)),
                line={"color": COLOURS[colour], "width": 2.5},
                marker={"size": 9, "symbol": symbol, "color": COLOURS[colour]},
                legendrank=list(marked).index(name),
            )
    points = study.points
    points = points[(points.operation == operation) & (points.scope == scope)]
    shares = sorted(100 * points.sparsity.unique())
    figure.update_xaxes(tickvals=shares, ticktext=[f"{share:.4g}" for share in shares])
    ticks = log_ticks(low, high)
    figure.update_yaxes(
        range=[float(np.log10(low)), float(np.log10(high))],
        tickvals=ticks,
        ticktext=[_tick(study, tick) for tick in ticks],
    )
    return figure


def shown_range(study: PruneStudy, operation: str, scope: str) -> tuple[float, float]:
    """Return the damages that a figure shows: the positive ones, over three decades at most."""
    points = study.points
    points = points[(points.operation == operation) & (points.scope == scope)]
    damage = points.damage[np.isfinite(points.damage) & (points.damage > 0)]
    high = float(max(damage, default=1.0))
    low = max(float(min(damage, default=0.1)), high / 10**_DECADES)
    return 0.85 * low, 1.15 * high


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


def _add_band(go: Any, figure: go.Figure, band: pd.DataFrame, low: float, high: float) -> None:
    share = 100 * band.sparsity.to_numpy(dtype=np.float64)
    # a logarithmic axis has no place for what is not positive, and a fill none for what is infinite
    most, least = (band[name].clip(low / 10, high * 10) for name in ("most", "least"))
    figure.add_trace(
        go.Scatter(
            x=[*share, *share[::-1]],
            y=[*most, *least[::-1]],
            fill="toself",
            fillcolor="rgba(138, 143, 152, 0.28)",
            line={"width": 0},
            mode="lines",
            name="random sets",
            legendgroup="random",
            legendrank=2000,
            hoverinfo="skip",
        )
    )
    figure.add_trace(
        go.Scatter(
            x=share,
            y=_drawable(band["median"]),
            mode="lines+markers",
            line={"width": 1.5, "color": COLOURS["grey"], "dash": "dash"},
            marker={"size": 5, "color": COLOURS["grey"]},
            name="median of random",
            legendgroup="random",
            showlegend=False,
            text=[
                f"random sets, {row.seeds} seeds<br>median {row.value_median:.4g}, from "
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
            y=_drawable(rows.damage),
            mode="lines+markers",
            text=[
                f"{label(row.score)}<br>{label(study.title(row.score))}<br>{row.heads} heads gone"
                f"<br>{study.metric} {interval(row.value, row.low, row.high)}<br>"
                f"damage {interval(row.damage, row.damage_low, row.damage_high)}"
                for row in rows.itertuples()
            ],
            hovertemplate="%{text}<extra></extra>",
            **look,
        )
    )


def _drawable(damage: pd.Series) -> pd.Series:
    return damage.where(np.isfinite(damage) & (damage > 0))


def _axis_title(study: PruneStudy) -> str:
    return "damage, nat (perplexity)" if study.metric == "perplexity" else MEASURES[study.metric]


def _tick(study: PruneStudy, damage: float) -> str:
    """A damage, and the perplexity that it makes of the dense model's."""
    if study.metric != "perplexity":
        return f"{damage:g}"
    with np.errstate(over="ignore"):
        value = study.dense_outcome["value"] * np.exp(damage)
    return f"{damage:g} ({value:.1f})" if value < 100 else f"{damage:g} ({value:,.0f})"


def _curves(operation: str, scope: str) -> Callable[[Audit], Any]:
    return lambda audit: removal_curves(removal_of(audit), operation, scope)


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    f"removal-{operation}-{scope}": _curves(operation, scope)
    for operation in ("zero", "mean")
    for scope in ("model", "layer")
}
"""Figures of this module by name."""
