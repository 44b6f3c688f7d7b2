"""Section: which estimator answers which question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.section import Section, Table
from sinkwise.studies.guide import GUIDE

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section, the same for every audit."""
    return Section(
        id="guide",
        short="Guide",
        title="Which estimator answers which question",
        question="What should be computed for the question at hand, and reported with it?",
        misleads=(
            "No estimator is best for every question, and on some models the classical distances "
            "serve better than the log-ratio ones."
        ),
        content=(
            Table(
                "Questions, estimators and their limits",
                ("question", "estimator", "when it is safe", "how it misleads", "what to report"),
                tuple((a.question, a.estimator, a.safe, a.misleads, a.report) for a in GUIDE),
            ),
        ),
    )
