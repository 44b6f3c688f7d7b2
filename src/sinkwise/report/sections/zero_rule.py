"""Section: how much the log-ratio results hang on the zero rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.entries import entry
from sinkwise.report.section import Paragraph, Section

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section | None:
    """Return the section, or None where the card holds no results by zero rule."""
    results = audit.card().get("zero_sensitivity")
    if not results:
        return None
    shown = entry(results, "Results by zero rule")
    return Section(
        id="zero-rule",
        short="Zero rule",
        title="Sensitivity to the zero rule",
        question=(
            "How much do the log-ratio results move with what is done to weights that rounded to 0?"
        ),
        misleads=(
            "Where a result changes with the rule, it is a result about the rule. Rows from "
            "logits need none."
        ),
        content=(Paragraph(shown) if isinstance(shown, str) else shown,),
    )
