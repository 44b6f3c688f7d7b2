"""Section: heat maps of the distances between heads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.figures.distances import MATRICES, head_matrix
from sinkwise.report.matrices import condensed, has_matrix, matrix_of
from sinkwise.report.ordering import HeadOrder, shared_order
from sinkwise.report.section import Block, Figure, Figures, Paragraph, Section
from sinkwise.report.wording import metric_title, number, sentence

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]

_CAPTIONS = {
    "js_divergence/kept": "Where the weight goes, sink included.",
    "js_divergence/dropped": "Where the weight goes among the content.",
    "content": "Which keys and how sharply, blind to the sink.",
    "content_angle": "Which keys alone, blind to the sink and to sharpness.",
}


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="distances",
        short="Distances",
        title="Distances between heads",
        question="Which heads are alike, and does the picture stay when the convention changes?",
        misleads=(
            "Each map has its own units and scale, so compare patterns, not colours. The order "
            "comes from one of the matrices, which therefore looks the tidiest."
        ),
        content=tuple(_content(audit)),
    )


def _content(audit: Audit) -> Iterator[Block]:
    names = [name for name in MATRICES if has_matrix(audit.distances, name)]
    if not names:
        yield Paragraph("No two heads have a distance to draw.")
        return
    order = shared_order(audit.distances)
    yield Paragraph(_order_note(order), "aside")
    yield Figures(tuple(_map(audit, name, order) for name in names), columns=2)


def _map(audit: Audit, name: str, order: HeadOrder) -> Figure:
    pairs = condensed(matrix_of(audit.distances, name))
    finite = pairs[np.isfinite(pairs)]
    missing = pairs.size - finite.size
    caption = f"{_CAPTIONS[name]} Median over pairs {number(float(np.median(finite)))}."
    if missing:
        caption += f" {missing:,} of {pairs.size:,} pairs have no distance (blank)."
    return Figure(
        f"distances-{name.replace('/', '-')}",
        head_matrix(audit, name, order),
        sentence(metric_title(name)),
        caption,
        linked=True,
    )


def _order_note(order: HeadOrder) -> str:
    note = (
        f"All maps share one order of heads, from average linkage on the "
        f"{metric_title(order.source)}: neighbours are alike by that metric."
        if order.source in _CAPTIONS
        else f"All maps share one order of heads: {order.source}."
    )
    note += " The strip on top shows layers, light for the first and dark for the last."
    note += " Each scale ends at its 98th percentile; zooming into one map zooms into all."
    if order.per_cell > 1:
        note += (
            f" There are too many heads to draw singly: each cell is the mean over up to "
            f"{order.per_cell} × {order.per_cell} heads that stand side by side "
            "in the order, and bears the name of its first head."
        )
    return note
