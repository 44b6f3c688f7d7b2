"""Taking heads away one by one under a budget: three ways, shared by all scores.

Ties go to the head (or pair) that comes first in the model.  No layer gives more than its cap,
which is below its number of heads.  A head or pair without a value (NaN) is never chosen; a budget
that can't be met without them is an error, since the rest would be arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sinkwise.errors import RowError
from sinkwise.studies.head_scores.budgets import Budget

__all__ = ["ascending", "closest_pairs", "least_increase"]


def ascending(values: np.ndarray, layers: np.ndarray, budget: Budget) -> tuple[int, ...]:
    """Take the heads of the lowest values first.

    Parameters
    ----------
    values
        ``(H,)``; NaN for a head without a value.
    layers
        int ``(H,)``.
    budget
        How many go.

    Raises
    ------
    RowError
        If too few heads have a value.

    Notes
    -----
    O(H log H).

    Examples
    --------
    >>> ascending(np.array([3.0, 1.0, 2.0, 0.5]), np.array([0, 0, 1, 1]), Budget(2, {0: 1, 1: 1}))
    (3, 1)
    """
    order = np.argsort(values, kind="stable")
    left = _Left(layers, budget)
    for head in order[: int((~np.isnan(values)).sum())]:  # NaN is sorted to the end
        if left.total and left.may_go(head):
            left.take(head)
    return left.taken_or_refuse("heads", int(np.isnan(values).sum()))


def closest_pairs(
    distances: np.ndarray,
    layers: np.ndarray,
    budget: Budget,
    goes: Callable[[int, int], int],
) -> tuple[int, ...]:
    """Take one head of the closest pair among those that remain, again and again.

    Parameters
    ----------
    distances
        ``(H, H)`` symmetric; NaN where two heads can't be compared.
    layers
        int ``(H,)``.
    budget
        How many go; with ``within_layer`` only pairs of one layer count.
    goes
        ``goes(first, second)``: which of a pair goes.  Where that one's layer has given all it
        may, the other goes; a pair of which neither may go is passed over.

    Raises
    ------
    RowError
        If the pairs that can be compared are too few.

    Notes
    -----
    A pair that is passed over stays so, hence one pass over the sorted pairs: O(H² log H).

    Examples
    --------
    >>> d = np.abs(np.subtract.outer([0.0, 1.0, 5.0, 5.1], [0.0, 1.0, 5.0, 5.1]))
    >>> closest_pairs(d, np.array([0, 0, 1, 1]), Budget(2, {0: 1, 1: 1}), max)
    (3, 1)
    """
    first, second = np.triu_indices(len(distances), 1)
    values = distances[first, second]
    counted = ~np.isnan(values)
    if budget.within_layer:
        counted &= layers[first] == layers[second]
    first, second, values = first[counted], second[counted], values[counted]
    left = _Left(layers, budget)
    for pair in np.argsort(values, kind="stable"):
        if not left.total:
            break
        i, j = int(first[pair]), int(second[pair])
        if left.removed[i] or left.removed[j]:
            continue
        chosen = goes(i, j)
        for head in (chosen, i + j - chosen):
            if left.may_go(head):
                left.take(head)
                break
    return left.taken_or_refuse("pairs", int(np.isnan(distances).sum()) // 2)


def least_increase(matrix: np.ndarray, layers: np.ndarray, budget: Budget) -> tuple[int, ...]:
    """Take the head that adds least to the quadratic form ``m' M m`` of the set taken.

    Parameters
    ----------
    matrix
        ``(H, H)`` symmetric M.  With S the heads taken, head j adds
        ``M_jj + 2 sum over k in S of M_jk``.
    layers
        int ``(H,)``.
    budget
        How many go.

    Raises
    ------
    RowError
        If an entry isn't finite.

    Notes
    -----
    O(H) per head taken.

    Examples
    --------
    The second head goes before the third, though it does more alone: it cancels the first.

    >>> m = np.array([[2.0, -1.9, 0.0], [-1.9, 2.5, 0.0], [0.0, 0.0, 2.1]])
    >>> least_increase(m, np.zeros(3, int), Budget(2, {0: 2}))
    (0, 1)
    """
    if not np.isfinite(matrix).all():
        i, j = (int(k) for k in np.argwhere(~np.isfinite(matrix))[0])
        raise RowError(
            f"the matrix of joint effects is {matrix[i, j]} between heads {i} and {j}, expected "
            'finite numbers: load the model with dtype="float32" and calibrate again'
        )
    increase = np.diag(matrix).astype(np.float64).copy()
    left = _Left(layers, budget)
    while left.total:
        open_heads = np.flatnonzero(left.open)
        head = int(open_heads[np.argmin(increase[open_heads])])
        left.take(head)
        increase += 2 * matrix[head]
    return tuple(left.taken)


class _Left:
    """What a budget still allows."""

    def __init__(self, layers: np.ndarray, budget: Budget) -> None:
        names, self._layer = np.unique(layers, return_inverse=True)
        self._caps = np.array([budget.caps[int(name)] for name in names], dtype=int)
        self._budget = budget
        self.total = budget.total
        self.removed = np.zeros(len(layers), dtype=bool)
        self.taken: list[int] = []

    @property
    def open(self) -> np.ndarray:
        """bool ``(H,)``: heads that may still go."""
        return ~self.removed & (self._caps[self._layer] > 0)

    def may_go(self, head: int) -> bool:
        return not self.removed[head] and bool(self._caps[self._layer[head]] > 0)

    def take(self, head: int) -> None:
        self.removed[head] = True
        self._caps[self._layer[head]] -= 1
        self.total -= 1
        self.taken.append(int(head))

    def taken_or_refuse(self, what: str, without: int) -> tuple[int, ...]:
        if self.total:
            raise RowError(
                f"{self._budget.total} heads are to go, but the {what} that have a value give "
                f"{len(self.taken)}; {without} {what} have none (NaN: no usable row). "
                "Lower the sparsity, calibrate on longer documents, or choose another score"
            )
        return tuple(self.taken)
