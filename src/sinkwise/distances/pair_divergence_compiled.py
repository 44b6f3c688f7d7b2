"""The compiled form of the all-pairs divergence kernels; importing it needs Numba.

One float32 logarithm per pair and key, by exponent bits and a polynomial, in a loop that LLVM
turns into whole vector registers.  It releases the GIL, so rows run on as many cores as there
are, and is cached on disk where the package's folder can be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

__all__ = ["add_of_masses", "of_shares"]

# no "nnan", "ninf" or "afn": NaN marks a pair, and the logarithm is ours
_FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    def compile_(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, fastmath=_FAST_MATH, **options)(function)
        except RuntimeError:  # nowhere to write the cache: compile in each process
            return numba.njit(fastmath=_FAST_MATH, **options)(function)

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


_P1, _P2, _P3, _P4 = (np.float32(1 / c) for c in (6, 15, 28, 45))
_SERIES_BELOW = np.float32(1 / 64)
_TINY = 1e-300


@_compiled(inline="always")
def _f(x: np.float32) -> np.float32:
    """``x log x - x + 1`` for x >= 0; 1 at 0, exactly 0 at 1."""
    bits = np.float32(x).view(np.int32)
    exponent = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
    t = np.int32(bits - np.int32(exponent << _MANTISSA_BITS)).view(np.float32) - _ONE
    t2 = t * t
    r = ((_R0 + _R1 * t) + t2 * (_R2 + _R3 * t)) + (t2 * t2) * ((_R4 + _R5 * t) + t2 * _R6)
    log = np.float32(exponent) * _LN2 + (t + t2 * r)
    return x * log + (_ONE - x)


@_compiled(nogil=True)
def of_shares(x, g, mass, near, out):  # type: ignore[no-untyped-def]
    """As ``_of_shares`` of :mod:`sinkwise.distances.pair_divergence`."""
    heads, keys = x.shape
    own = np.empty(heads)
    for i in range(heads):
        total = np.float32(0)
        for k in range(keys):
            total += g[k] * _f(x[i, k])
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
                total += g[k] * _f(q + weight * (x[i, k] - q))
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
    return series if y < _SERIES_BELOW else _f(_ONE + x) + _f(_ONE - x)


@_compiled(nogil=True)
def add_of_masses(content, sink, out):  # type: ignore[no-untyped-def]
    """As ``_add_of_masses`` of :mod:`sinkwise.distances.pair_divergence`."""
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
