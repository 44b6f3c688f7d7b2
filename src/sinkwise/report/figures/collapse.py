"""Figures of entropy over checkpoints: what it is made of, and which channel changed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import interval, label, number
from sinkwise.studies.collapse import CollapseStudy
from sinkwise.studies.collapse_records import EntropyShift
from sinkwise.studies.collapse_sums import CHANNELS, RESIDUAL

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "COLLAPSE_FIGURES",
    "change_map",
    "channel_words",
    "contributions",
    "entropy_curves",
    "sink_mass_curve",
]

_COLOURS = {
    "sink": COLOURS["blue"],
    "content": COLOURS["vermilion"],
    "within_sink": COLOURS["purple"],
}
_CURVES = {
    "entropy": ("entropy of the whole row", COLOURS["grey"]),
    "content_entropy": ("content entropy, the sink left out", COLOURS["vermilion"]),
}
_DIVERGING = "RdBu_r"


def contributions(study: CollapseStudy, *, since_first: bool = False) -> go.Figure:
    """Return signed contributions of the channels to the change of entropy, stacked.

    A stack for every change between consecutive checkpoints, or between the first one and each
    other where `since_first`; the line with its intervals is the total.

    Raises
    ------
    AssertionError
        If a stack doesn't add up to its total.
    """
    names = study.names
    pairs = [(names[0] if since_first else a, b) for a, b in pairwise(names)]
    shifts = [study.change(*pair) for pair in pairs]
    for shift in shifts:
        stacked = sum(float(getattr(shift, name).value) for name in CHANNELS)
        assert abs(stacked - shift.total.value) <= RESIDUAL, (shift.first, shift.second)
    go = graph_objects()
    figure = new_figure(height=380, barmode="relative", bargap=0.25)
    x = [_change_name(study, shift, since_first) for shift in shifts]
    for name in _channels_shown(shifts):
        values = [getattr(shift, name) for shift in shifts]
        figure.add_trace(
            go.Bar(
                x=x,
                y=[float(value.value) for value in values],
                name=channel_words(name),
                marker={"color": _COLOURS[name]},
                text=[_hover(shift, name) for shift in shifts],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
            )
        )
    totals = [shift.total for shift in shifts]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=[float(total.value) for total in totals],
            error_y=_bars(totals),
            mode="lines+markers",
            name="total",
            line={"color": "#14171a", "width": 1.5},
            marker={"color": "#14171a", "size": 7, "symbol": "diamond"},
            text=[f"total {interval(*s.total)}<br>{label(s.verdict)}" for s in shifts],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(type="category", title="step" if _stepped(study) else "checkpoint")
    figure.update_yaxes(title="change of entropy (nat)", zeroline=True, zerolinewidth=1)
    return figure


def entropy_curves(study: CollapseStudy) -> go.Figure:
    """Return entropy of the whole row and of the content over the checkpoints, with intervals."""
    figure = new_figure(height=320)
    for name, (words, colour) in _CURVES.items():
        _curve(figure, study, name, words, colour)
    figure.update_yaxes(title="mean entropy (nat)", rangemode="tozero")
    return figure


def sink_mass_curve(study: CollapseStudy) -> go.Figure:
    """Return the mean sink mass over the checkpoints, with intervals."""
    figure = new_figure(height=320, showlegend=False)
    _curve(figure, study, "sink_mass", "sink mass", COLOURS["blue"])
    figure.update_yaxes(title="mean sink mass", range=[0, 1])
    return figure


def change_map(study: CollapseStudy, name: str) -> go.Figure:
    """Return a channel's change from the first checkpoint to the last, layers down, heads across.

    Blue lowers the entropy and red raises it; the scale is the same for all channels.
    """
    go = graph_objects()
    grid = study.grid(name)
    table = study.by_head()
    layers = grid["layer"].to_numpy()
    hover = np.full(grid.shape, "", dtype=object)
    for row in table.to_dict("records"):
        value = interval(row[name], row[f"{name}_low"], row[f"{name}_high"])
        place = (int(np.searchsorted(layers, row["layer"])), int(row["index"]))
        hover[place] = f"{label(row['label'])}<br>{channel_words(name)} {value}<br>{row['verdict']}"
    reach = max(float(np.nanmax(np.abs(table[[*CHANNELS, "total"]].to_numpy()))), 1e-12)
    figure = new_figure(height=max(220, min(900, 110 + 22 * len(layers))))
    figure.add_trace(
        go.Heatmap(
            z=grid.to_numpy().astype(np.float32),
            y=layers,
            text=hover.tolist(),
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=_DIVERGING,
            zmin=-reach,
            zmax=reach,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "change (nat)", "side": "right"}, "thickness": 12},
        )
    )
    figure.update_xaxes(title="head", dtick=max(1, grid.shape[1] // 12), showgrid=False)
    figure.update_yaxes(
        title="layer", autorange="reversed", showgrid=False, dtick=max(1, len(layers) // 12)
    )
    return figure


def channel_words(name: str) -> str:
    """Return a channel's name as a reader sees it."""
    return "within the sink" if name == "within_sink" else name


