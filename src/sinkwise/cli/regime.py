"""``sinkwise regime RUN...``: the rule's verdict, its record, and what really happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sinkwise.cli.output import plain_errors, print_json
from sinkwise.cli.tables import text_table

__all__ = ["regime_command"]


def regime_command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of finished audits.", show_default=False),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Ask the regime rule whether classical measures are likely to mislead.

    One run: the verdict from the spread of sink mass over heads, the rule's
    record, and what really happened. Several: a table, thresholds fitted to
    them, and the score of such thresholds on models left out.
    """
    with plain_errors():
        found = _one(runs[0]) if len(runs) == 1 else _several(runs)
    if as_json:
        from sinkwise.studies.jsonable import jsonable

        print_json(jsonable(found))
    elif not quiet:
        typer.echo(_one_as_text(found) if len(runs) == 1 else _several_as_text(found))


def _one(run: Path) -> dict[str, Any]:
    from sinkwise.errors import RowError
    from sinkwise.runs.audit import open_audit
    from sinkwise.studies.regime import regime_outcome

    audit = open_audit(run)
    verdict = audit.regime()
    if verdict is None:
        raise RowError(f"{run} has a single head: the rule reads the spread over heads")
    model = audit.card().get("model")
    return {"run": str(run), "model": model, **verdict, "outcome": regime_outcome(audit)}


def _several(runs: list[Path]) -> dict[str, Any]:
    from sinkwise.errors import RowError
    from sinkwise.studies.regime_fit import fit_regime, regime_table

    table = regime_table(runs)
    found: dict[str, Any] = {"runs": table, "fit": None, "fit_refused": None}
    try:
        fit = fit_regime(table)
        found["fit"] = {
            "safe_below": fit.safe_below,
            "unsafe_above": fit.unsafe_above,
            "cost": fit.cost,
            "constant_cost": fit.constant_cost,
            "left_out": fit.table,
            "score": dict(fit.score),
        }
    except RowError as refusal:
        found["fit_refused"] = str(refusal)
    return {**found, "record": table.attrs["record"]}


def _one_as_text(found: dict[str, Any]) -> str:
    outcome = found["outcome"]
    unsettled = " (not settled by these documents)" if found["settled"] is False else ""
    return "\n".join(
        [
            f"Verdict: {found['verdict']}{unsettled}",
            f"Why: {found['why']}.",
            f"Record: {found['record']}",
            f"What happened: {outcome['result']}. {_sentence(outcome['why'])}",
            f"Thresholds: {_sentence(found['provenance'])}",
        ]
    )


def _several_as_text(found: dict[str, Any]) -> str:
    table = found["runs"]
    head = ("run", "spread", "low", "high", "verdict", "settled", "reversals", "result")
    columns = ("run", "dispersion", "low", "high", "verdict", "settled", "rate", "result")
    lines = [
        text_table(head, table[list(columns)].astype(object).values.tolist()),
        "",
        f"Record: {found['record']}",
        "Reversals are among resolved Jensen-Shannon verdicts, sink kept against dropped.",
        "",
    ]
    fit = found["fit"]
    if fit is None:
        return "\n".join([*lines, f"No fit: {found['fit_refused']}."])
    score = fit["score"]
    cost, constant = fit["cost"], fit["constant_cost"]
    lines += [
        f"Fitted to these runs: safe below {fit['safe_below']:.3f}, unsafe above "
        f"{fit['unsafe_above']:.3f}; cost {cost:g}, against {constant:g} for one answer to all.",
        f"On models left out: {_counts(score)}.",
        f"The frozen rule on the same runs: {_counts(score['frozen'])}.",
    ]
    if cost >= constant:
        lines.append("A rule that costs no less than one answer to all says nothing.")
    return "\n".join(lines)


def _counts(score: dict[str, Any]) -> str:
    return f"{score['hits']} hits, {score['misses']} misses, {score['abstentions']} abstentions"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
