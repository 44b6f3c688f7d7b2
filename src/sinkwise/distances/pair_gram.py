"""Squared distances between all pairs of vectors from one matrix product, digits kept.

``|v - w|^2 = |v|^2 + |w|^2 - 2 v.w`` loses as many digits as the distance is small against the
vectors.  Two measures keep them.  The vectors are first moved towards a common point, which
changes no difference; and the few pairs that stay near each other all the same are computed
directly, in float64, from the row itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_kernels import kernels

__all__ = ["NEAR", "centred", "in_chunks", "square_gaps"]

NEAR = 1e-3
"""Pairs whose squared distance is below this share of their squared norms are done directly:
the product's rounding, some 1e-7 of the norms in float32, stays near 1e-4 of what is left."""

CHUNK_ELEMENTS = 1 << 20
"""Elements of one temporary of the direct form (8 MiB in float64)."""


def centred(v: np.ndarray) -> np.ndarray:
    """Move vectors ``(heads, n)`` towards a common point.

    The point is their mean weighted by ``1/|v|^2``: about the mean where the norms are alike,
    and among the shortest where they are not, so that a few heads at sink mass 1 - 1e-6 keep
    their digits beside heads at 0.1.
    """
    size = np.einsum("hk,hk->h", v, v).astype(np.float64)
    weight = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    total = weight.sum()
    if not (total > 0 and np.isfinite(total)):
        return v
    moved: np.ndarray = v - (weight / total).astype(v.dtype) @ v
    return moved


def square_gaps(
    v: np.ndarray,
    group: HeadGroup,
    exact: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the squared distances ``|v_i - v_j|^2`` of all pairs: ``(n_pairs,)``.

    Parameters
    ----------
    v
        ``(heads, n)`` vectors, one per head, near a common point (:func:`centred`).
    group
        The heads' pairs.
    exact
        Gives the vectors of some heads in float64, up to a shift common to those asked for.

    Notes
    -----
    O(heads^2 n) as one matrix product.
    """
    gram = v @ v.T
    gaps, near = kernels().gaps_of_gram(gram, NEAR, group)
    if near:
        size = gram.diagonal()
        pairs = np.flatnonzero(gaps <= NEAR * (size[group.first] + size[group.second]))
        gaps[pairs] = _direct(pairs, group, exact)
    return gaps


def _direct(
    near: np.ndarray, group: HeadGroup, exact: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    heads, first, second = group.among(near)
    v = exact(heads)
    return in_chunks(lambda i, j: _square(v[i] - v[j]), first, second, v.shape[1])


def _square(d: np.ndarray) -> np.ndarray:
    return np.einsum("pk,pk->p", d, d)


def in_chunks(
    of_pairs: Callable[[np.ndarray, np.ndarray], np.ndarray],
    first: np.ndarray,
    second: np.ndarray,
    n: int,
) -> np.ndarray:
    """Apply ``of_pairs(first, second)`` to slices of pairs whose temporaries stay bounded."""
    step = max(1, CHUNK_ELEMENTS // max(n, 1))
    out = np.empty(len(first))
    for start in range(0, len(first), step):
        stop = start + step
        out[start:stop] = of_pairs(first[start:stop], second[start:stop])
    return out
