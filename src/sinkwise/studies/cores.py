"""Independent pieces of work on all cores, without threads on top of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

__all__ = ["on_all_cores"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_all_cores(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function` of each item in order, worked out by one thread a core.

    Meant for functions that spend their time in NumPy, which lets go of the interpreter.  Each
    thread multiplies matrices by itself: BLAS threads on top would fight over the cores.  The
    results don't depend on the number of threads.

    Examples
    --------
    >>> list(on_all_cores(abs, [-1, 2]))
    [1, 2]
    """
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(_cores()) as pool:
        yield from pool.map(function, items)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController  # importing it sets environment variables

    return ThreadpoolController()
