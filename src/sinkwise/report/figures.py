"""The figures of the report, each a function of an audit that returns a plotly figure.

Every figure stands alone: ``figures.sink_grid(audit).write_html("sinks.html")``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.bands import BAND_METRICS, band, row_ceiling
from sinkwise.report.ordering import HeadOrder, shared_order
from sinkwise.report.snapshot import AuditLike, layer_means, level_words, matrix_of
from sinkwise.report.theme import COLOURS, SEQUENTIAL, graph_objects, new_figure
from sinkwise.report.wording import interval, label, metric_title, number, percent, short_title
from sinkwise.studies.channels import CHANNELS, channel_shares, channel_shares_by_layer

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "FIGURES",
    "MATRICES",
    "UNITS",
    "band_plot",
    "channels_by_layer",
    "channels_overall",
    "draw",
    "head_matrix",
    "reversal_grid",
    "sink_by_layer",
    "sink_grid",
]

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
_CHANNEL_COLOURS = {
    "balance": COLOURS["blue"],
    "dispersion": COLOURS["orange"],
    "direction": COLOURS["green"],
    "within_sink": COLOURS["purple"],
}
MOST_POINTS = 4000


def sink_grid(audit: AuditLike) -> go.Figure:
    """Mean sink mass, layers down and heads across; layers may have different numbers of heads."""
    profile = audit.profile
    layer, index = profile["layer"].to_numpy(), profile["index"].to_numpy()
    layers = np.unique(layer)
    row = np.searchsorted(layers, layer)
    shape = (layers.size, int(index.max()) + 1)
    mass, hover = np.full(shape, np.nan, np.float32), np.full(shape, "", dtype=object)
    values = (profile[f"sink_mass{suffix}"].to_numpy() for suffix in ("", "_low", "_high"))
    names = profile["label"].to_numpy()
    for r, c, name, *bounds in zip(row, index, names, *values, strict=True):
        mass[r, c] = bounds[0]
        hover[r, c] = f"{label(name)}<br>sink mass {interval(*bounds)}"
    go = graph_objects()
    figure = new_figure(height=_rows_height(layers.size))
    figure.add_trace(
        go.Heatmap(
            z=mass,
            y=layers,
            text=hover.tolist(),
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=SEQUENTIAL,
            zmin=0,
            zmax=1,
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": "sink mass", "side": "right"}, "thickness": 12},
        )
    )
    figure.update_xaxes(title="head", dtick=_step(shape[1], 12), showgrid=False)
    figure.update_yaxes(title="layer", autorange="reversed", showgrid=False)
    figure.update_yaxes(**_layer_ticks(layers))
    return figure


def sink_by_layer(audit: AuditLike) -> go.Figure:
    """Mean sink mass of each layer with its interval, and every head as a dot."""
    go = graph_objects()
    profile = audit.profile
    means = layer_means(audit)
    layers = np.array([m["layer"] for m in means])
    figure = new_figure(height=_rows_height(layers.size))
    names = [label(name) for name in profile["label"].to_numpy()]
    figure.add_trace(
        go.Scatter(
            x=profile["sink_mass"].to_numpy(),
            y=profile["layer"].to_numpy(),
            mode="markers",
            name="a head",
            marker={"size": 6, "color": COLOURS["grey"], "opacity": 0.55},
            text=names,
            hovertemplate="%{text}: %{x:.3f}<extra></extra>",
        )
    )
    mean = np.array([m["mean"] for m in means])
    low, high = (np.array([m[k] for m in means]) for k in ("low", "high"))
    known = np.isfinite(low) & np.isfinite(high)
    figure.add_trace(
        go.Scatter(
            x=mean,
            y=layers,
            mode="lines+markers",
            name=f"layer mean, {level_words(audit)} interval" if known.any() else "layer mean",
            marker={"size": 8, "color": COLOURS["vermilion"]},
            line={"width": 1.5, "color": COLOURS["vermilion"]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": np.where(known, high - mean, 0),
                "arrayminus": np.where(known, mean - low, 0),
                "thickness": 1.5,
                "width": 3,
            },
            text=[
                f"layer {m['layer']}<br>sink mass {interval(m['mean'], m['low'], m['high'])}"
                for m in means
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(title="sink mass", range=[-0.02, 1.02])
    figure.update_yaxes(title="layer", autorange="reversed", **_layer_ticks(layers))
    return figure


def reversal_grid(audit: AuditLike) -> go.Figure:
    """Reversal rate between every two (metric, convention) names."""
    frame = audit.reversals()
    if len(frame) == 0:
        raise RowError(
            "no reversal rates arrived, expected at least 3 heads: with fewer there is no "
            'verdict "which of two heads is nearer" to reverse; audit a model with more heads'
        )
    go = graph_objects()
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    place = {name: i for i, name in enumerate(names)}
    rate = np.full((len(names), len(names)), np.nan)
    hover = np.full(rate.shape, "", dtype=object)
    for pair in frame.itertuples():
        shown = interval(pair.rate, pair.low, pair.high)
        text = f"{label(metric_title(pair.first))}<br>{label(metric_title(pair.second))}"
        text += f"<br>reversed {shown}" + _note(pair.note)
        for r, c in ((pair.first, pair.second), (pair.second, pair.first)):
            rate[place[r], place[c]] = pair.rate
            hover[place[r], place[c]] = text
    titles = [label(short_title(name)) for name in names]
    figure = new_figure(height=90 + 44 * len(names) + 80)
    figure.add_trace(
        go.Heatmap(
            z=rate,
            x=titles,
            y=titles,
            text=hover.tolist(),
            hovertemplate="%{text}<extra></extra>",
            hoverongaps=False,
            colorscale=SEQUENTIAL,
            zmin=0,
            zmax=0.5,
            xgap=1,
            ygap=1,
            colorbar={
                "title": {"text": "share of verdicts reversed", "side": "right"},
                "tickformat": ".0%",
                "thickness": 12,
            },
        )
    )
    row, column = np.nonzero(np.isfinite(rate))
    # one text trace rather than the cells' own text: its colour follows the cell under it
    figure.add_trace(
        go.Scatter(
            x=[titles[c] for c in column],
            y=[titles[r] for r in row],
            mode="text",
            text=[f"{100 * v:.0f}" for v in rate[row, column]],
            textfont={"color": ["#14171a" if v > 0.28 else "#ffffff" for v in rate[row, column]]},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    figure.update_xaxes(showgrid=False, tickangle=-40)
    figure.update_yaxes(showgrid=False, autorange="reversed")
    return figure


def head_matrix(
    audit: AuditLike, name: str = "content", order: HeadOrder | None = None
) -> go.Figure:
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


def channels_overall(audit: AuditLike) -> go.Figure:
    """Share of the squared Aitchison distance taken by each channel, over all pairs of heads."""
    go = graph_objects()
    figure = new_figure(height=170, barmode="stack", margin={"l": 16, "r": 30, "t": 76, "b": 36})
    for name, share in _channels_shown(channel_shares(audit.distances)).items():
        figure.add_trace(
            go.Bar(
                x=[share],
                y=["all pairs"],
                orientation="h",
                name=f"{name.replace('_', ' ')}: {CHANNELS[name]}",
                marker={"color": _CHANNEL_COLOURS[name]},
                text=[percent(share)],
                textposition="inside",
                insidetextanchor="middle",
                insidetextfont={"color": "#ffffff" if name == "balance" else "#14171a"},
                hovertemplate=f"{CHANNELS[name]}: %{{text}}<extra></extra>",
            )
        )
    figure.update_xaxes(range=[0, 1], tickformat=".0%", dtick=0.2)
    figure.update_yaxes(visible=False)
    figure.update_layout(legend={"traceorder": "normal"})
    return figure


def channels_by_layer(audit: AuditLike) -> go.Figure:
    """The same shares for the heads of each layer against all other heads."""
    go = graph_objects()
    layers = channel_shares_by_layer(audit.distances)
    x = [str(entry["layer"]) for entry in layers]
    figure = new_figure(height=320, barmode="stack", bargap=0.15, showlegend=False)
    for name in _channels_shown(channel_shares(audit.distances)):
        share = np.array([entry[name] for entry in layers])
        figure.add_trace(
            go.Bar(
                x=x,
                y=share,
                name=name,
                marker={"color": _CHANNEL_COLOURS[name]},
                customdata=[
                    f"layer {e['layer']}<br>{CHANNELS[name]}: {percent(e[name])}"
                    f"<br>of a mean squared distance of {number(e['total'])}"
                    for e in layers
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure.update_xaxes(title="layer", type="category", nticks=20)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", title="share of squared distance")
    return figure


def band_plot(audit: AuditLike, metric: str = "cosine") -> go.Figure:
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


def draw(name: str, audit: AuditLike) -> go.Figure:
    """Return the figure called `name`, one of :data:`FIGURES`."""
    if name not in FIGURES:
        raise RowError(f"no figure is called {name!r}; expected one of {sorted(FIGURES)}")
    return FIGURES[name](audit)


def _matrix_drawer(name: str) -> Callable[[AuditLike], Any]:
    return lambda audit: head_matrix(audit, name)


def _band_drawer(metric: str) -> Callable[[AuditLike], Any]:
    return lambda audit: band_plot(audit, metric)


FIGURES: Mapping[str, Callable[[AuditLike], Any]] = {
    "sink-grid": sink_grid,
    "sink-by-layer": sink_by_layer,
    "reversals": reversal_grid,
    **{
        f"distances-{name.replace('/', '-')}": _matrix_drawer(name)
        for name in (
            *MATRICES,
            "aitchison",
            *(f"{m}/{c}" for m in ("cosine", "euclidean") for c in ("kept", "dropped")),
        )
    },
    "channels": channels_overall,
    "channels-by-layer": channels_by_layer,
    **{f"band-{metric}": _band_drawer(metric) for metric in BAND_METRICS},
}
"""Figures by the name that ``sinkwise figure NAME RUN`` takes."""


def _channels_shown(shares: Mapping[str, float]) -> dict[str, float]:
    """Leave out the within-sink channel where the sink has one key."""
    return {n: s for n, s in shares.items() if n != "within_sink" or s > 0}


def _point_style(count: int) -> dict[str, float]:
    """Large and solid for a few points, small and faint for thousands."""
    return {"size": 8, "opacity": 0.8} if count < 200 else {"size": 4, "opacity": 0.35}


def _note(note: Any) -> str:
    return f"<br>{label(note)}" if isinstance(note, str) and note else ""


def _layer_ticks(layers: np.ndarray) -> dict[str, Any]:
    step = _step(layers.size, 16)
    return {"tickmode": "array", "tickvals": layers[::step]}


def _step(count: int, most: int) -> int:
    return max(1, -(-count // most))


def _rows_height(layers: int) -> int:
    return int(min(900, max(240, 120 + 17 * layers)))
