"""Section: the convention card and the methods paragraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.entries import entries
from sinkwise.report.methods import methods_paragraph
from sinkwise.report.section import Heading, Quote, Section

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    card = {key: value for key, value in audit.card().items() if key != "zero_sensitivity"}
    return Section(
        id="card",
        short="Card and methods",
        title="Convention card and methods",
        question="Under which conventions do these numbers hold?",
        misleads=(
            "Numbers from two runs whose cards differ do not compare, even where they carry the "
            "same name."
        ),
        content=(
            entries(card),
            Heading("Methods paragraph"),
            Quote("methods", methods_paragraph(audit)),
        ),
    )
