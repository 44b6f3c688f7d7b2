"""Anchors and the pairs of their others, streamed: all triples to a stated size, a share beyond."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["EXACT_UP_TO", "Anchor", "draw_anchors", "pair_tiles"]

EXACT_UP_TO = 600
"""Heads up to which all triples are judged; beyond, 600 anchors with 599 others each."""

_TILE = 32  # of an anchor's others: with a dozen measures a tile of their pairs fits in the cache


class Anchor(NamedTuple):
    """A head and those it is compared with.

    Attributes
    ----------
    head
        Its number.
    others
        Numbers of other heads, ascending.
    """

    head: int
    others: np.ndarray


def draw_anchors(n_heads: int, exact_up_to: int, seed: int) -> list[Anchor]:
    """Return every head with all others, or `exact_up_to` of each where there are more heads.

    Examples
    --------
    >>> [(a.head, a.others.tolist()) for a in draw_anchors(3, 600, seed=0)]
    [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])]
    """
    if n_heads <= exact_up_to:
        every = np.arange(n_heads)
        return [Anchor(a, np.delete(every, a)) for a in range(n_heads)]
    rng = np.random.default_rng(seed)
    found = []
    for a in np.sort(rng.choice(n_heads, exact_up_to, replace=False)):
        others = np.sort(rng.choice(n_heads - 1, exact_up_to - 1, replace=False))
        found.append(Anchor(int(a), others + (others >= a)))
    return found


def pair_tiles(n_others: int) -> Iterator[tuple[slice, slice, int]]:
    """Yield tiles of the ordered pairs of an anchor's others, and how often each counts.

    Whatever is summed over the tiles must not depend on the order within a pair: those on the
    diagonal hold both orders, those above it count for those below.

    Examples
    --------
    >>> seen = sum(w * len(range(*b.indices(99))) * len(range(*c.indices(99)))
    ...            for b, c, w in pair_tiles(99))
    >>> seen == 99 * 99
    True
    """
    for start in range(0, n_others, _TILE):
        stop = min(start + _TILE, n_others)
        yield slice(start, stop), slice(start, stop), 1
        if stop < n_others:
            yield slice(start, stop), slice(stop, n_others), 2
