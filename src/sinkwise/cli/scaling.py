"""``sinkwise scaling RUN...``: sink mass against parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sinkwise.cli.output import note, plain_errors, print_json
from sinkwise.cli.tables import text_table

__all__ = ["scaling_command"]


def scaling_command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of finished audits.", show_default=False),
    ],
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameters",
            metavar="RUN=N",
            help="Parameter count of a run (or model) whose card has none; may be repeated.",
        ),
    ] = None,
    families: Annotated[
        list[str] | None,
        typer.Option(
            "--family", metavar="RUN=NAME", help="Family of a run (or model); may be repeated."
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option(
            "--allow", metavar="ENTRY[,ENTRY...]", help="Entries of the cards that may differ."
        ),
    ] = None,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write a figure, as HTML.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Fit sink mass against the size of models.

    Slopes per factor of ten in parameters, within each family of three models
    or more and across, by Theil-Sen and least squares. Runs whose cards differ
    in what they measure are refused.
    """
    sizes = {run: _whole(run, size) for run, size in _pairs(parameters, "--parameters")}
    kinds = dict(_pairs(families, "--family"))
    with plain_errors():
        from sinkwise.studies.scaling import scaling

        found = scaling(
            runs,
            parameters=sizes,
            families=kinds,
            allow=tuple(word.strip() for word in allow.split(",")) if allow else (),
            level=level,
        )
        if out is not None:
            from sinkwise.report.figures.scaling import write_scaling

            write_scaling(found, out)
            note(f"Figure: {out}", quiet=quiet or as_json)
    if as_json:
        from sinkwise.studies.jsonable import jsonable

        print_json(
            jsonable(
                {
                    "models": found.models,
                    "slopes": found.slopes,
                    "shared": dict(found.shared),
                    "level": found.level,
                    "notes": found.notes,
                }
            )
        )
    elif not quiet:
        typer.echo(_as_text(found))


def _pairs(words: list[str] | None, flag: str) -> list[tuple[str, str]]:
    found = []
    for word in words or ():
        run, sign, value = word.rpartition("=")
        if not sign or not run or not value:
            raise typer.BadParameter(f"{word!r} is not of the form RUN=VALUE", param_hint=flag)
        found.append((run, value))
    return found


def _whole(run: str, size: str) -> int:
    """Read 135000000, 135_000_000 or 1.35e8."""
    try:
        number = float(size.replace("_", ""))
    except ValueError:
        number = 0.5
    if not 1 <= number < 1e18 or number != int(number):
        raise typer.BadParameter(
            f"{size!r} for {run} is no number of parameters, such as 135000000 or 1.35e8",
            param_hint="--parameters",
        )
    return int(number)


def _as_text(found: Any) -> str:
    models = found.models
    spread = models[["sink_mass_low", "sink_mass_high"]].values.tolist()
    rows = [
        [m.model, m.family, int(m.parameters), m.sink_mass, *ends, *shares]
        for m, ends, shares in zip(
            models.itertuples(),
            spread,
            models[["heads_over_0.3", "heads_over_0.8"]].values.tolist(),
            strict=True,
        )
    ]
    head = ("model", "family", "parameters", "sink mass", "low", "high", "heads>0.3", "heads>0.8")
    columns = [
        *("family", "statistic", "models", "theil_sen", "theil_sen_low", "theil_sen_high"),
        *("least_squares", "least_squares_low", "least_squares_high", "note"),
    ]
    names = (
        "family",
        "statistic",
        "models",
        "Theil-Sen",
        "low",
        "high",
        "least sq.",
        "low",
        "high",
        "note",
    )
    slopes = found.slopes[columns].astype(object).values.tolist()
    lines = [
        text_table(head, rows),
        "",
        f"Change per factor of ten in parameters, intervals at {found.level:g}",
        text_table(names, slopes),
    ]
    if found.notes:
        lines += ["", *(f"Note: {text}." for text in found.notes)]
    return "\n".join(lines)
