"""The Typer application behind the ``sinkwise`` command."""

from __future__ import annotations

from typing import Annotated

import typer

from sinkwise import __version__
from sinkwise.cli.audit import audit_command
from sinkwise.cli.collapse import collapse_command
from sinkwise.cli.compare import compare_command
from sinkwise.cli.doctor import doctor_command
from sinkwise.cli.guide import guide_command
from sinkwise.cli.interchange import interchange_command
from sinkwise.cli.prune import prune_command
from sinkwise.cli.regime import regime_command
from sinkwise.cli.report import report_command
from sinkwise.cli.scaling import scaling_command

__all__ = ["app"]

EPILOG = (
    "Exit codes: 0 done, 1 an error of the work itself, 2 a wrong command line, 130 interrupted."
)

app = typer.Typer(
    name="sinkwise",
    help="Know which question your attention metric answers.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: nothing more to import, the same in a log as on a screen
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sinkwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Know which question your attention metric answers."""


app.command("audit", epilog=EPILOG)(audit_command)
app.command("report", epilog=EPILOG)(report_command)
app.command("prune", epilog=EPILOG)(prune_command)
app.command("interchange", epilog=EPILOG)(interchange_command)
app.command("collapse", epilog=EPILOG)(collapse_command)
app.command("regime", epilog=EPILOG)(regime_command)
app.command("scaling", epilog=EPILOG)(scaling_command)
app.command("compare", epilog=EPILOG)(compare_command)
app.command("guide", epilog=EPILOG)(guide_command)
app.command("doctor", epilog=EPILOG)(doctor_command)
