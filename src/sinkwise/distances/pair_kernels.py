"""The inner loops of the all-pairs sums in NumPy, and the choice of the compiled ones.

Each takes one row of several heads and works on pairs in condensed order, row-major with the
first head below the second.  The compiled forms (Numba) do the same in one pass through the
cache; both run the same tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, cast

import numpy as np
from scipy.special import xlog1py

from sinkwise.distances.pair_index import HeadGroup

__all__ = ["Kernels", "kernels", "psi"]


class Kernels(Protocol):
    """What a set of inner loops offers."""

    content: Any
    """Loops of :class:`~sinkwise.distances.pair_content.ContentSums`, or ``None``."""

    def directions(
        self, content: np.ndarray, top: np.ndarray, flat: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return clr norms ``(heads,)`` and unit clr vectors moved to a mean of 0.

        `top` is the largest log-weight of each head.  A norm of at most `flat` counts as 0: its
        unit vector is 0 before the move.
        """

    def shares(self, content: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the softmax of each head's row, and the sum it was divided by.

        The sum is that of ``exp(content - top)``, ``(heads,)``.
        """

    def gaps_of_gram(
        self, gram: np.ndarray, near: float, group: HeadGroup
    ) -> tuple[np.ndarray, int]:
        """Return ``n_i + n_j - 2 G_ij``, and how many are at most `near` times ``n_i + n_j``."""

    def split_squares(
        self, chord_sq: np.ndarray, size: np.ndarray, group: HeadGroup
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the squares of content distance, dispersion gap and direction."""

    def divergences(
        self, x: np.ndarray, g: np.ndarray, mass: np.ndarray, near: float, out: np.ndarray
    ) -> None:
        """Fill `out` with D of all pairs, NaN where a pair is too near.

        `x` and `g` are the shares over their mean ``(heads, keys)`` and the mean ``(keys,)``,
        float32; `mass` ``(heads,)`` float64; `near` the share of the divergences from the mean
        below which a pair is left to the direct form of
        :mod:`sinkwise.distances.pair_divergence`.
        """

    def add_mass_divergences(self, content: np.ndarray, sink: np.ndarray, out: np.ndarray) -> None:
        """Add to `out` the divergences of the two-part compositions (sink, content mass)."""


class NumpyKernels:
    """The loops in NumPy."""

    content = None

    def directions(
        self, content: np.ndarray, top: np.ndarray, flat: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`Kernels`."""
        # the maximum goes first: equal parts give an exact 0 whatever the logits' offset
        x = content - top[:, None]
        x -= x.mean(axis=1, keepdims=True)
        size = np.sqrt(np.einsum("hk,hk->h", x, x).astype(np.float64))
        scale = np.where(size <= flat, 0.0, 1 / np.where(size <= flat, 1.0, size))
        x *= scale[:, None].astype(x.dtype)
        x -= x.mean(axis=0)
        return size, x

    def shares(self, content: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`Kernels`."""
        weights = np.exp(content - top[:, None])
        total = weights.sum(axis=1)
        weights *= (1 / total)[:, None]
        return weights, total

    def gaps_of_gram(
        self, gram: np.ndarray, near: float, group: HeadGroup
    ) -> tuple[np.ndarray, int]:
        """See :class:`Kernels`."""
        size = gram.diagonal().copy()
        total = size + size[:, None]
        gaps = (total - 2 * gram).ravel()[group.flat]
        return gaps, int(np.count_nonzero(gaps <= near * total.ravel()[group.flat]))

    def split_squares(
        self, chord_sq: np.ndarray, size: np.ndarray, group: HeadGroup
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See :class:`Kernels`."""
        first, second = size[group.first], size[group.second]
        dispersion = np.square(first - second)
        direction = first * second * chord_sq
        return dispersion + direction, dispersion, direction

    def divergences(
        self, x: np.ndarray, g: np.ndarray, mass: np.ndarray, near: float, out: np.ndarray
    ) -> None:
        """See :class:`Kernels`."""
        heads = x.shape[0]
        tiny = np.finfo(np.float32).tiny

        def spread(x: np.ndarray) -> np.ndarray:
            return cast(np.ndarray, ((x * np.log(np.maximum(x, tiny))) @ g).astype(np.float64))

        own = spread(x)
        start = 0
        for i in range(heads - 1):
            rest = slice(i + 1, heads)
            total = mass[i] + mass[rest]
            w = np.divide(mass[i], total, out=np.full_like(total, 0.5), where=total > 0)
            mixed = x[rest] + w[:, None].astype(np.float32) * (x[i] - x[rest])
            apart = own[rest] + w * (own[i] - own[rest])
            value = apart - spread(mixed)
            # masses far apart make the whole divergence large, whatever the shares
            value[value + 2 * (w - 0.5) ** 2 <= near * apart] = np.nan
            out[start : start + heads - 1 - i] = total / 2 * value
            start += heads - 1 - i

    def add_mass_divergences(self, content: np.ndarray, sink: np.ndarray, out: np.ndarray) -> None:
        """See :class:`Kernels`."""
        first, second = np.triu_indices(len(content), 1)
        gap = content[first] - content[second]
        for mass in (content, sink):
            total = mass[first] + mass[second]
            x = np.divide(gap, total, out=np.zeros_like(gap), where=total > 0)
            out += total / 4 * (psi(x) + psi(-x))


def psi(t: np.ndarray) -> np.ndarray:
    """``(1+t) log1p(t) - t``, at least 0, in float64 with its digits near 0."""
    t = np.maximum(t, -1.0)
    series = t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t / 30))))
    return np.where(np.abs(t) < 1e-3, series, xlog1py(1 + t, t) - t)


@cache
def kernels() -> Kernels:
    """Return the compiled kernels, or the NumPy ones where Numba is absent."""
    try:
        from sinkwise.distances.pair_kernels_compiled import CompiledKernels
    except ImportError:
        return NumpyKernels()
    return CompiledKernels()
