"""Section: which likeness is position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.errors import RowError
from sinkwise.report.figures.sinks_found import nearest_beyond_position
from sinkwise.report.section import Block, Details, Figure, Figures, Paragraph, Section, table
from sinkwise.report.wording import number, percent

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]

_LEAST_LIKE = 0.1


def section(audit: Audit) -> Section | None:
    """Return the section; None for images, whose keys have no order, and for single heads."""
    card = audit.card()
    images = card.get("tokenizer") is None and card.get("source") != "arrays"
    if len(audit.heads) < 2 or images:
        return None
    return Section(
        id="position",
        title="Position alone",
        question="Are two heads alike, or do both only look at recent keys?",
        misleads=(
            "A profile by offset takes up a little noise, so the share is somewhat too large. "
            "Content at fixed offsets (a repeated layout) counts as position. Likeness beyond "
            "position is that of log-ratios, in which faint keys count as much as strong ones."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    try:
        null = audit.positional_null()
    except RowError as error:
        return (Paragraph(f"Not split: {error}."),)
    nearest = null.nearest.dropna()
    if not len(nearest):
        return (Paragraph("No two heads see the same keys with a distance between them."),)
    alone = nearest[nearest.beyond < _LEAST_LIKE]
    told = (
        f"The heads' mean profiles by offset give {percent(null.share, null.low, null.high)} of "
        "the mean squared content distance. Once they are taken out, a head and its nearest have a "
        f"likeness of {number(float(nearest.beyond.median()), 2)} in the median (1: the same rows; "
        f"0: alike by position alone); {len(alone)} of {len(nearest)} heads have less than "
        f"{_LEAST_LIKE:g} with their nearest."
    )
    blocks: list[Block] = [
        Paragraph(told),
        Figures(
            (
                Figure(
                    "beyond-position",
                    nearest_beyond_position(audit),
                    "Likeness with the nearest head beyond position.",
                    "Each head counts once. The line marks the null: nothing in common but where "
                    "they look.",
                ),
            ),
            columns=2,
        ),
    ]
    if len(alone):
        blocks.append(
            Details(
                "Heads that are alike by position alone",
                (
                    table(
                        "Nearest heads by content distance with next to nothing in common beyond "
                        "position",
                        alone.sort_values("beyond").head(20).to_dict("records"),
                        {
                            "head": lambda r: str(r["head"]),
                            "nearest": lambda r: str(r["nearest"]),
                            "content distance (rms)": lambda r: number(r["distance"]),
                            "of it by position": lambda r: number(r["positional"]),
                            "likeness beyond": lambda r: number(r["beyond"], 2),
                        },
                    ),
                ),
            )
        )
    return tuple(blocks)
