"""Which pairs of heads meet on a row, and where their sums stand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["HeadGroup", "group_of", "pair_count"]


@dataclass(frozen=True)
class HeadGroup:
    """Heads that share one support on a row, with their pairs in condensed order.

    Attributes
    ----------
    heads
        ``None`` when the group is every head of the block, else their indices, ascending.
    n_heads
        How many heads the group holds.
    first, second
        ``(n_pairs,)`` positions within the group, first < second, row-major.
    flat
        ``first * n_heads + second``: where each pair stands in a raveled square matrix.
    slots
        Where the pairs stand among all pairs of the block; ``None`` when they are all of them.
    """

    heads: np.ndarray | None
    n_heads: int
    first: np.ndarray
    second: np.ndarray
    flat: np.ndarray
    slots: np.ndarray | None

    def among(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the heads that take part in some pairs, and both sides' places among them."""
        sides = np.concatenate([self.first[pairs], self.second[pairs]])
        heads, place = np.unique(sides, return_inverse=True)
        return heads, place[: len(pairs)], place[len(pairs) :]


def pair_count(n_heads: int) -> int:
    """Number of pairs of `n_heads` heads."""
    return n_heads * (n_heads - 1) // 2


def group_of(heads: np.ndarray, n_heads: int) -> HeadGroup:
    """Return the group of `heads` (ascending) in a block of `n_heads`; O(pairs) memory."""
    size = len(heads)
    first, second = np.triu_indices(size, 1)
    flat = first * size + second
    if size == n_heads:
        return HeadGroup(None, size, first, second, flat, None)
    i, j = heads[first], heads[second]
    slots = i * n_heads - i * (i + 1) // 2 + (j - i - 1)
    return HeadGroup(heads, size, first, second, flat, slots)
