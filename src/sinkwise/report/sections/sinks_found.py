"""Section: where the sinks are, whatever was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.figures.sinks_found import sinks_by_layer, value_weighted
from sinkwise.report.section import Block, Details, Figure, Figures, Paragraph, Section, table
from sinkwise.report.wording import count_of, interval, number, percent, plain
from sinkwise.studies.sinks import describe_rule

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]


def section(audit: Audit) -> Section:
    """Return the section; every audit has one."""
    return Section(
        id="sinks-found",
        title="Sinks found",
        question="Is the declared sink where the sink is, and are there others?",
        misleads=(
            "A found sink is chosen from the rows that then describe it, so its mass is a little "
            "too large. Keys that fewer than half of the rows see are left out, so a sink late in "
            "a document is missed. Much weight on a key whose value is small moves little."
        ),
        content=_content(audit),
    )


def _content(audit: Audit) -> tuple[Block, ...]:
    evidence = audit.sinks()
    documents = evidence.documents
    secondary = float(documents.secondary_mass.mean())
    found = float(documents.found.map(len).mean())
    blocks: list[Block] = []
    if evidence.warning:
        blocks.append(Paragraph(f"{evidence.warning}.", "warning"))
    several = int((documents.secondary_mass > 0).sum())
    blocks.append(
        Paragraph(
            f"Found by rule: {describe_rule()}. That gives {number(found, 1)} keys a document on "
            f"average; keys outside the declared sink are among them in {several} of "
            f"{count_of(len(documents), 'document')} and take {percent(secondary)} of a row."
        )
    )
    figures = []
    if audit.declared_positions:
        figures.append(
            Figure(
                "sinks-by-layer",
                sinks_by_layer(audit),
                "Declared and other found sinks by layer.",
                "Where the light blue bars stand high, heads of that layer have their sink "
                "elsewhere, and the declared sink alone leaves it among the content.",
            )
        )
    weighted = audit.profile["value_weighted_sink_mass"].to_numpy()
    if np.isfinite(weighted).any():
        figures.append(
            Figure(
                "sinks-by-value",
                value_weighted(audit),
                "What the sink's weight moves.",
                "Weights times the norms of the values behind them: under the dotted line, a "
                f"head's sink has small values. Mean {number(float(np.nanmean(weighted)))} against "
                f"{number(float(audit.profile['sink_mass'].mean()))} plain.",
            )
        )
    if figures:
        blocks.append(Figures(tuple(figures), columns=2))
    blocks.append(
        table(
            "Positions with the most weight, over heads and the rows that see them",
            evidence.positions.to_dict("records"),
            {
                "position": lambda r: plain(r["position"]),
                "token": lambda r: _shown(r["token"]),
                "mean weight": lambda r: interval(r["mass"], r["low"], r["high"]),
                "heads over 0.3": lambda r: percent(r["over_0.3"]),
                "heads over 0.8": lambda r: percent(r["over_0.8"]),
                "strongest in layer": lambda r: f"{r['layer']} ({number(r['layer_mass'], 2)})",
                "declared": lambda r: "yes" if r["declared"] else "",
            },
        )
    )
    if len(evidence.tokens):
        tokens = table(
            "Tokens outside the declared sink with the most weight (three occurrences or more)",
            evidence.tokens.to_dict("records"),
            {
                "token": lambda r: _shown(r["token"]),
                "occurrences": lambda r: plain(r["occurrences"]),
                "mean weight": lambda r: number(r["mass"]),
                "of them sinks": lambda r: plain(r["found"]),
            },
        )
        blocks.append(Details("Tokens outside the declared sink", (tokens,)))
    control = audit.repeated_tokens()
    if control is not None:
        blocks.append(Paragraph(_control(audit, control)))
    return tuple(blocks)


def _control(audit: Audit, control: dict[str, Any]) -> str:
    repeated = np.array([np.nan if m is None else m for m in control["sink_mass"]], dtype=float)
    plain_mass = audit.profile["sink_mass"].to_numpy()
    tokens = ", ".join(_shown(t) for t in control["tokens"])
    return (
        f"Control: on documents of one token repeated {control['length']} times ({tokens}), where "
        "content can single out no key, the declared sink takes "
        f"{number(float(np.nanmean(repeated)))} of a row, against "
        f"{number(float(np.nanmean(plain_mass)))} on the texts. What stays is "
        "made by position (or by the tokenizer's own beginning token); what goes, and what comes, "
        "hangs on the text."
    )


def _shown(token: str) -> str:
    """A token as it can be read: quotes around it, line breaks and tabs spelt out."""
    return "" if not token else repr(str(token))
