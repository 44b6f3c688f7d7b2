"""Section: heads switched off or removed, by the score that chose them, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.report.entries import entries
from sinkwise.report.figures.interchange import MEASURES
from sinkwise.report.figures.removal import removal_curves, shown_range
from sinkwise.report.section import (
    Block,
    Details,
    Figure,
    Figures,
    Paragraph,
    Section,
    Table,
    table,
)
from sinkwise.report.wording import count_of, interval, number, percent, plain, short_title
from sinkwise.studies.head_scores.registry import DEFAULT
from sinkwise.studies.prune_cells import Cell
from sinkwise.studies.prune_study import PruneStudy

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit
    from sinkwise.studies.prune_classical import AgainstClassical

__all__ = ["section"]

_OPERATIONS = {
    "zero": "heads at zero",
    "mean": "heads at their mean output",
    "remove": "heads taken out",
}
_SCOPES = {"model": "anywhere in the model", "layer": "the same number from each layer"}
_OPEN_WARNINGS = 4
_MOST_NAMED = 6


def section(audit: Audit) -> Section | None:
    """Return the section; None where no heads were removed."""
    study = audit.pruning
    if study is None or not study.records:
        return None
    return Section(
        id="removal",
        title="Removed heads",
        short="Removal",
        question="Which score chooses the heads that this model misses least?",
        misleads=(
            "The best score here is that of this model, these held-out documents and these "
            "shares. Zero and mean replacement are different questions. Heads are a small part of "
            "a model's work: fewer heads do not by themselves make it faster."
        ),
        content=tuple(_content(study)),
    )


def _content(study: PruneStudy) -> Iterator[Block]:
    yield Paragraph(_protocol(study))
    yield from (Paragraph(words, "verdict") for words in _verdicts(study))
    yield from _warnings(study)
    yield Figures(tuple(_figures(study)), columns=2)
    yield _best_table(study)
    against = _against(study)
    if against is not None:
        yield _classical_table(study, against)
        yield Paragraph(
            "Classical are scores in use before this library, relative output norm and AHON-LN "
            "among them. The documents that name a cell's best classical score also measure it, "
            "which makes its damage a little too small and the ratio a little too large. A ratio "
            "is withheld where the classical damage can't be told from 0.",
            "aside",
        )
    yield from _regime(study)
    yield Details("All scores over all cells", (_ranking_table(study),))
    yield Details("Output energy of the removed sets", (_energy_table(study), _energy_words()))
    shown = _points_table(study)
    yield Details(f"All {len(shown.rows)} sets", (shown,))
    if study.card.get("evaluation"):
        yield Details("Protocol of the evaluation", (entries(study.card["evaluation"]),))


def _protocol(study: PruneStudy) -> str:
    """The protocol in a sentence, from what the card states."""
    found: Mapping[str, Any] = study.card.get("evaluation") or {}
    tokens = sum(document["tokens"] for document in study.dense)
    what = "predicted token" if study.metric == "perplexity" else "token"
    words = (
        f"{count_of(len(study.scores), 'score')} chose heads on the calibration documents; "
        f"{count_of(len(study.dense), 'held-out document')} with {count_of(int(tokens), what)} "
        "judged them."
    )
    if found.get("window"):
        words += f" Each is cut to {plain(found['window'])} tokens."
    if "stride" in found:
        stride = found["stride"]
        words += (
            " One window a document, no stride." if stride is None else f" Stride {plain(stride)}."
        )
    if found.get("bos") is not None:
        words += f" Begins with the tokenizer's own BOS: {plain(found['bos'])}."
    if found.get("dtype"):
        words += f" Weights in {plain(found['dtype'])}."
    dense = study.dense_outcome
    if study.metric == "perplexity":
        words += f" Dense perplexity {interval(dense['value'], dense['low'], dense['high'])}."
    return words + f" Intervals are {_level(study)} over documents."


def _verdicts(study: PruneStudy) -> Iterator[str]:
    best = study.best()
    if best.score is None:
        yield f"No score is best over all cells: {best.note}."
    else:
        alike = ", ".join(best.not_told_apart)
        yield (
            f"For this model {best.score} ({study.title(best.score)}) did the least damage in "
            f"geometric mean over {len(best.cells_used)} of {len(study.damages.cells)} cells. "
            + (f"Not told apart from it: {alike}." if alike else "Every other score did more.")
            + (f" {best.note[:1].upper()}{best.note[1:]}." if best.note else "")
        )
    against = _against(study)
    if against is not None and np.isfinite(against.geometric_mean):
        words = (
            f"Damage of {against.score} over the best classical score's in each cell: "
            f"{interval(against.geometric_mean, against.low, against.high)} in geometric mean"
        )
        if against.worst is not None:
            words += f"; worst cell {against.worst[0]}: {number(against.worst[1], 2)}"
        yield words + (f" ({against.note})" if against.note else "") + "."


def _warnings(study: PruneStudy) -> Iterator[Block]:
    found = [Paragraph(f"{words}.", "warning") for words in study.warnings()]
    shown = found if len(found) == _OPEN_WARNINGS + 1 else found[:_OPEN_WARNINGS]
    yield from shown
    hidden = found[len(shown) :]
    if hidden:
        yield Details(f"{count_of(len(hidden), 'more warning')}", tuple(hidden))


def _figures(study: PruneStudy) -> Iterator[Figure]:
    points = study.points
    for operation, scope in points[["operation", "scope"]].drop_duplicates().values.tolist():
        yield Figure(
            f"removal-{operation}-{scope}",
            removal_curves(study, operation, scope),
            f"{_OPERATIONS[operation].capitalize()}, {_SCOPES[scope]}.",
            f"{_damage_words(study)} over the share of heads that are gone, on a logarithmic "
            "scale. The grey area holds all random sets, the dashed line is their median."
            + _left_out(study, operation, scope),
        )


def _left_out(study: PruneStudy, operation: str, scope: str) -> str:
    """Say which scores leave the figure: too little damage for its scale, or a ruined model."""
    curves = study.curves()
    curves = curves[(curves.operation == operation) & (curves.scope == scope)]
    faint = curves[curves.damage < shown_range(study, operation, scope)[0]]
    words = ""
    for what, rows in (("Below the figure", faint), ("Ruined", curves[np.isinf(curves.damage)])):
        gone = [
            f"{short_title(row.score)} at {percent(row.sparsity)}"
            for row in rows.head(_MOST_NAMED).itertuples()
        ]
        more = f" and {len(rows) - len(gone)} more" if len(rows) > len(gone) else ""
        words += f" {what}: {', '.join(gone)}{more}." if gone else ""
    return words


def _damage_words(study: PruneStudy) -> str:
    if study.metric == "perplexity":
        return "Damage, the rise in log-perplexity over the dense model,"
    return MEASURES[study.metric].capitalize()


def _best_table(study: PruneStudy) -> Table:
    curves = study.curves().set_index(["operation", "scope", "sparsity", "score"])

    def value(row: Mapping[str, Any]) -> str:
        if row["score"] is None:
            return ""
        found = curves.loc[(row["operation"], row["scope"], row["sparsity"], row["score"])]
        return interval(found.value, found.low, found.high)

    def band(row: Mapping[str, Any]) -> str:
        drawn = study.random_band()
        for name in ("operation", "scope", "sparsity"):
            drawn = drawn[drawn[name] == row[name]]
        return (
            f"{_value(drawn.value_least.iloc[0])} to {_value(drawn.value_most.iloc[0])}"
            if len(drawn)
            else ""
        )

    return table(
        "The best score for this model in each cell, and those that can't be told from it",
        study.best().cells.to_dict("records"),
        {
            "cell": _cell_words,
            "best": lambda r: str(r["score"] or "none"),
            study.metric: value,
            "damage": lambda r: interval(r["damage"], r["low"], r["high"]),
            "random sets": band,
            "not told apart": lambda r: _names(r["not_told_apart"]),
            "note": lambda r: str(r["note"]),
        },
        compact=False,
    )


def _classical_table(study: PruneStudy, against: AgainstClassical) -> Table:
    return table(
        f"Damage of {against.score} over that of the best classical score",
        against.cells.to_dict("records"),
        {
            "cell": _cell_words,
            "damage": lambda r: number(r["damage"], 4),
            "best classical": lambda r: str(r["classical"] or "none"),
            "its damage": lambda r: number(r["classical_damage"], 4),
            "ratio": lambda r: _ratio(r["ratio"], r["low"], r["high"]),
            "note": lambda r: str(r["note"]),
        },
    )


def _regime(study: PruneStudy) -> Iterator[Block]:
    found, said = study.happened(), study.predicted
    if said is None and found["classical"] is None:
        return
    words = (
        f"Beforehand the regime rule said “{said['verdict']}”: {said['why']}. "
        if said
        else "The regime rule said nothing beforehand. "
    )
    if found["classical"] is None:
        yield Paragraph(f"{words}What happened: {found['why']}.", "verdict")
        return
    verdicts = {
        "classical": f"{found['classical']} did less damage than the content distance",
        "content": f"the content distance did less damage than {found['classical']}",
        "undecided": f"neither the content distance nor {found['classical']} did less damage",
    }
    yield Paragraph(
        f"{words}At deletion {verdicts[found['verdict']]}: {found['why']}. "
        f"For the rule: {found['result']}.",
        "verdict",
    )
    yield Paragraph(
        "The rule was made for verdicts that reverse when the sink is dropped, not for deletion; "
        "one model is one trial.",
        "aside",
    )
    rows = found["cells"].to_dict("records")
    yield Details(
        "Content distance against classical pairs, cell by cell",
        (
            table(
                "Difference in damage, content minus classical, paired by document",
                rows,
                {
                    "classical": lambda r: str(r["classical"]),
                    "cell": _cell_words,
                    "its damage": lambda r: number(r["classical_damage"], 4),
                    "content's damage": lambda r: number(r["content_damage"], 4),
                    "difference": lambda r: interval(r["difference"], r["low"], r["high"]),
                    "less damage": lambda r: str(r["less_damage"] or "not told apart"),
                },
            ),
        ),
    )


def _ranking_table(study: PruneStudy) -> Table:
    best = study.best()
    caption = (
        f"Geometric mean of damage over {count_of(len(best.cells_used), 'cell')}, and the ratio to "
        "the best score's, paired by document"
    )
    if best.cells_left_out:
        caption += f". Left out: {'; '.join(best.cells_left_out)}"
    return table(
        caption,
        best.ranking.to_dict("records"),
        {
            "score": lambda r: str(r["score"]),
            "what goes first": lambda r: study.title(r["score"]),
            "damage": lambda r: _ratio(r["damage"], r["low"], r["high"]),
            "over the best": lambda r: _ratio(
                r["over_best"], r["over_best_low"], r["over_best_high"]
            ),
            "told apart": lambda r: "yes" if r["told_apart"] else "no",
            "best in": lambda r: count_of(int(r["cells_best"]), "cell") if r["cells_best"] else "",
        },
        compact=False,
    )


def _energy_table(study: PruneStudy) -> Table:
    """Ratio and constant share of each score's sets; both are the same whatever the operation."""
    points = study.points
    first = points.drop_duplicates(["score", "scope", "sparsity", "seed"])
    columns = first[["scope", "sparsity"]].drop_duplicates().values.tolist()
    rows = []
    for name, group in first.groupby("score", sort=False):
        cells = []
        for scope, sparsity in columns:
            here = group[(group.scope == scope) & (group.sparsity == sparsity)]
            ratio, share = here.energy_ratio.median(), here.constant_share.median()
            known = np.isfinite(ratio) or np.isfinite(share)
            cells.append(f"{number(ratio, 2)}, {percent(share)}" if known else "")
        rows.append((str(name), *cells))
    places = {"model": "anywhere", "layer": "each layer"}
    return Table(
        "Joint over summed output energy, and how much of it is constant; random sets: medians",
        ("score", *(f"{places[scope]} {percent(sparsity)}" for scope, sparsity in columns)),
        tuple(rows),
        compact=True,
    )