def _curve(figure: go.Figure, study: CollapseStudy, name: str, words: str, colour: str) -> None:
    go = graph_objects()
    table = study.checkpoints
    stepped = _stepped(study)
    value, low, high = (table[f"{name}{end}"].to_numpy() for end in ("", "_low", "_high"))
    x = [int(step) for step in table.step] if stepped else [label(n) for n in table.name]
    if np.isfinite(low).all():
        figure.add_trace(
            go.Scatter(
                x=[*x, *x[::-1]],
                y=[*high, *low[::-1]],
                fill="toself",
                fillcolor=colour,
                opacity=0.25,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
            )
        )
    figure.add_trace(
        go.Scatter(
            x=x,
            y=value,
            mode="lines+markers",
            name=words,
            line={"color": colour},
            marker={"size": 6, "color": colour},
            text=[
                f"{label(n)}<br>{words} {interval(*bounds)}"
                for n, *bounds in zip(table.name, value, low, high, strict=True)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(
        type="linear" if stepped else "category", title="step" if stepped else "checkpoint"
    )


def _stepped(study: CollapseStudy) -> bool:
    steps = study.checkpoints.step
    return bool(steps.notna().all() and steps.is_monotonic_increasing and steps.is_unique)


def _change_name(study: CollapseStudy, shift: EntropyShift, since_first: bool) -> str:
    names = dict(zip(study.names, study.names, strict=True))
    if _stepped(study):
        names = {n: f"{s:,}" for n, s in zip(study.names, study.checkpoints.step, strict=True)}
    last = label(names[shift.second])
    return last if since_first else f"{label(names[shift.first])} → {last}"


def _channels_shown(shifts: Sequence[EntropyShift]) -> list[str]:
    """The channels in which anything changed: with one sink key nothing is within it."""
    shown = [n for n in CHANNELS if any(getattr(shift, n).value != 0 for shift in shifts)]
    return shown or list(CHANNELS[:2])


def _hover(shift: EntropyShift, name: str) -> str:
    share = shift.shares[name]
    told = f"<br>share {number(share.value, 2)}" if np.isfinite(share.value) else ""
    return f"{channel_words(name)} {interval(*getattr(shift, name))}{told}"


def _bars(found: Sequence[Any]) -> dict[str, Any]:
    value, low, high = (np.array([float(f[i]) for f in found]) for i in range(3))
    return {
        "type": "data",
        "symmetric": False,
        "array": np.nan_to_num(high - value),
        "arrayminus": np.nan_to_num(value - low),
        "thickness": 1,
    }


COLLAPSE_FIGURES: Mapping[str, Callable[[CollapseStudy], Any]] = {
    "collapse": contributions,
    "collapse-since-first": partial(contributions, since_first=True),
    "collapse-entropy": entropy_curves,
    "collapse-sink-mass": sink_mass_curve,
    "collapse-map-sink": partial(change_map, name="sink"),
    "collapse-map-content": partial(change_map, name="content"),
}
