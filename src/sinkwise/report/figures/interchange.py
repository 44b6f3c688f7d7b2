"""Figures of exchanged patterns: what they cost, and which distance foresaw it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.figures.log_axis import log_ticks
from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import interval, label, metric_title, short_title
from sinkwise.studies.interchange import RANDOM, InterchangeStudy

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = [
    "FIGURES",
    "MEASURES",
    "curve_range",
    "exchange_correlations",
    "exchange_curves",
    "exchanged_of",
]

MEASURES = {
    "perplexity": "perplexity",
    "cosine": "1 − cosine to the dense output",
    "kl": "divergence from the dense labels (nat)",
}
"""What a study's values are, by its measure."""

_LINES = [colour for name, colour in COLOURS.items() if name != "grey"]
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon")


def exchange_curves(study: InterchangeStudy, mode: str, scope: str) -> go.Figure:
    """Return the value over the share of heads that borrow, one line a distance.

    The band holds all sets of random pairs; the dotted line is the dense model, where it has a
    value of its own.
    """
    go = graph_objects()
    table = study.curves()
    table = table[(table["mode"] == mode) & (table.scope == scope)]
    figure = new_figure(
        height=400,
        xaxis={"title": {"text": "heads that borrow a pattern (%)"}},
        yaxis={"title": {"text": MEASURES[study.measure]}, "type": "log"},
    )
    drawn = table[table.metric == RANDOM].groupby("share").value.agg(["min", "max"])
    share = 100 * drawn.index.to_numpy(dtype=np.float64)
    if len(drawn):
        figure.add_trace(
            go.Scatter(
                x=[*share, *share[::-1]],
                y=[*drawn["max"], *drawn["min"][::-1]],
                fill="toself",
                fillcolor="rgba(138, 143, 152, 0.25)",
                line={"width": 1, "color": COLOURS["grey"]},
                mode="lines+markers",
                marker={"size": 4, "color": COLOURS["grey"]},
                name="random pairs",
                hoverinfo="skip",
            )
        )
    for i, name in enumerate(n for n in table.metric.unique() if n != RANDOM):
        rows = table[table.metric == name].sort_values("share")
        colour = _LINES[i % len(_LINES)]
        figure.add_trace(
            go.Scatter(
                x=100 * rows.share,
                y=rows.value,
                mode="lines+markers",
                line={"color": colour, "dash": "solid" if i < len(_LINES) else "dash"},
                marker={"symbol": _SYMBOLS[i % len(_SYMBOLS)], "size": 8, "color": colour},
                name=label(short_title(name)),
                text=[
                    f"{label(metric_title(name))}<br>{r.heads} heads borrow<br>"
                    f"{interval(r.value, r.low, r.high)}<br>"
                    f"damage {interval(r.damage, r.damage_low, r.damage_high)}"
                    for r in rows.itertuples()
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    dense = study.dense_outcome["value"]
    if dense > 0:
        figure.add_hline(y=dense, line={"dash": "dot", "color": COLOURS["grey"], "width": 1})
        figure.add_annotation(
            x=1, xref="paper", y=np.log10(dense), text="dense", showarrow=False, yanchor="bottom"
        )
    shares = sorted(100 * table.share.unique())
    figure.update_xaxes(tickvals=shares, ticktext=[f"{share:g}" for share in shares])
    low, high = curve_range(table, dense)
    shown = log_ticks(low, high)
    figure.update_yaxes(
        range=[float(np.log10(low)), float(np.log10(high))],
        tickvals=shown,
        ticktext=[f"{tick:g}" for tick in shown],
    )
    return figure


def curve_range(table: pd.DataFrame, dense: float) -> tuple[float, float]:
    """Return the values that a figure of curves shows: all, or up to a little above the band.

    One distance may ruin the model where the others do next to nothing; drawn whole, its line
    would press all others onto one.
    """
    values = table.value[np.isfinite(table.value) & (table.value > 0)]
    drawn = values[table.metric == RANDOM]
    low = float(min([*values, dense] if dense > 0 else values, default=1.0))
    most = float(max(values, default=2.0))
    high = min(most, 1.5 * float(drawn.max())) if len(drawn) else most
    return 0.95 * low, 1.05 * high


def exchange_correlations(study: InterchangeStudy, mode: str) -> go.Figure:
    """Return each distance's rank correlation with the damage of single exchanges.

    Raises
    ------
    RowError
        If no pairs were exchanged one at a time.
    """
    go = graph_objects()
    table = study.correlations()
    table = table[table["mode"] == mode][::-1]
    if not len(table):
        raise RowError(
            "no pair was exchanged one at a time, so there is no damage to correlate: run the "
            "study with single_pairs=48 (--single-pairs 48)"
        )
    titles = [label(short_title(name)) for name in table.metric]
    figure = new_figure(height=110 + 30 * len(table))
    for name, words, colour, symbol, shift in (
        ("within", "donors of one borrower", COLOURS["blue"], "circle", 0.12),
        ("pooled", "all pairs at once", COLOURS["orange"], "diamond-open", -0.12),
    ):
        value = table[name].to_numpy(dtype=np.float64)
        ends = [table[f"{name}_{end}"].to_numpy(dtype=np.float64) for end in ("low", "high")]
        figure.add_trace(
            go.Scatter(
                x=value,
                y=np.arange(len(table)) + shift,
                mode="markers",
                marker={"color": colour, "size": 9, "symbol": symbol},
                error_x={
                    "type": "data",
                    "symmetric": False,
                    "array": ends[1] - value,
                    "arrayminus": value - ends[0],
                    "thickness": 1,
                    "width": 3,
                },
                name=words,
                text=[
                    f"{title}, {words}<br>{interval(v, low, high)}"
                    for title, v, low, high in zip(titles, value, *ends, strict=True)
                ],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.update_yaxes(
        tickvals=list(range(len(table))), ticktext=titles, range=[-0.6, len(table) - 0.4]
    )
    figure.update_xaxes(title="rank correlation of distance and damage", range=[-1.05, 1.05])
    figure.add_vline(x=0, line={"dash": "dot", "color": COLOURS["grey"], "width": 1})
    return figure


def exchanged_of(audit: Audit) -> InterchangeStudy:
    """Return the study beside an audit.

    Raises
    ------
    RowError
        If there is none.
    """
    if audit.interchange is None:
        raise RowError(
            "no patterns were exchanged beside this audit: sinkwise interchange MODEL --texts ... "
            "--eval ... --out DIR"
        )
    return audit.interchange


def _curves(mode: str, scope: str) -> Callable[[Audit], Any]:
    return lambda audit: exchange_curves(exchanged_of(audit), mode, scope)


def _correlations(mode: str) -> Callable[[Audit], Any]:
    return lambda audit: exchange_correlations(exchanged_of(audit), mode)


FIGURES: Mapping[str, Callable[[Audit], Any]] = {
    **{
        f"interchange-{mode}-{scope}": _curves(mode, scope)
        for mode in ("split", "whole")
        for scope in ("model", "layer")
    },
    **{f"interchange-correlations-{mode}": _correlations(mode) for mode in ("split", "whole")},
}
"""Figures of this module by name."""
