"""The compiled inner loops of the all-pairs sums; importing this needs Numba.

Plain loops that LLVM turns into whole vector registers.  They release the GIL, so rows run on as
many cores as there are, and are cached on disk where a cache can be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_kernels import NumpyKernels

__all__ = ["CompiledKernels"]

# no "nnan" or "ninf": NaN marks a pair and infinities a rounding zero
_FAST_MATH = frozenset({"reassoc", "contract", "nsz", "arcp"})


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    options["fastmath"] = set(_FAST_MATH)

    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # nowhere to write the cache: compile in each process
            return numba.njit(**options)(function)

    return compile_


_ONE = np.float32(1)
_LN2 = np.float32(math.log(2))
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
_MANTISSA_BITS = np.int32(23)
# log(1+t) = t + t^2 R(t) on [sqrt(1/2) - 1, sqrt(2) - 1], R minimax of degree 6: error 3.7e-8
_R0, _R1, _R2, _R3, _R4, _R5, _R6 = (
    np.float32(c)
    for c in (
        -0.5000058489532541,
        0.33335262681678673,
        -0.24961443812098574,
        0.19888226669453377,
        -0.17326152342273463,
        0.16336070782710616,
        -0.10034751362120777,
    )
)


# exp(r) on [-log(2)/2, log(2)/2] by its series to r^7 / 7!: 5e-9 of itself
_E2, _E3, _E4, _E5, _E6, _E7 = (np.float32(1 / math.factorial(n)) for n in range(2, 8))
_LOG2E = np.float32(1 / math.log(2))
_LN2_HIGH = np.float32(0.693359375)  # few bits, so that its multiples are exact
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_LEAST = np.float32(-87)
_BIAS = np.int32(127)
_HALF, _ZERO = np.float32(0.5), np.float32(0)

_P1, _P2, _P3, _P4 = (np.float32(1 / c) for c in (6, 15, 28, 45))
_SERIES_BELOW = np.float32(1 / 64)
_TINY = 1e-300


@_compiled(inline="always")
def _x_log_x(x: np.float32) -> np.float32:
    """``x log x`` for x >= 0; exactly 0 at 0 and at 1."""
    bits = np.float32(x).view(np.int32)
    exponent = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
    t = np.int32(bits - np.int32(exponent << _MANTISSA_BITS)).view(np.float32) - _ONE
    t2 = t * t
    r = ((_R0 + _R1 * t) + t2 * (_R2 + _R3 * t)) + (t2 * t2) * ((_R4 + _R5 * t) + t2 * _R6)
    log = np.float32(exponent) * _LN2 + (t + t2 * r)
    return x * log


@_compiled(nogil=True)
def _directions(content, tops, flat, size, unit):  # type: ignore[no-untyped-def]
    heads, n = content.shape
    zero, one = unit.dtype.type(0), unit.dtype.type(1)
    for h in range(heads):
        x, into = content[h], unit[h]
        top, total = tops[h], zero
        for k in range(n):
            total += x[k] - top
        mean = total / unit.dtype.type(n)
        square = zero
        for k in range(n):
            clr = (x[k] - top) - mean
            into[k] = clr
            square += clr * clr
        size[h] = np.sqrt(np.float64(square))
        scale = zero if size[h] <= flat else one / unit.dtype.type(size[h])
        for k in range(n):
            into[k] *= scale
    mean_unit = np.zeros(n, unit.dtype)
    for h in range(heads):
        x = unit[h]
        for k in range(n):
            mean_unit[k] += x[k]
    mean_unit *= one / unit.dtype.type(heads)
    for h in range(heads):
        x = unit[h]
        for k in range(n):
            x[k] -= mean_unit[k]


@_compiled(nogil=True)
def _directions_of_row(log_weights, row, start, flat, size, unit):  # type: ignore[no-untyped-def]
    """Take the row's content columns and do `_directions`; False if a zero is among them."""
    heads, n = unit.shape
    # any part will do in the maximum's place: equal parts still give an exact 0
    firsts = np.empty(heads, unit.dtype)
    for h in range(heads):
        firsts[h] = log_weights[h, row, start]
        unit[h] = log_weights[h, row, start : start + n]
    _directions(unit, firsts, flat, size, unit)
    return bool(np.isfinite(size).all())


