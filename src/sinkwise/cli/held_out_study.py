"""A command that measures on calibration documents and is judged on held-out ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from sinkwise.cli.documents import locate_documents
from sinkwise.cli.model_inputs import check_folder, load, read_documents
from sinkwise.cli.output import Progress, command_line, note, plain_errors, quiet_libraries
from sinkwise.errors import MissingExtraError

__all__ = ["DEMO_MAX_LENGTH", "require_documents", "run_study"]

DEMO_CALIBRATION = 8
DEMO_MAX_LENGTH = 256


def require_documents(
    model: str, texts: Path | None, eval_texts: Path | None, out: Path | None
) -> None:
    """Refuse a command line that lacks a file or a folder which only the demo brings itself."""
    demo = model == "demo"
    if not (demo and texts is None and eval_texts is None):
        for flag, given, what in (
            ("--texts", texts, "calibration"),
            ("--eval", eval_texts, "held-out"),
        ):
            if given is None:
                raise typer.BadParameter(
                    f"say which {what} documents to read: {flag} FILE (only 'demo' brings its own)",
                    param_hint=flag,
                )
    if out is None and not demo:
        raise typer.BadParameter("say where to write: --out DIR", param_hint="--out")


def run_study(
    context: typer.Context,
    study: Callable[..., Any],
    folder: Path,
    *,
    options: dict[str, Any],
    check: Callable[[], object] | None = None,
) -> tuple[Any, Path | None]:
    """Load the model, read both sets of documents, run `study` and write the report.

    Parameters
    ----------
    context
        Of the command, whose parameters say what to load and read.
    study
        Called as ``study(loaded, None, calibration, held_out, out=, resume=, progress=,
        **options)``.
    folder
        Of the run.
    options
        Keywords of the study.
    check
        What to look at before the model is loaded.

    Returns
    -------
    tuple
        What the study returned, and the report's path (``None`` where Plotly or Jinja2 is absent).

    Raises
    ------
    typer.Exit
        1 on an error of the work, 130 when interrupted; the message says how to go on.
    """
    given = context.params
    model, resume = given["model"], given["resume"]
    files = {"--texts": given["texts"], "--eval": given["eval_texts"]}
    silent = given["quiet"] or given["as_json"]
    again = command_line(context, resume=True)
    with plain_errors(), Progress("Steps", shown=not silent) as progress:
        try:
            sources = {
                flag: None if path is None else locate_documents(path)
                for flag, path in files.items()
            }
            if check is not None:
                check()
            check_folder(folder, resume=resume, again=again)
            quiet_libraries()
            note(f"Loading {model} ...", quiet=silent)
            loaded = load(
                model,
                given["dtype"],
                given["device"],
                given["revision"],
                given["trust_remote_code"],
            )
            calibration, held_out = (
                read_documents(source, None, kind=loaded.kind, model=model, flag=flag)
                for flag, source in sources.items()
            )
            if not any(sources.values()):  # the demo's own
                calibration, held_out = (
                    calibration[:DEMO_CALIBRATION],
                    held_out[DEMO_CALIBRATION:],
                )
            found = study(
                loaded,
                None,
                calibration,
                held_out,
                **options,
                out=folder,
                resume=resume,
                progress=progress,
            )
            return found, _report(folder)
        except KeyboardInterrupt:
            note(
                f"\nInterrupted; {progress.done} of {progress.total} steps are done. To go on:\n"
                f"  {again}"
            )
            raise typer.Exit(130) from None


def _report(folder: Path) -> Path | None:
    from sinkwise.runs.audit import open_audit

    try:
        return open_audit(folder).report(folder / "report.html")
    except MissingExtraError as error:
        note(f"No report was written: {error}\nThen: sinkwise report {folder}")
        return None
