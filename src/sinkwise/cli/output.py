"""What a command shows: progress, errors without tracebacks, the line that resumes it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any

import typer

from sinkwise.errors import SinkwiseError

__all__ = ["Progress", "command_line", "note", "plain_errors", "print_json", "quiet_libraries"]


def note(message: str, *, quiet: bool = False) -> None:
    """Write a line to stderr, unless asked to be quiet."""
    if not quiet:
        typer.echo(message, err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Write `value` to stdout as JSON, with nothing before or after it."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn an error of the work into its message on stderr and exit code 1.

    An error that sinkwise did not raise on purpose, save one of the file system, keeps its
    traceback: it is a bug, and the traceback is what a bug report needs.
    """
    try:
        yield
    except SinkwiseError as error:
        note(f"sinkwise: {error}")
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise  # the reader of our output went away; Typer ends quietly
    except OSError as error:
        note(f"sinkwise: {error}")
        raise typer.Exit(1) from None


def quiet_libraries() -> None:
    """Keep the model libraries' own bars and advice out of the output of a command."""
    for name, value in (
        ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("TQDM_DISABLE", "1"),
        ("TRANSFORMERS_VERBOSITY", "error"),
    ):
        os.environ.setdefault(name, value)


def command_line(context: typer.Context, **changed: Any) -> str:
    """Return the command line of `context`, every option that is not at its default, `changed`.

    The words are quoted for a POSIX shell, so the line can be pasted as it is.
    """
    words = [context.command_path]
    values = {**context.params, **changed}
    for parameter in context.command.params:
        value = values.get(parameter.name or "")
        if parameter.param_type_name == "argument":
            words += [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)]
        elif value is None or value == parameter.get_default(context):
            continue
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [parameter.opts[0], str(value)]
    return shlex.join(words).replace(shlex.quote(context.command_path), context.command_path, 1)


class Progress(AbstractContextManager["Progress"]):
    """Documents done of documents to do, on stderr: a bar on a terminal, else a few lines.

    Call it with ``(done, total)``.  Where `shown` is false it only counts.
    """

    LINES = 8  # at most about this many lines where there is no terminal

    def __init__(self, what: str, *, shown: bool) -> None:
        self.done = 0
        self.total = 0
        self._what = what
        self._shown = shown
        self._bar: Any = None
        self._next_line = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Note that `done` of `total` documents are done."""
        if self._shown and sys.stderr.isatty():
            if self._bar is None:
                bar = typer.progressbar(length=total, label=self._what, file=sys.stderr)
                self._bar = bar.__enter__()
            self._bar.update(done - self.done)
        elif self._shown and (done == total or done >= self._next_line):
            note(f"{self._what}: {done} of {total}")
            self._next_line = done + total / self.LINES
        self.done, self.total = done, total

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the cursor on a line of its own."""
        if self._bar is not None:
            self._bar.__exit__(kind, error, trace)
            self._bar = None