@_compiled(nogil=True)
def _add_content(gram, size, flat, near, content, content_sq, left):  # type: ignore[no-untyped-def]
    """Add a row's content distances; pairs that need more digits are listed, not added."""
    heads = gram.shape[0]
    norm = np.empty(heads, gram.dtype)
    for i in range(heads):
        norm[i] = gram[i, i]
    start, count = 0, 0
    for i in range(heads):
        rest = heads - 1 - i
        pairs = slice(start, start + rest)
        row, norms, sizes = gram[i, i + 1 :], norm[i + 1 :], size[i + 1 :]
        into, into_sq = content[pairs], content_sq[pairs]
        some = 0
        for j in range(rest):
            total = norm[i] + norms[j]
            chord = total - 2 * row[j]
            gap = size[i] - sizes[j]
            square = gap * gap + size[i] * sizes[j] * np.float64(chord)
            is_near = (chord <= near * total) | (chord < near) | (min(size[i], sizes[j]) <= flat)
            some += is_near
            square = 0.0 if is_near else square
            into_sq[j] += square
            into[j] += math.sqrt(square)
        if some:
            for j in range(rest):
                total = norm[i] + norms[j]
                chord = total - 2 * row[j]
                flat_pair = min(size[i], sizes[j]) <= flat
                if (chord <= near * total) | (chord < near) | flat_pair:
                    left[count] = start + j
                    count += 1
        start += rest
    return count


@numba.njit(fastmath={"contract"})
def _exp(x: np.float32) -> np.float32:
    """``exp x`` for x <= 0 to 2e-7 of itself; 0 where it would be denormal.

    Not reassociated: the low half of log 2 would be lost.
    """
    power = np.int32(x * _LOG2E - _HALF)
    n = np.float32(power)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    r2 = r * r
    tail = (_E2 + _E3 * r) + r2 * ((_E4 + _E5 * r) + r2 * (_E6 + _E7 * r))
    scale = np.int32(np.int32(power + _BIAS) << _MANTISSA_BITS).view(np.float32)
    return scale * (_ONE + (r + r2 * tail)) if x > _LEAST else _ZERO


@_compiled(nogil=True)
def _shares(content, tops, shares, totals):  # type: ignore[no-untyped-def]
    heads, n = content.shape
    for h in range(heads):
        x, into, top = content[h], shares[h], tops[h]
        for k in range(n):
            into[k] = _exp(x[k] - top)
        total = np.float32(0)
        for k in range(n):
            total += into[k]
        totals[h] = total
        scale = _ONE / total
        for k in range(n):
            into[k] *= scale


@_compiled(nogil=True)
def _gaps_of_gram(gram, near, out):  # type: ignore[no-untyped-def]
    heads = gram.shape[0]
    size = np.empty(heads, gram.dtype)
    for i in range(heads):
        size[i] = gram[i, i]
    start, count = 0, 0
    for i in range(heads):
        rest = heads - 1 - i
        row, others, into = gram[i, i + 1 :], size[i + 1 :], out[start : start + rest]
        for j in range(rest):
            total = size[i] + others[j]
            gap = total - 2 * row[j]
            into[j] = gap
            count += gap <= near * total
        start += rest
    return count


@_compiled(nogil=True)
def _split_squares(chord_sq, size, content, dispersion, direction):  # type: ignore[no-untyped-def]
    heads = size.shape[0]
    start = 0
    for i in range(heads):
        rest = heads - 1 - i
        pairs = slice(start, start + rest)
        chords, others = chord_sq[pairs], size[i + 1 :]
        into, gaps, directions = content[pairs], dispersion[pairs], direction[pairs]
        for j in range(rest):
            gap = size[i] - others[j]
            gaps[j] = gap * gap
            directions[j] = size[i] * others[j] * chords[j]
            into[j] = gaps[j] + directions[j]
        start += rest


