"""Figures of sink mass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.theme import COLOURS, SEQUENTIAL, graph_objects, new_figure
from sinkwise.report.wording import interval, label, level_words

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "layer_means", "sink_by_layer", "sink_grid"]


def sink_grid(audit: Audit) -> go.Figure:
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


def sink_by_layer(audit: Audit) -> go.Figure:
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


def layer_means(audit: Audit) -> list[dict[str, float]]:
    """Return ``layer, mean, low, high`` of sink mass per layer; NaN bounds where none are known."""
    profile = audit.profile
    layer = profile["layer"].to_numpy()
    mass = profile["sink_mass"].to_numpy()
    listed = (audit.summary().get("sink_mass") or {}).get("by_layer") or []
    known = {e["layer"]: e for e in listed if isinstance(e, Mapping) and "layer" in e}
    means = []
    for number in np.unique(layer).tolist():
        entry = known.get(number, {})
        finite = mass[(layer == number) & np.isfinite(mass)]
        means.append(
            {
                "layer": number,
                "mean": float(finite.mean()) if finite.size else np.nan,
                "low": _float(entry.get("low")),
                "high": _float(entry.get("high")),
            }
        )
    return means


FIGURES = {"sink-grid": sink_grid, "sink-by-layer": sink_by_layer}


def _layer_ticks(layers: np.ndarray) -> dict[str, Any]:
    step = _step(layers.size, 16)
    return {"tickmode": "array", "tickvals": layers[::step]}


def _step(count: int, most: int) -> int:
    return max(1, -(-count // most))


def _rows_height(layers: int) -> int:
    return int(min(900, max(240, 120 + 17 * layers)))


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
