"""Section: the regime rule, its record and what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.figures.regime import regime_strip
from sinkwise.report.section import Cards, Details, Figure, Figures, KeyFigure, Paragraph, Section
from sinkwise.report.wording import interval, level_words, percent
from sinkwise.studies.regime import regime_outcome

if TYPE_CHECKING:
    from sinkwise.report.section import Block
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; an audit of one head has no verdict and says so."""
    return Section(
        id="regime",
        short="Regime",
        title="The regime rule",
        question="Do sink masses alone warn that classical verdicts will flip?",
        misleads=(
            "A rule on one number can be right by luck: the published one was out of sample right "
            "once, silent once and wrong once. Noise over documents inflates the spread that it "
            "reads. The measured reversal rate is what counts."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    found = audit.regime()
    if found is None:
        return (Paragraph("One head has no spread over heads, so the rule has no verdict.", ""),)
    outcome = regime_outcome(audit)
    settled = "" if found["settled"] is not False else ", not settled by these documents"
    value, _, bounds = interval(found["dispersion"], found["low"], found["high"]).partition(" ")
    note = f"{level_words(audit)} interval {bounds.strip('()')}" if bounds else "no interval"
    return (
        Cards(
            (
                KeyFigure("verdict of the rule", found["verdict"], f"frozen thresholds{settled}"),
                KeyFigure("spread of sink mass over heads", value, note),
                KeyFigure(
                    "resolved JS verdicts reversed",
                    percent(outcome["rate"]),
                    f"the rule's verdict: {outcome['result']}",
                ),
            )
        ),
        Paragraph(str(found["record"]), "warning"),
        Figures(
            (
                Figure(
                    "regime-strip",
                    regime_strip(found),
                    "The spread among the rule's thresholds.",
                    "The diamond is the standard deviation over heads of their mean sink mass, as "
                    "the rule reads it; the bar its interval, with the inflation by noise over "
                    "documents taken out, so that the two need not share their middle.",
                ),
            )
        ),
        Details(
            "Where the thresholds come from",
            (Paragraph(f"{found['provenance']} {_capital(outcome['why'])}."),),
        ),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".")