@_compiled(nogil=True)
def _divergences(x, g, mass, near, out):  # type: ignore[no-untyped-def]
    heads, keys = x.shape
    own = np.empty(heads)
    for i in range(heads):
        total = np.float32(0)
        for k in range(keys):
            total += g[k] * _x_log_x(x[i, k])
        own[i] = total
    pair = 0
    for i in range(heads):
        for j in range(i + 1, heads):
            masses = mass[i] + mass[j]
            w = mass[i] / masses if masses > 0 else 0.5
            weight = np.float32(w)
            total = np.float32(0)
            for k in range(keys):
                q = x[j, k]
                total += g[k] * _x_log_x(q + weight * (x[i, k] - q))
            apart = own[j] + w * (own[i] - own[j])
            value = apart - total
            # masses far apart make the whole divergence large, whatever the shares
            if value + 2 * (w - 0.5) ** 2 <= near * apart:
                out[pair] = np.nan
            else:
                out[pair] = 0.5 * masses * value
            pair += 1


@_compiled(inline="always")
def _phi(x: np.float32) -> np.float32:
    """``(1+x) log1p(x) + (1-x) log1p(-x)``, its series below 1/8."""
    y = x * x
    series = y * (_ONE + y * (_P1 + y * (_P2 + y * (_P3 + y * _P4))))
    return series if y < _SERIES_BELOW else _x_log_x(_ONE + x) + _x_log_x(_ONE - x)


@_compiled(nogil=True)
def _add_mass_divergences(content, sink, out):  # type: ignore[no-untyped-def]
    heads = content.shape[0]
    start = 0
    for i in range(heads):
        c, s = content[i], sink[i]
        rest = heads - 1 - i
        others, sinks, into = content[i + 1 :], sink[i + 1 :], out[start : start + rest]
        for j in range(rest):
            gap = c - others[j]
            all_c, all_s = max(c + others[j], _TINY), max(s + sinks[j], _TINY)
            of_c = np.float64(_phi(np.float32(gap / all_c)))
            of_s = np.float64(_phi(np.float32(gap / all_s)))
            into[j] += (all_c * of_c + all_s * of_s) / 4
        start += rest


class ContentLoops:
    """The two loops around the matrix product when content distances alone are asked for."""

    directions = staticmethod(_directions_of_row)
    add = staticmethod(_add_content)


class CompiledKernels:
    """The compiled loops, called as the NumPy ones are."""

    content = ContentLoops()

    def directions(
        self, content: np.ndarray, top: np.ndarray, flat: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        size, unit = np.empty(len(content)), np.empty(content.shape, content.dtype)
        _directions(content, top, flat, size, unit)
        return size, unit

    def shares(self, content: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        if content.dtype != np.float32:
            return NumpyKernels().shares(content, top)
        shares, total = np.empty_like(content), np.empty(len(content), np.float32)
        _shares(content, top, shares, total)
        return shares, total

    def gaps_of_gram(
        self, gram: np.ndarray, near: float, group: HeadGroup
    ) -> tuple[np.ndarray, int]:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        out = np.empty(len(group.flat), gram.dtype)
        count = _gaps_of_gram(gram, gram.dtype.type(near), out)
        return out, count

    def split_squares(
        self, chord_sq: np.ndarray, size: np.ndarray, group: HeadGroup
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        content, dispersion, direction = np.empty((3, len(chord_sq)))
        _split_squares(chord_sq, size, content, dispersion, direction)
        return content, dispersion, direction

    def divergences(
        self, x: np.ndarray, g: np.ndarray, mass: np.ndarray, near: float, out: np.ndarray
    ) -> None:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        _divergences(x, g, mass, near, out)

    def add_mass_divergences(self, content: np.ndarray, sink: np.ndarray, out: np.ndarray) -> None:
        """See :class:`~sinkwise.distances.pair_kernels.Kernels`."""
        _add_mass_divergences(content, sink, out)
