"""Values of the shared flags, read from what was typed."""

from __future__ import annotations

from typing import Literal

import typer

__all__ = [
    "check_zeros",
    "parse_names",
    "parse_queries",
    "parse_shares",
    "parse_sink",
    "parse_sink_sets",
]


def parse_sink(text: str) -> Literal["first", "found"] | int | tuple[int, ...]:
    """Read ``--sink``: ``first``, ``found``, or token positions counted from 0 with commas."""
    flag = "--sink"
    word = text.strip()
    if word == "first":
        return "first"
    if word == "found":
        return "found"
    try:
        positions = tuple(int(part) for part in word.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither 'first', 'found' nor token positions parted by commas, "
            "such as 0,4",
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


def parse_sink_sets(text: str) -> tuple[str, ...]:
    """Read ``--sink-sets``: names parted by commas, or ``none``."""
    from sinkwise.rowdata.sink_sets import SINK_SETS

    words = tuple(word.strip() for word in text.split(","))
    if words == ("none",):
        return ()
    unknown = [word for word in words if word not in SINK_SETS]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} is no sink set; there are {', '.join(SINK_SETS)}, or 'none'",
            param_hint="--sink-sets",
        )
    return words


def parse_names(text: str, flag: str, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Read a list of names parted by commas, each once; out of `known` where that is given."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if known and word not in known]
    if unknown or not words:
        there = f": there are {', '.join(known)}" if known else ""
        raise typer.BadParameter(
            f"{(unknown or [text])[0]!r} is none of the names expected, parted by commas{there}",
            param_hint=flag,
        )
    return words


def parse_shares(text: str, flag: str) -> tuple[float, ...]:
    """Read shares between 0 and 1 parted by commas, each once."""
    try:
        shares = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        shares = ()
    if not shares or not all(0 < share < 1 for share in shares):
        raise typer.BadParameter(
            f"{text!r} is not shares between 0 and 1 parted by commas, such as 0.1,0.2,0.3",
            param_hint=flag,
        )
    return shares


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
