"""Section: heads that attend with other heads' patterns, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.figures.interchange import (
    MEASURES,
    curve_range,
    exchange_correlations,
    exchange_curves,
)
from sinkwise.report.section import (
    Block,
    Details,
    Figure,
    Figures,
    Heading,
    Paragraph,
    Section,
    Table,
    table,
)
from sinkwise.report.wording import (
    count_of,
    interval,
    level_words,
    metric_title,
    number,
    percent,
    short_title,
)
from sinkwise.studies.interchange import RANDOM, InterchangeStudy

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["section"]

_MODES = {
    "split": "own sink mass kept, content pattern borrowed",
    "whole": "whole rows borrowed",
}
_SCOPES = {"model": "pairs from anywhere", "layer": "pairs within a layer"}


def section(audit: Audit) -> Section | None:
    """Return the section; None where no patterns were exchanged."""
    study = audit.interchange
    if study is None:
        return None
    return Section(
        id="interchange",
        title="Exchanged patterns",
        short="Interchange",
        question=(
            "Can a head attend with the pattern of a head that a distance calls near, and which "
            "distance finds the heads that can?"
        ),
        misleads=(
            "Near in pattern is near in function for sharing, not for deletion: a removed head "
            "takes its values and output with it. An exchange saves nothing by itself. The result "
            "is that of these documents, one rule of pairing and one model."
        ),
        content=tuple(_content(audit, study)),
    )


def _content(audit: Audit, study: InterchangeStudy) -> Iterator[Block]:
    yield Paragraph(
        "A borrowing head keeps its values and its output, and attends with the pattern of its "
        "donor. The calibration documents chose the pairs, closest first, the later head "
        f"borrowing from the earlier one; {count_of(len(study.dense), 'held-out document')} "
        "judged them. Split: the head keeps its own sink mass and borrows the content pattern."
    )
    yield from (Paragraph(words, "verdict") for words in _verdicts(study))
    curves = study.curves()
    cells = curves[["mode", "scope"]].drop_duplicates().values.tolist()
    cells.sort(key=lambda cell: (list(_MODES).index(cell[0]), list(_SCOPES).index(cell[1])))
    yield Figures(
        tuple(
            Figure(
                f"interchange-{mode}-{scope}",
                exchange_curves(study, mode, scope),
                f"{_MODES[mode].capitalize()}; {_SCOPES[scope]}.",
                f"{MEASURES[study.measure].capitalize()} over the share of heads that borrow, on a "
                "logarithmic scale. The grey band holds all sets of random pairs; the dotted line "
                "is the dense model." + _cut(study, mode, scope),
            )
            for mode, scope in cells
        ),
        columns=2,
    )
    if len(study.correlations()):
        yield from _singles(audit, study)
    shown = _points_table(study)
    yield Details(f"All {len(shown.rows)} exchanges", (shown,))


def _cut(study: InterchangeStudy, mode: str, scope: str) -> str:
    """Say which lines leave the figure, and where they go."""
    curves = study.curves()
    curves = curves[(curves["mode"] == mode) & (curves.scope == scope)]
    above = curves[curves.value > curve_range(curves, study.dense_outcome["value"])[1]]
    gone = [
        f"{short_title(name)} to {number(rows.value.max(), 2)}"
        for name, rows in above.groupby("metric", sort=False)
    ]
    return f" Above the figure: {', '.join(gone)}." if gone else ""


def _verdicts(study: InterchangeStudy) -> Iterator[str]:
    """What did least damage at the largest share, in every mode and scope."""
    best, curves = study.best(), study.curves()
    best = best[best.share == best.share.max()]
    dense = study.dense_outcome["value"]
    for mode, scope in ((m, s) for m in _MODES for s in _SCOPES):
        for row in best[(best["mode"] == mode) & (best.scope == scope)].to_dict("records"):
            kept = f" against {number(dense, 2)} dense" if study.measure == "perplexity" else ""
            drawn = curves[
                (curves.metric == RANDOM)
                & (curves["mode"] == mode)
                & (curves.scope == scope)
                & (curves.share == row["share"])
            ]
            decimals = 2 if study.measure == "perplexity" else 3
            band = (
                f", random pairs {number(drawn.value.min(), decimals)} to "
                f"{number(drawn.value.max(), decimals)}"
                if len(drawn)
                else ""
            )
            yield (
                f"{_MODES[mode].capitalize()}, {_SCOPES[scope]}, {percent(row['share'])} of the "
                f"heads: the least damage here came from pairs by {metric_title(row['metric'])}, "
                f"{study.measure} {number(row['value'], decimals)}{kept}{band}."
            )


def _singles(audit: Audit, study: InterchangeStudy) -> Iterator[Block]:
    told = study.correlations()
    pairs, borrowers = int(told.pairs.iloc[0]), int(told.borrowers.iloc[0])
    yield Heading("One pair at a time")
    yield Paragraph(
        f"{count_of(pairs, 'pair')} of {count_of(borrowers, 'borrower')}, over the whole range of "
        "the distances, were exchanged alone. Does a nearer donor do less damage? How much a "
        "borrower matters differs more between heads than between donors, so the donors of one "
        f"borrower are compared first. Bars are {level_words(audit)} intervals over documents and "
        "borrowers together."
    )
    yield Figures(
        tuple(
            Figure(
                f"interchange-correlations-{mode}",
                exchange_correlations(study, mode),
                f"Distance and damage, {_MODES[mode]}.",
                "Spearman's rank correlation: 1 where a nearer donor always does less damage, 0 "
                "where the distance says nothing of it.",
            )
            for mode in _MODES
            if mode in set(told["mode"])
        ),
        columns=2,
    )
    yield _cluster_table(study)
    yield Paragraph(
        "The probability is over two donors of one borrower, one from its own cluster and one "
        "from another: 0.5 says that the clusters know nothing of what exchanging does. "
        "Clusterings are those of the calibration documents with five clusters.",
        "aside",
    )


def _cluster_table(study: InterchangeStudy) -> Table:
    return table(
        "Exchanges within a cluster of heads and between clusters",
        study.clusters().to_dict("records"),
        {
            "clusters by": lambda r: short_title(r["metric"]),
            "method": lambda r: str(r["method"]),
            "mode": lambda r: str(r["mode"]),
            "damage within": lambda r: number(r["same_cluster"], 4),
            "damage between": lambda r: number(r["other_cluster"], 4),
            "other cluster does more damage": lambda r: interval(
                r["superiority"], r["low"], r["high"]
            ),
            "pairs within / between": lambda r: f"{r['pairs_same']} / {r['pairs_other']}",
            "comparisons": lambda r: number(r["comparisons"]),
            "note": lambda r: str(r["note"]),
        },
    )


def _points_table(study: InterchangeStudy) -> Table:
    return table(
        f"Every exchange: {MEASURES[study.measure]}, and damage against the dense model",
        study.curves().to_dict("records"),
        {
            "pairs by": lambda r: short_title(r["metric"]),
            "mode": lambda r: str(r["mode"]),
            "scope": lambda r: str(r["scope"]),
            "share": lambda r: percent(r["share"]),
            "seed": lambda r: "" if r["seed"] is None else str(r["seed"]),
            "heads": lambda r: number(r["heads"]),
            study.measure: lambda r: interval(r["value"], r["low"], r["high"]),
            "damage": lambda r: interval(r["damage"], r["damage_low"], r["damage_high"]),
            "same first label": lambda r: _agreement(r["top1_agreement"]),
            "random band": lambda r: r["against_random"],
        },
    )


def _agreement(share: Any) -> str:
    return percent(share) if np.isfinite(share) else ""
