"""Values of the shared flags, read from what was typed."""

from __future__ import annotations

from typing import Literal

import typer

__all__ = ["check_zeros", "parse_queries", "parse_sink"]


def parse_sink(text: str) -> Literal["first"] | int | tuple[int, ...]:
    """Read ``--sink``: ``first``, or token positions counted from 0, parted by commas."""
    flag = "--sink"
    word = text.strip()
    if word == "first":
        return "first"
    if word == "found":
        raise typer.BadParameter(
            "a sink found by the tool is not part of this version; "
            "name it: --sink first, or positions such as --sink 0,4",
            param_hint=flag,
        )
    try:
        positions = tuple(int(part) for part in word.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither 'first' nor token positions parted by commas, such as 0,4",
            param_hint=flag,
        ) from None
    if min(positions) < 0:
        raise typer.BadParameter(
            f"position {min(positions)} is negative; "
            "positions count a document's real tokens from 0, padding not counted",
            param_hint=flag,
        )
    if len(set(positions)) < len(positions):
        raise typer.BadParameter(f"a position stands twice in {text!r}", param_hint=flag)
    return positions[0] if len(positions) == 1 else positions


def parse_queries(text: str) -> int | Literal["all"]:
    """Read ``--queries``: a number of query rows per document, or ``all``."""
    word = text.strip()
    if word == "all":
        return "all"
    try:
        number = int(word)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(
            f"{text!r} is neither a number of query rows, 1 or more, nor 'all'",
            param_hint="--queries",
        )
    return number


def check_zeros(text: str) -> None:
    """Accept only ``--zeros error``: a model's rows come from logits, where nothing rounds to 0."""
    word = text.strip()
    if word == "error":
        return
    if word == "exclude" or word.startswith("replace="):
        raise typer.BadParameter(
            f"{word!r} would have nothing to do: a model's rows are read as fp32 logits, "
            "in which no weight has rounded to zero. Leave --zeros out. "
            "Zero rules are for rows given as probabilities: sinkwise.rows(weights, zeros=...)",
            param_hint="--zeros",
        )
    raise typer.BadParameter(
        f"{text!r} is no zero rule; for a model the only one is 'error'", param_hint="--zeros"
    )