def _energy_words() -> Paragraph:
    return Paragraph(
        "A ratio above 1 says that the outputs of the set add up, below 1 that they cancel. The "
        "constant share is what replacing heads by their mean output gives back.",
        "aside",
    )


def _points_table(study: PruneStudy) -> Table:
    return table(
        f"Every set: {MEASURES[study.metric]}, and damage against the dense model",
        study.points.to_dict("records"),
        {
            "score": lambda r: str(r["score"]),
            "cell": _cell_words,
            "seed": lambda r: "" if r["seed"] is None else str(r["seed"]),
            "heads": lambda r: number(r["heads"]),
            study.metric: lambda r: interval(r["value"], r["low"], r["high"]),
            "damage": lambda r: interval(r["damage"], r["damage_low"], r["damage_high"]),
            "same first label": lambda r: _known(percent, r["top1_agreement"]),
            "energy ratio": lambda r: _known(number, r["energy_ratio"]),
            "constant share": lambda r: _known(percent, r["constant_share"]),
            "note": lambda r: str(r["note"]),
        },
    )


def _against(study: PruneStudy) -> AgainstClassical | None:
    """The default score against the classical ones; the best score where it was not evaluated."""
    evaluated = study.damages.scores
    score = DEFAULT if DEFAULT in evaluated else study.best().score
    classical = {s["name"] for s in study.scores if s["classical"]} & set(evaluated)
    if score is None or not classical - {score}:
        return None
    return study.against_classical(score)


def _cell_words(row: Mapping[str, Any]) -> str:
    return Cell(row["operation"], row["scope"], row["sparsity"]).words


def _names(scores: Any) -> str:
    return ", ".join(scores) if scores else "none"


def _ratio(value: float, low: float, high: float) -> str:
    return "infinite" if np.isinf(value) else interval(value, low, high)


def _value(value: float) -> str:
    return "infinite" if np.isinf(value) else number(value, 2)


def _known(words: Any, value: Any) -> str:
    return words(value) if np.isfinite(value) else ""


def _level(study: PruneStudy) -> str:
    return f"{100 * study.level:.4g} %"
