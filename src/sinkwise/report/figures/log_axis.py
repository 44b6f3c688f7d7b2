"""Ticks of a logarithmic axis that spans less than a few decades."""

from __future__ import annotations

__all__ = ["log_ticks"]

_MOST_TICKS = 8


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two positive values, as many as an axis holds.

    Examples
    --------
    >>> log_ticks(17.5, 45.0)
    [20.0, 25.0, 30.0, 40.0]
    """
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 3), (1,)):
        found = [m * 10.0**k for k in range(-9, 9) for m in steps if low <= m * 10.0**k <= high]
        if len(found) <= _MOST_TICKS:
            break
    return found
