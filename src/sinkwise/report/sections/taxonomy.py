"""Section: groups of heads under each metric and convention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sinkwise.report.section import Block, Details, Paragraph, Section, Table, table
from sinkwise.report.sections.reversals import CLASSICAL
from sinkwise.report.wording import interval, number, short_title
from sinkwise.studies.taxonomy_effects import what_follows

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["agreement_table", "section"]

_MAIN_PAIRS = {
    *(frozenset((f"{metric}/kept", f"{metric}/dropped")) for metric in CLASSICAL),
    frozenset(("js_divergence/kept", "content")),
    frozenset(("js_divergence/kept", "content_angle")),
}


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="taxonomy",
        title="Groups of heads",
        question="Do heads fall into the same groups under another metric or convention?",
        misleads=(
            "An agreement near 0 can come from the clustering method or the scale rather than "
            "from the sink. Average linkage chains on log-ratio distances, where nearly all heads "
            "may fall into one cluster; raw content distance also groups flat heads together, "
            "which the content angle does not."
        ),
        content=tuple(_content(audit)),
    )


def _content(audit: Audit) -> Iterator[Block]:
    if not len(audit.taxonomy()):
        yield Paragraph("Too few heads to group.")
        return
    yield Paragraph(
        "Agreement is the adjusted Rand index (1: the same groups, 0: chance). Read it against "
        "the ceilings, which are the agreement of each side with itself on separate halves of "
        "the documents. Degenerate marks a clustering that puts nearly all heads into one "
        "cluster. Where no interval stands, the documents are too few for one."
    )
    effects = audit.taxonomy_effects()
    if len(effects):
        yield Paragraph(what_follows(effects))
        yield _effects_table(effects.to_dict("records"))
    main, every = agreement_table(audit, main_pairs=True), agreement_table(audit)
    if main.rows:
        yield main
    yield Details(f"All {len(every.rows)} comparisons", (every,))


def _effects_table(effects: list[dict[str, Any]]) -> Table:
    """One effect changed at a time, and all together."""
    return table(
        "What changes the groups: the linkage, the scale or the sink, one at a time",
        effects,
        {
            "effect": lambda r: str(r["effect"]),
            "from": lambda r: f"{short_title(r['first'])}, {r['first_method']}",
            "to": lambda r: f"{short_title(r['second'])}, {r['second_method']}",
            "agreement": lambda r: interval(r["ari"], r["low"], r["high"]),
            "ceiling": lambda r: number(r["ceiling"], 2),
            "sizes, from": lambda r: _sizes(r["sizes_first"]),
            "sizes, to": lambda r: _sizes(r["sizes_second"]),
            "flag": lambda r: "degenerate" if r["degenerate"] is True else "",
        },
    )


def agreement_table(audit: Audit, *, main_pairs: bool = False) -> Table:
    """Agreement between clusterings, with ceilings, sizes and the degeneracy flag.

    With `main_pairs` only each metric against itself under the other convention, and the
    content forms against JS kept.
    """
    return table(
        "Agreement between clusterings of heads (adjusted Rand index)",
        [
            row
            for row in audit.taxonomy().to_dict("records")
            if not main_pairs or frozenset((row["first"], row["second"])) in _MAIN_PAIRS
        ],
        {
            "first": lambda r: short_title(r["first"]),
            "second": lambda r: short_title(r["second"]),
            "method": lambda r: str(r["method"]),
            "k": lambda r: number(r["k"], 0),
            "agreement": lambda r: interval(r["ari"], r["low"], r["high"]),
            "ceilings": lambda r: (
                f"{number(r['ceiling_first'], 2)} / {number(r['ceiling_second'], 2)}"
            ),
            "sizes, first": lambda r: _sizes(r["sizes_first"]),
            "sizes, second": lambda r: _sizes(r["sizes_second"]),
            "flag": lambda r: "degenerate" if r["degenerate"] is True else "",
        },
    )


def _sizes(sizes: Any) -> str:
    return sizes if isinstance(sizes, str) else ", ".join(str(int(s)) for s in sizes)
