"""Section: heads as points, and how much of their distances is the sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.errors import RowError
from sinkwise.report.figures.maps import MAPPED, biplot_figure, map_figure
from sinkwise.report.matrices import condensed, matrix_of
from sinkwise.report.section import Block, Figure, Figures, Heading, Paragraph, Section, table
from sinkwise.report.wording import metric_title, number, sentence

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section | None:
    """Return the section; None for fewer than 4 heads, whose map says nothing."""
    if len(audit.heads) < 4:
        return None
    return Section(
        id="head-maps",
        title="Maps of heads",
        short="Maps",
        question="What does the whole picture of the heads follow under each measure?",
        misleads=(
            "A plane can't hold all distances: look at the stress, and at pairs in the heat maps. "
            "Turn, mirror image and scale of a map mean nothing. Permutation p-values treat heads "
            "as exchangeable, which heads of one layer are not quite."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    blocks: list[Block] = []
    shown = [name for name in MAPPED if name not in audit.not_compared]
    if shown:
        blocks.append(Figures(tuple(_map(audit, name) for name in shown), columns=2))
    else:
        blocks.append(Paragraph("Some two heads have no distance, so there is no map of all."))
    association = audit.sink_association()
    if len(association):
        spearman = association[association.method == "spearman"].to_dict("records")
        blocks += [
            Heading("How much of each distance is the gap in sink mass"),
            table(
                "Mantel rank correlation of distances with gaps in mean sink mass",
                spearman,
                {
                    "measure": lambda r: metric_title(r["measure"]),
                    "correlation": lambda r: number(r["r"], 2),
                    "p": lambda r: number(r["p"]),
                    "given content distance": lambda r: number(r["partial_r"], 2),
                    "p, given content": lambda r: number(r["partial_p"]),
                    "note": lambda r: r["note"],
                },
            ),
        ]
    blocks += _biplot(audit)
    return tuple(blocks)


def _biplot(audit: Audit) -> list[Block]:
    try:
        parts = audit.biplot()
    except RowError as error:
        return [Paragraph(f"No biplot: {error}.")]
    if parts.sizes["axis"] < 2 or not float(parts.explained.sum()) > 0:
        return []
    return [
        Heading("What heads share out"),
        Figures(
            (
                Figure(
                    "biplot",
                    biplot_figure(audit),
                    "Heads by their mean shares: the sink, and content by distance behind the "
                    "query.",
                    "Compositional biplot. A head lies in the direction of the parts it has "
                    "more of than other heads, in ratio to its other parts. Opposite arrows "
                    "trade with each other; heads near each other share out alike.",
                ),
            ),
            columns=2,
        ),
    ]


def _map(audit: Audit, name: str) -> Figure:
    stress = audit.head_map(name).stress
    whole = float((condensed(matrix_of(audit.distances, name)) ** 2).sum())
    share = (stress / whole) ** 0.5 if whole > 0 else 0.0
    return Figure(
        f"map-{name.replace('/', '-')}",
        map_figure(audit, name),
        sentence(metric_title(name)),
        "Coloured by sink mass: where the colours are sorted, the map shows the sink. "
        f"Stress {number(share, 2)} of the distances' root mean square.",
    )
