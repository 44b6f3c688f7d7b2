"""Bytes of an all-pairs computation, counted before the first of them is asked for."""

from __future__ import annotations

import os

from sinkwise.distances.pair_index import pair_count
from sinkwise.errors import MemoryBudgetError

__all__ = ["require_pair_memory"]

GIB = 2**30
_SHARE = 0.5
_FALLBACK = 8 * GIB


def budget_bytes() -> int:
    """Half of the machine's memory (4 GiB where the system doesn't say)."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = _FALLBACK
    return int(total * _SHARE)


def pair_bytes(n_heads: int, n_keys: int, *, n_arrays: int, workers: int, itemsize: int) -> int:
    """Bytes that the sums, the pair indices and the workers' temporaries take together."""
    pairs = pair_count(n_heads)
    sums = 8 * pairs * n_arrays
    index = 3 * 8 * pairs
    square = 2 * itemsize * n_heads**2
    one_row = 8 * itemsize * n_heads * n_keys + square + 12 * 8 * pairs
    return workers * (sums + one_row) + index


def require_pair_memory(
    n_heads: int, n_keys: int, *, n_arrays: int, workers: int = 1, itemsize: int = 4
) -> int:
    """Return how many workers fit into memory, at most `workers`; refuse if not even one does.

    Parameters
    ----------
    n_heads, n_keys
        Size of the block.
    n_arrays
        Arrays of one number per pair that each worker holds.
    workers
        How many threads would like to work, each on sums of its own.
    itemsize
        Bytes of one log-weight.

    Raises
    ------
    MemoryBudgetError
        With the number of bytes, and the size of one square matrix of the result.

    Examples
    --------
    >>> require_pair_memory(144, 1024, n_arrays=26, workers=2)
    2
    """
    budget = budget_bytes()
    for number in range(max(workers, 1), 0, -1):
        need = pair_bytes(n_heads, n_keys, n_arrays=n_arrays, workers=number, itemsize=itemsize)
        if need <= budget:
            return number
    raise MemoryBudgetError(
        f"all pairs of {n_heads:,} heads on {n_keys:,} keys need {need / GIB:.1f} GiB, one "
        f"distance matrix alone {8 * n_heads**2 / GIB:.1f} GiB; the budget is "
        f"{budget / GIB:.1f} GiB, half of this machine's memory. Give fewer heads (a slice of "
        'the layers), or fewer metrics, for example metrics=("content",).'
    )
