"""Section: the same verdicts under several sink sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinkwise.report.section import Paragraph, Section, table
from sinkwise.report.wording import interval, number, plain

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]

_NAMES = {
    "declared": "as declared",
    "first": "first token",
    "first4": "first four tokens",
    "bos": "the tokenizer's beginning token",
    "found": "found in each document",
}


def section(audit: Audit) -> Section | None:
    """Return the section; None where the rows were summed under no other sink set."""
    found = audit.sink_sets()
    if len(found) < 2:
        return None
    n_documents = int(found.documents.iloc[0])
    return Section(
        id="sink-sets",
        title="Other sink sets",
        short="Sink sets",
        question="Would the conclusions be the same had the sink been chosen otherwise?",
        misleads=(
            "A set that holds content keys drops content with the sink. The found set is chosen "
            "from the very rows it is judged on. A set that some documents lack is judged on the "
            "others alone."
        ),
        content=(
            table(
                "The same rows, with the sink chosen in other ways",
                found.to_dict("records"),
                {
                    "sink set": lambda r: _NAMES.get(r["sink_set"], r["sink_set"]),
                    "keys in sight": lambda r: number(r["keys"], 1),
                    "sink mass": lambda r: interval(
                        r["sink_mass"], r["sink_mass_low"], r["sink_mass_high"]
                    ),
                    "spread over heads": lambda r: number(r["dispersion"]),
                    "JS kept vs dropped": lambda r: interval(
                        r["kept_vs_dropped"], r["low"], r["high"]
                    ),
                    "content verdicts changed": lambda r: number(r["against_declared"]),
                    "documents": lambda r: (
                        "" if r["documents"] == n_documents else plain(r["documents"])
                    ),
                    "note": lambda r: r["note"],
                },
            ),
            Paragraph(
                "JS kept vs dropped is the share of verdicts reversed by dropping that set. A "
                "learned or virtual sink is part of every set. Content verdicts changed is the "
                "share on which content distance with that set dropped disagrees with content "
                "distance as declared.",
                "aside",
            ),
        ),
    )
