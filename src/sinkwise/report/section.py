"""What a section of the report is made of; the template knows these blocks and no study.

A section is a file in ``report/sections/`` with one function, ``section(audit)``, and a line in
:data:`sinkwise.report.sections.ORDER`.  All text is plain: the template escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import plotly.graph_objects as go

__all__ = [
    "Block",
    "Cards",
    "Details",
    "Entries",
    "Figure",
    "Figures",
    "Heading",
    "KeyFigure",
    "Paragraph",
    "Quote",
    "Section",
    "Table",
    "table",
]


@dataclass(frozen=True)
class Paragraph:
    """Text; `tone` is ``""``, ``"verdict"`` (boxed), ``"aside"`` (softer) or ``"warning"``."""

    kind: ClassVar[str] = "paragraph"
    text: str
    tone: str = ""


@dataclass(frozen=True)
class Heading:
    """A heading within the section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Table:
    """Column heads and rows of text; the first cell of a row is its head.

    Where `compact`, every cell stays on one line and the table scrolls sideways if it must.
    """

    kind: ClassVar[str] = "table"
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    compact: bool = False

    def __post_init__(self) -> None:
        """Refuse rows that would shift under the wrong heads, and numbers nobody rounded."""
        for row in self.rows:
            if len(row) != len(self.head) or not all(isinstance(cell, str) for cell in row):
                raise TypeError(
                    f"a row of the table {self.caption!r} is {row!r}; expected "
                    f"{len(self.head)} texts, one for each of {self.head}"
                )


@dataclass(frozen=True)
class Figure:
    """A plotly figure with its words.

    Attributes
    ----------
    name
        Unique on the page; the element's id is ``"figure-" + name``.
    title
        A short sentence, set bold before the caption.
    caption
        What to see in it, and how it was drawn.
    linked
        Zooming into one linked figure zooms into all: for maps that share one order of heads.
    """

    name: str
    plot: go.Figure
    title: str
    caption: str
    linked: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures side by side, at most `columns` of 1, 2 or 3, fewer where the page is narrow."""

    kind: ClassVar[str] = "figures"
    figures: tuple[Figure, ...]
    columns: int = 1


@dataclass(frozen=True)
class Details:
    """Blocks that are closed until the reader opens them; open in print."""

    kind: ClassVar[str] = "details"
    summary: str
    content: tuple[Block, ...]


@dataclass(frozen=True)
class Entries:
    """Names with their text, nested as deep as needed."""

    kind: ClassVar[str] = "entries"
    entries: tuple[tuple[str, str | Entries | Table], ...]


@dataclass(frozen=True)
class KeyFigure:
    """One number in large type, with what it is and a note under it."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Cards:
    """Key figures side by side."""

    kind: ClassVar[str] = "cards"
    figures: tuple[KeyFigure, ...]


@dataclass(frozen=True)
class Quote:
    """Text to take over, with a button that copies it; `id` is unique on the page."""

    kind: ClassVar[str] = "quote"
    id: str
    text: str


Block = Paragraph | Heading | Table | Figures | Details | Entries | Cards | Quote


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes
    ----------
    id
        The name of the section's module, with dashes; links point to it.
    title
        Its heading.
    question
        The question that it answers, as a reader would ask it.
    misleads
        How a reader could be misled by it.
    content
        What it shows; where a study has nothing to say, a paragraph that tells why.
    short
        Its name in the table of contents; the title where empty.
    """

    id: str
    title: str
    question: str
    misleads: str
    content: tuple[Block, ...]
    short: str = ""


def table(
    caption: str,
    records: Iterable[Mapping[str, Any]],
    columns: Mapping[str, Callable[[Mapping[str, Any]], str]],
    *,
    compact: bool = True,
) -> Table:
    """Return a table with one row a record, and without the columns in which no row has text.

    Parameters
    ----------
    caption
        What the table holds, with its units.
    records
        Rows as mappings, for instance ``frame.to_dict("records")``.
    columns
        Head of each column with what makes its text from a record.
    compact
        Keep every cell on one line.

    Examples
    --------
    >>> from sinkwise.report.wording import number
    >>> shown = table("Masses", [{"head": "L0H1", "mass": 0.25, "note": ""}], {
    ...     "head": lambda r: r["head"], "sink mass": lambda r: number(r["mass"]),
    ...     "note": lambda r: r["note"]})
    >>> shown.head, shown.rows
    (('head', 'sink mass'), (('L0H1', '0.250'),))
    """
    rows = [tuple(text(record) for text in columns.values()) for record in records]
    kept = [i for i in range(len(columns)) if not rows or any(row[i] for row in rows)]
    head = tuple(columns)
    return Table(
        caption,
        tuple(head[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        compact,
    )
