"""``sinkwise guide``: which estimator answers which question, on a terminal."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import asdict
from typing import Annotated

import typer

from sinkwise.cli.output import print_json

__all__ = ["guide_command"]

_WIDEST = 88
_LABELS = (
    ("estimator", "Use"),
    ("safe", "Safe"),
    ("misleads", "Misleads"),
    ("report", "Report"),
)


def guide_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...", help="Only questions that hold all of these.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page of the docs, docs/guide.md.")
    ] = False,
) -> None:
    """Show which estimator answers which question.

    For each: when it is safe, how it misleads, and what to report beside it.
    """
    from sinkwise.studies.guide import GUIDE, guide_markdown

    wanted = [word.lower() for word in words or ()]
    found = [
        advice
        for advice in GUIDE
        if all(word in " ".join(asdict(advice).values()).lower() for word in wanted)
    ]
    if not found:
        raise typer.BadParameter(
            f"no question of the guide holds {' and '.join(words or ())}; "
            "'sinkwise guide' shows all of them",
            param_hint="WORD",
        )
    if as_json:
        print_json({"questions": [asdict(advice) for advice in found]})
        return
    if markdown:
        typer.echo(guide_markdown(), nl=False)
        return
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    for advice in found:
        typer.echo("\n".join(textwrap.wrap(advice.question, width)))
        for name, label in _LABELS:
            line = f"  {label:<9}{getattr(advice, name)}"
            typer.echo(textwrap.fill(line, width, subsequent_indent=" " * 11))
        typer.echo("")
    typer.echo("No measure here wins everywhere: each answers its own question.")
