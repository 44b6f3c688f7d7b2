"""Which query rows of a document are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Literal

import numpy as np

from sinkwise.errors import RowError

__all__ = ["check_queries", "check_sink", "choose_queries", "first_usable_query"]


def check_sink(sink: object) -> tuple[int, ...]:
    """Return the sink's token positions: ``"first"``, an index or a sequence of indices.

    ``"found"`` is looked for from the first token on.

    Raises
    ------
    RowError
        If it is anything else, empty, repeated or negative.
    """
    if isinstance(sink, str) and sink in ("first", "found"):
        return (0,)
    if isinstance(sink, Integral):
        positions: tuple[object, ...] = (sink,)
    else:
        positions = tuple(sink) if isinstance(sink, Sequence) and not isinstance(sink, str) else ()
    good = all(isinstance(p, Integral) and not isinstance(p, bool) and p >= 0 for p in positions)
    if not positions or not good or len(set(positions)) < len(positions):
        raise RowError(
            f'sink={sink!r} arrived, expected "first", "found", a token position from 0 or '
            "a tuple of different positions "
            "(real tokens count from 0 in each document, padding doesn't "
            'count): type sink="first", sink=3 or sink=(0, 3)'
        )
    return tuple(sorted(int(p) for p in positions))


def check_queries(queries: object) -> int | Literal["all"]:
    """Return the number of query rows a document, or ``"all"``.

    Raises
    ------
    RowError
        If it is neither ``"all"`` nor a number of at least 1.
    """
    if isinstance(queries, str) and queries == "all":
        return "all"
    if isinstance(queries, Integral) and not isinstance(queries, bool) and queries >= 1:
        return int(queries)
    raise RowError(
        f'queries={queries!r} arrived, expected "all" or a number of rows a document of at least '
        "1: type queries=64"
    )


def first_usable_query(length: int, sink: Sequence[int], *, causal: bool, virtual: bool) -> int:
    """Return the first query that can see the sink and two content parts; 0 if none can.

    With `virtual`, a learned sink is seen by every query.
    """
    if not causal:
        return 0
    for query in range(length):
        seen = sum(position <= query for position in sink)
        if (seen or virtual) and query + 1 - seen >= 2:
            return query
    return 0


def choose_queries(
    length: int, number: int | Literal["all"], *, start: int, seed: int, document: int
) -> np.ndarray:
    """Return sorted query positions: one draw from each of `number` equal strata of the range.

    The draw depends on `seed` and `document` alone, so neither batching nor resuming changes it.
    ``"all"`` takes every position, also those before `start`, so that the rows nobody can use
    are counted.

    Examples
    --------
    >>> choose_queries(6, "all", start=2, seed=0, document=0)
    array([0, 1, 2, 3, 4, 5])
    >>> rows = choose_queries(1000, 4, start=2, seed=0, document=0)
    >>> [int(r) // 250 for r in rows]
    [0, 1, 2, 3]
    """
    if number == "all":
        return np.arange(length)
    span = length - start
    if number >= span:
        return np.arange(start, length)
    edges = start + np.arange(number + 1) * span // number
    rng = np.random.default_rng([seed, document])
    return rng.integers(edges[:-1], edges[1:])
