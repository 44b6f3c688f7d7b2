"""Figures of the head pairs on which two measures disagree most: a row of each head."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.report.theme import COLOURS, graph_objects, new_figure
from sinkwise.report.wording import label

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from sinkwise.accumulate.example import ExampleRow
    from sinkwise.studies.audit import Audit

__all__ = ["FIGURES", "LEAST_DRAWN", "example_of", "worst_pair_rows"]

LEAST_DRAWN = 1e-6
"""Weights below it are drawn at the foot of the logarithmic axis."""


def example_of(audit: Audit) -> tuple[int, ExampleRow] | None:
    """Return the first document of which a row of every head was kept, with that row."""
    for document in audit.store.documents:
        example = audit.store.example(document)
        if example is not None:
            return document, example
    return None


def worst_pair_rows(
    audit: Audit,
    first: str = "js_divergence/kept",
    second: str = "js_divergence/dropped",
    *,
    near_in: str | None = None,
) -> go.Figure:
    """One row of either head of the worst pair that is near by `near_in` (`first` by default).

    Raises
    ------
    RowError
        If there is no such pair, or no row was kept.
    """
    near_in = near_in or first
    worst = audit.worst_pairs(first, second)
    worst = worst[worst["near_in"] == near_in]
    kept = example_of(audit)
    if len(worst) == 0 or kept is None:
        raise RowError(
            f"no two heads are nearer by {near_in}, or no example row was kept: rows are kept "
            "unless heads times keys are too many; audit again to have them"
        )
    document, example = kept
    pair = worst.iloc[0]
    tokens = audit.store.tokens(document)
    names = [_key(position, tokens) for position in example.positions]
    go = graph_objects()
    figure = new_figure(height=340)
    place = np.arange(len(example.positions))
    for head, name, colour, symbol in (
        ("head", "label", "blue", "circle"),
        ("other", "other_label", "orange", "diamond"),
    ):
        log_weights = example.log_weights[int(pair[head])]
        seen = np.isfinite(log_weights)
        weights = np.maximum(np.exp(log_weights[seen].astype(np.float64)), LEAST_DRAWN)
        sink = example.sink[seen]
        figure.add_trace(
            go.Scatter(
                x=place[seen],
                y=weights.astype(np.float32),
                mode="lines+markers",
                name=label(pair[name]),
                line={"color": COLOURS[colour], "width": 1},
                marker={"size": np.where(sink, 12, 4), "symbol": symbol},
                text=[names[i] for i in np.flatnonzero(seen)],
                hovertemplate="%{text}<br>weight %{y:.3g}<extra></extra>",
            )
        )
    figure.update_xaxes(title="key; the sink is drawn large")
    figure.update_yaxes(
        title="attention weight",
        type="log",
        range=[np.log10(LEAST_DRAWN) - 0.3, 0.15],
        dtick=1,
        exponentformat="power",
    )
    return figure


def _key(position: int, tokens: np.ndarray | None) -> str:
    if position < 0:
        return "virtual sink"
    if tokens is None or position >= len(tokens):
        return f"key {position}"
    return f"key {position}: {label(repr(str(tokens[position])))}"


FIGURES: dict[str, Callable[..., Any]] = {
    "worst-pair-near-kept": worst_pair_rows,
    "worst-pair-near-dropped": partial(worst_pair_rows, near_in="js_divergence/dropped"),
}
