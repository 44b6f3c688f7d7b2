"""``sinkwise report DIR``: the page of a run, made from its files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sinkwise.cli.output import note, plain_errors, print_json

__all__ = ["report_command"]


def report_command(
    run: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a finished run.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="File to write.", show_default="DIR/report.html"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the run's JSON on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")] = False,
) -> None:
    """Write the report of an audit, or of a study over checkpoints, again.

    Reads the saved run alone: neither the model nor PyTorch is needed.
    """
    with plain_errors():
        page = run / "report.html" if out is None else out
        if (run / "collapse.json").is_file():
            from sinkwise.runs.collapse import open_collapse

            study = open_collapse(run)
            study.report(page)
            content = study.to_json()
        else:
            from sinkwise.runs.audit import open_audit

            audit = open_audit(run)
            audit.report(page)
            content = audit.summary()
        if as_json:
            print_json(content)
        else:
            note(f"Report: {page}", quiet=quiet)
