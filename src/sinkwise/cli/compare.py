"""``sinkwise compare RUN RUN``: what a setting changed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from sinkwise.cli.output import plain_errors, print_json
from sinkwise.cli.tables import cell, text_table

__all__ = ["compare_command"]

_HEADS_SHOWN = 10


def compare_command(
    first: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of an audit.", show_default=False)
    ],
    second: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of another.", show_default=False)
    ],
    paired: Annotated[
        bool | None,
        typer.Option(
            "--paired/--unpaired",
            help="Whether both runs are of the same documents.",
            show_default="by their fingerprint",
        ),
    ] = None,
    different_models: Annotated[
        bool, typer.Option("--different-models", help="Compare two models of one shape.")
    ] = False,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of halves and exchanges.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Say what changed between two runs of one model.

    Prints first how their cards differ; then what changed, with intervals, over
    all heads and head by head; and whether the order of distances between heads
    changed by more than noise over documents.
    """
    with plain_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what it says is printed first
        from sinkwise.studies.compare import compare

        found = compare(
            first,
            second,
            paired=paired,
            allow_different_models=different_models,
            level=level,
            seed=seed,
        )
    if as_json:
        from sinkwise.studies.jsonable import jsonable

        print_json(
            jsonable(
                {
                    "first": str(first),
                    "second": str(second),
                    "differences": found.differences,
                    "measures_differ": found.measures_differ,
                    "paired": found.paired,
                    "level": found.level,
                    "model": found.model,
                    "heads": found.heads,
                    "geometry": found.geometry,
                    "notes": found.notes,
                }
            )
        )
    elif not quiet:
        typer.echo(_as_text(found))


def _as_text(found: Any) -> str:
    lines = []
    if found.measures_differ:
        lines += [f"The runs differ in what they measure: {', '.join(found.measures_differ)}.", ""]
    if len(found.differences):
        differences = [
            [row.kind, row.entry, _short(row.first), _short(row.second)]
            for row in found.differences.itertuples()
        ]
        lines += ["The cards differ in", text_table(("", "entry", "first", "second"), differences)]
    else:
        lines.append("The cards say the same.")
    lines += [
        "",
        f"All heads, second less first, intervals at {found.level:g}",
        text_table(tuple(found.model), found.model.astype(object).values.tolist()),
        "",
        _heads(found.heads),
    ]
    if len(found.geometry):
        lines += [
            "",
            "Verdicts on which head is nearer that differ between the runs",
            text_table(
                (
                    "measure",
                    "rate",
                    "halves: between",
                    "in first",
                    "in second",
                    "excess",
                    "p",
                    "q",
                    "note",
                ),
                found.geometry.astype(object).values.tolist(),
            ),
        ]
    return "\n".join([*lines, "", *(f"Note: {text}." for text in found.notes)])


def _heads(heads: Any) -> str:
    changed = heads[heads["q_value"] <= 0.05]
    counts = ", ".join(
        f"{name} {int((changed['quantity'] == name).sum())}" for name in heads["quantity"].unique()
    )
    lines = [
        f"Heads changed at a false discovery rate of 0.05, of {heads['head'].nunique()}: {counts}"
    ]
    mass = changed[changed["quantity"] == "sink_mass"]
    if len(mass):
        top = mass.reindex(mass["change"].abs().sort_values(ascending=False).index)
        top = top.head(_HEADS_SHOWN)
        columns = ["head", "first", "second", "change", "low", "high", "q_value"]
        lines += [
            "Largest changes of sink mass (each interval for its head alone)",
            text_table(tuple(columns), top[columns].astype(object).values.tolist()),
        ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = cell(value)
    return text if len(text) <= 40 else text[:37] + "..."
