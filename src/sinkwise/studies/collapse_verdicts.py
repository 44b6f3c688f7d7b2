"""What a change of entropy was, in words; and how much of it each channel made."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy import stats

from sinkwise.accumulate.intervals import Interval, jackknife_deviations, jackknife_mean

__all__ = [
    "VERDICTS",
    "excludes_zero",
    "mostly",
    "share_of_change",
    "verdict",
    "words",
    "words_of_shares",
]

VERDICTS = (
    "sink grew",
    "sink shrank",
    "sink moved",
    "content sharpened",
    "content spread",
    "both",
    "neither",
    "no interval",
)
"""The words of a verdict.

``sink grew`` (``shrank``): of the two channels only the sink's has an interval without 0, and that
of the change in sink mass lies above (below) it; ``sink moved``: that one holds 0, so mass went
from some rows to others.  ``content sharpened`` (``spread``): only the content's has, below (above)
0.  ``both``, ``neither``: as it says.  ``no interval``: a single document has none.
"""


def excludes_zero(found: Interval) -> bool:
    """Whether an interval is there and lies on one side of 0; one that is 0 and 0 does not.

    Examples
    --------
    >>> excludes_zero(Interval(0.2, 0.1, 0.3)), excludes_zero(Interval(0.2, -0.1, 0.5))
    (True, False)
    """
    return bool(found.low > 0 or found.high < 0)


def verdict(sink: Interval, content: Interval, sink_mass: Interval) -> str:
    """Return one of :data:`VERDICTS` for a change.

    Parameters
    ----------
    sink, content
        The channels of the change, in nats.
    sink_mass
        Change of the mean sink mass: more mass on a sink can raise an entropy or lower it, so the
        sign of its channel doesn't say whether the sink grew.

    Examples
    --------
    >>> verdict(Interval(-0.8, -0.9, -0.7), Interval(0.01, -0.02, 0.04),
    ...         Interval(0.5, 0.4, 0.6))
    'sink grew'
    >>> verdict(Interval(0.0, -0.1, 0.1), Interval(-0.3, -0.4, -0.2),
    ...         Interval(0.0, -0.1, 0.1))
    'content sharpened'
    """
    if not all(np.isfinite([sink.low, sink.high, content.low, content.high])):
        return "no interval"
    moved, reshaped = excludes_zero(sink), excludes_zero(content)
    if moved and reshaped:
        return "both"
    if moved:
        return _of_sink(sink_mass)
    return _of_content(content) if reshaped else "neither"


def words(sink: Interval, content: Interval, sink_mass: Interval) -> str:
    """Return the verdict as a sentence that says what moved, and which way the entropy went.

    Examples
    --------
    >>> words(Interval(-0.8, -0.9, -0.7), Interval(-0.1, -0.2, -0.05),
    ...       Interval(0.5, 0.4, 0.6))
    'The sink grew, which lowered the entropy; the content sharpened, which lowered it too.'
    """
    found = verdict(sink, content, sink_mass)
    if found == "no interval":
        return "A single document gives no interval, so the change has no verdict."
    if found == "neither":
        return "Neither channel is told apart from no change by these documents."
    to_sink = f"{_of_sink(sink_mass)}, which {_effect(sink)}"
    if found == "both":
        alike = (sink.value < 0) == (content.value < 0)
        effect = f"{_effect(content)} it{' too' if alike else ''}"
        return f"The {to_sink} the entropy; the {_of_content(content)}, which {effect}."
    if excludes_zero(sink):
        return f"The {to_sink} the entropy; the content is not told apart from unchanged."
    return (
        f"The {_of_content(content)}, which {_effect(content)} the entropy; the sink's channel is "
        "not told apart from no change."
    )


def share_of_change(
    channel: np.ndarray, total: np.ndarray, rows: np.ndarray, level: float = 0.95
) -> Interval:
    """Return a channel's share of a total change, with Fieller's interval over documents.

    Parameters
    ----------
    channel, total
        ``(documents,)`` sums over rows.
    rows
        ``(documents,)``: how many rows each sum holds.
    level
        Two-sided level.

    Returns
    -------
    Interval
        NaN throughout where the interval of the total (at the same level) holds 0, and for fewer
        than 2 documents.  A share can be below 0 or above 1: channels may pull against each other.

    Notes
    -----
    The set of shares θ for which the interval of ``channel - θ · total`` holds 0.  It is bounded
    exactly where the interval of the total excludes 0, so nothing is withheld that has an interval
    and nothing is given that has none.

    References
    ----------
    Fieller (1954), Some problems in interval estimation, JRSS B 16.

    Examples
    --------
    >>> rows = np.array([10, 10, 10])
    >>> share_of_change(np.array([-3.0, -4.0, -3.5]), np.array([-6.0, -8.0, -7.0]), rows)
    Interval(value=0.5, low=0.5, high=0.5)
    >>> share_of_change(np.array([1.0, -1.0]), np.array([2.0, -1.0]), np.array([10, 10]))
    Interval(value=nan, low=nan, high=nan)
    """
    nothing = Interval(float("nan"), float("nan"), float("nan"))
    if not excludes_zero(jackknife_mean(total, rows, level)):
        return nothing
    c, t = float(np.sum(channel) / np.sum(rows)), float(np.sum(total) / np.sum(rows))
    dc, dt = jackknife_deviations(np.stack([channel, total], 1), rows).T
    q = float(stats.t.ppf((1 + level) / 2, int((rows > 0).sum()) - 1)) ** 2
    a = t * t - q * float(dt @ dt)
    b = c * t - q * float(dc @ dt)
    k = c * c - q * float(dc @ dc)
    if not a > 0:  # the total's interval touches 0 to rounding
        return nothing
    reach = np.sqrt(max(b * b - a * k, 0.0))
    # adding 0 turns a negative zero into a plain one
    return Interval(c / t + 0.0, float((b - reach) / a) + 0.0, float((b + reach) / a) + 0.0)


def mostly(shares: Mapping[str, Interval]) -> str:
    """Return the channel whose share's interval lies above a half, empty where none does.

    With many documents small channels are told apart from 0 too, and the verdict is ``both``; this
    says which of them matters.

    Examples
    --------
    >>> mostly({"sink": Interval(0.78, 0.76, 0.8), "content": Interval(0.22, 0.2, 0.24)})
    'sink'
    """
    return next((name for name, share in shares.items() if share.low > 0.5), "")


def words_of_shares(shares: Mapping[str, Interval]) -> str:
    """Return a sentence on the shares, empty where they are withheld.

    Examples
    --------
    >>> words_of_shares({"sink": Interval(0.78, 0.76, 0.8), "content": Interval(0.22, 0.2, 0.24)})
    "Most of the change is the sink's: 78 % (76 to 80)."
    """
    if not all(np.isfinite(share.value) for share in shares.values()):
        return ""
    most = mostly(shares)
    if most:
        value, low, high = (100 * end for end in shares[most])
        whose = {"sink": "the sink's", "content": "the content's"}.get(most, "within the sink")
        return f"Most of the change is {whose}: {value:.0f} % ({low:.0f} to {high:.0f})."
    told = ", ".join(
        f"{name.replace('_', ' ')} {100 * share.value:.0f} %"
        for name, share in shares.items()
        if share.value
    )
    return f"No channel made most of the change: {told}."


def _of_sink(mass: Interval) -> str:
    if not excludes_zero(mass):
        return "sink moved"
    return "sink grew" if mass.value > 0 else "sink shrank"


def _of_content(content: Interval) -> str:
    return "content spread" if content.value > 0 else "content sharpened"


def _effect(channel: Interval) -> str:
    return "raised" if channel.value > 0 else "lowered"
