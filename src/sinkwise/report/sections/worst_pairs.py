"""Section: heads that are neighbours under one convention and strangers under the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.figures.worst_pairs import LEAST_DRAWN, example_of, worst_pair_rows
from sinkwise.report.section import Block, Figure, Figures, Paragraph, Section, Table, table
from sinkwise.report.wording import metric_title, number, percent

if TYPE_CHECKING:
    import pandas as pd

    from sinkwise.studies.audit import Audit

__all__ = ["section", "two_conventions"]


def section(audit: Audit) -> Section | None:
    """Return the section; None where no classical metric has both conventions to compare."""
    measures = two_conventions(audit)
    if measures is None:
        return None
    return Section(
        id="worst-pairs",
        title="Neighbours that become strangers",
        short="Worst pairs",
        question=(
            "Which two heads are among the nearest with the sink kept and among the farthest with "
            "it dropped, and the other way round?"
        ),
        misleads=(
            "These are the extremes of very many pairs and say nothing of the others. One unusual "
            "head can fill the whole list. The rows drawn are those of a single query; the "
            "distances are means over all rows."
        ),
        content=_content(audit, *measures),
    )


def two_conventions(audit: Audit) -> tuple[str, str] | None:
    """Return one metric under both conventions, Jensen-Shannon's if all heads can be compared."""
    if audit.profile.sizes["head"] < 3:
        return None
    for metric in ("js_divergence", "cosine", "euclidean"):
        pair = f"{metric}/kept", f"{metric}/dropped"
        if not set(pair) & set(audit.not_compared):
            return pair
    return None


def _content(audit: Audit, first: str, second: str) -> tuple[Block, ...]:
    worst = audit.worst_pairs(first, second)
    if len(worst) == 0:
        return (Paragraph("Both conventions order all pairs of heads alike."),)
    blocks: list[Block] = []
    kept = example_of(audit)
    if kept is not None:
        figures = tuple(
            _rows_drawn(audit, worst, first, second, near) for near in _directions(worst)
        )
        blocks.append(Figures(figures, columns=2))
    blocks += [_table(worst, near) for near in _directions(worst)]
    return tuple(blocks)


def _directions(worst: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(worst["near_in"]))


def _rows_drawn(audit: Audit, worst: pd.DataFrame, first: str, second: str, near: str) -> Figure:
    found = example_of(audit)
    assert found is not None
    document, example = found
    pair = worst[worst["near_in"] == near].iloc[0]
    convention = near.rpartition("/")[2]
    return Figure(
        f"worst-pair-near-{convention}",
        worst_pair_rows(audit, first, second, near_in=near),
        f"{pair['label']} and {pair['other_label']}: near with the sink {convention}.",
        f"One row of either head: query {example.query} of document {document}, weights on a "
        f"logarithmic axis, those below {LEAST_DRAWN:g} at its foot. By the other convention the "
        "two are among the farthest.",
    )


def _table(worst: pd.DataFrame, near: str) -> Table:
    return table(
        f"Near by {metric_title(near)}: rank of the distance among all pairs, 0 % the nearest",
        worst[worst["near_in"] == near].to_dict("records"),
        {
            "pair": lambda r: f"{r['label']} and {r['other_label']}",
            "rank where near": lambda r: percent(r["share_near"]),
            "rank where far": lambda r: percent(r["share_far"]),
            "gap": lambda r: number(r["gap"]),
            "gap on documents that did not pick it": lambda r: number(r["held_out_gap"]),
            "picked by halves": lambda r: percent(r["picked_again"]),
            "note": lambda r: r["note"],
        },
    )
