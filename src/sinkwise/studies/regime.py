"""The regime rule: does the spread of sink mass over heads warn that classical verdicts flip?"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from sinkwise.errors import RowError
from sinkwise.studies.resolved import resolved_rates

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = [
    "ABSTAIN",
    "SAFE",
    "UNSAFE",
    "RegimeRule",
    "SinkDispersion",
    "frozen_rule",
    "regime",
    "regime_outcome",
    "sink_dispersion",
]

SAFE, UNSAFE, ABSTAIN = "classical safe", "classical unsafe", "abstain"
"""The verdicts."""

_JS = ("js_divergence/kept", "js_divergence/dropped")


@dataclass(frozen=True)
class RegimeRule:
    """The frozen rule, as ``regime_rule.json`` in this package holds it.

    Attributes
    ----------
    version
        Of the rule; thresholds never change within one.
    safe_below, unsafe_above
        Thresholds on the spread; in between, and at them, the rule abstains.
    misled_above
        Resolved Jensen-Shannon reversal rate above which classical verdicts did mislead.
    frozen
        The date.
    provenance
        Where the thresholds come from and what had been seen before.
    record
        What became of the published rule, in words.
    """

    version: int
    safe_below: float
    unsafe_above: float
    misled_above: float
    frozen: str
    provenance: str
    record: str


@cache
def frozen_rule() -> RegimeRule:
    """Return the rule that ships with this version.

    Examples
    --------
    >>> rule = frozen_rule()
    >>> rule.safe_below, rule.unsafe_above, rule.misled_above
    (0.1, 0.2, 0.1)
    """
    text = (resources.files("sinkwise.studies") / "regime_rule.json").read_text(encoding="utf-8")
    found = json.loads(text)
    return RegimeRule(
        version=found["version"],
        safe_below=found["safe_below"],
        unsafe_above=found["unsafe_above"],
        misled_above=found["outcome"]["misled_above"],
        frozen=found["frozen"],
        provenance=found["provenance"],
        record=found["published_record"]["text"],
    )


@dataclass(frozen=True)
class SinkDispersion:
    """The spread of mean sink mass over heads, with what documents say of its noise.

    Attributes
    ----------
    value
        Standard deviation over heads of their mean sink mass, as the rule reads it.
    corrected
        The same with the noise over documents taken out, 0 where noise alone explains it.
    low, high
        Interval of the spread at endlessly many documents; NaN for fewer than 2.
    """

    value: float
    corrected: float
    low: float
    high: float


def sink_dispersion(sums: np.ndarray, counts: np.ndarray, level: float = 0.95) -> SinkDispersion:
    """Return the standard deviation over heads of their mean sink mass, with its interval.

    Parameters
    ----------
    sums
        ``(documents, heads)`` sums of sink mass over each document's rows.
    counts
        How many rows each sum holds: of `sums`' shape, or ``(documents,)``.  A head without rows
        is left out.
    level
        Two-sided level of the interval.

    Returns
    -------
    SinkDispersion
        Shares of attention, 0 to 0.5.

    Raises
    ------
    RowError
        If fewer than 2 heads have rows.

    Notes
    -----
    Each head's mean is off by its noise over documents, which adds to the spread: at 4 documents
    whose noise is as large as the spread, the standard deviation comes out a tenth too large.  The
    interval is that of the *variance* over heads, whose delete-one-document jackknife takes the
    inflation out exactly, with t quantiles and the roots of its ends (0 for a negative one).
    Simulated with 4, 72 and 270 heads, 4, 8 and 16 documents, normal and exponential noise from a
    quarter to five times the spread, it covers 0.91-0.99 at 0.95; the jackknife of the standard
    deviation itself falls to 0.00 where noise is large.  O(documents^2 · heads) time at most.

    Examples
    --------
    >>> import numpy as np
    >>> masses = np.array([[0.1, 0.5, 0.9], [0.2, 0.5, 0.8], [0.1, 0.6, 0.9], [0.2, 0.6, 0.9]])
    >>> found = sink_dispersion(masses, np.ones(4))
    >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
    (0.297, 0.22, 0.35)
    """
    sums = np.asarray(sums, dtype=np.float64)
    counts = np.asarray(counts, dtype=np.float64)
    if counts.ndim == 1:
        counts = np.broadcast_to(counts[:, None], sums.shape)
    used = counts.sum(0) > 0
    if used.sum() < 2:
        raise RowError("the spread of sink mass needs the masses of 2 heads or more")
    sums, counts = sums[:, used], counts[:, used]
    value = float((sums.sum(0) / counts.sum(0)).std())
    present = (counts > 0).any(1)
    documents = int(present.sum())
    if documents < 2:
        return SinkDispersion(value, math.nan, math.nan, math.nan)
    sums, counts = sums[present], counts[present]
    left = counts.sum(0) - counts
    if not (left > 0).all():  # a head that one document alone shows has no spread over documents
        return SinkDispersion(value, math.nan, math.nan, math.nan)
    without = ((sums.sum(0) - sums) / left).var(1)
    variance = value**2 - (documents - 1) * (without.mean() - value**2)
    error = np.sqrt((documents - 1) / documents * ((without - without.mean()) ** 2).sum())
    reach = float(stats.t.ppf((1 + level) / 2, documents - 1)) * error
    ends = np.sqrt(np.maximum([variance, variance - reach, variance + reach], 0.0))
    return SinkDispersion(value, float(ends[0]), float(ends[1]), float(ends[2]))


def regime(dispersion: SinkDispersion | np.ndarray) -> dict[str, Any]:
    """Judge from sink masses alone whether classical measures are likely to mislead.

    Parameters
    ----------
    dispersion
        From :func:`sink_dispersion`; or ``(heads,)`` mean sink masses, NaN for a head without
        rows, which then come without an interval.

    Returns
    -------
    dict
        ``verdict`` (``"classical safe"``, ``"classical unsafe"`` or ``"abstain"``), ``why``;
        ``settled``: whether the interval lies on the verdict's side of the thresholds as a whole
        (None without an interval); ``dispersion`` with ``low``, ``high`` and ``corrected``; the
        thresholds ``safe_below`` and ``unsafe_above``, their ``version`` and ``provenance``; and
        ``record``, what became of the published rule, to be shown wherever the verdict is.

    Raises
    ------
    RowError
        On masses of fewer than 2 heads.

    Notes
    -----
    Where heads share one sink mass, keeping the sink adds nearly the same to every comparison;
    where they differ, it can outweigh the content.  :func:`regime_outcome` says what happened.

    Examples
    --------
    >>> regime(np.array([0.1, 0.5, 0.9]))["verdict"]
    'classical unsafe'
    """
    if not isinstance(dispersion, SinkDispersion):
        masses = np.asarray(dispersion, dtype=np.float64)
        masses = masses[np.isfinite(masses)]
        if masses.size < 2:
            raise RowError("the spread of sink mass needs the masses of 2 heads or more")
        dispersion = SinkDispersion(float(masses.std()), math.nan, math.nan, math.nan)
    rule = frozen_rule()
    verdict, why = _judged(dispersion.value, rule)
    why = f"the standard deviation of sink mass over heads is {dispersion.value:.3f}, {why}"
    settled: bool | None = None
    if math.isfinite(dispersion.low):
        settled = all(_judged(end, rule)[0] == verdict for end in (dispersion.low, dispersion.high))
        ends = f"{dispersion.low:.3f} to {dispersion.high:.3f}"
        why += f"; its interval, {ends}, " + (
            "lies there too"
            if settled
            else "reaches across a threshold, so that these documents don't settle the verdict"
        )
    return {
        "verdict": verdict,
        "why": why,
        "settled": settled,
        "dispersion": dispersion.value,
        "low": dispersion.low,
        "high": dispersion.high,
        "corrected": dispersion.corrected,
        "safe_below": rule.safe_below,
        "unsafe_above": rule.unsafe_above,
        "version": rule.version,
        "provenance": rule.provenance,
        "record": rule.record,
    }


def _judged(spread: float, rule: RegimeRule) -> tuple[str, str]:
    if spread < rule.safe_below:
        return SAFE, f"below {rule.safe_below}: heads have much the same sink mass"
    if spread > rule.unsafe_above:
        return UNSAFE, f"above {rule.unsafe_above}: heads differ in their sink mass"
    return ABSTAIN, f"from {rule.safe_below} to {rule.unsafe_above}: the rule is silent"


def regime_outcome(audit: Audit) -> dict[str, Any]:
    """Return what really happened, and whether the rule had said so.

    Parameters
    ----------
    audit
        A finished audit.

    Returns
    -------
    dict
        ``rate``: the reversal rate of Jensen-Shannon divergence, kept against dropped, among
        verdicts resolved in both at the 95 % level; ``resolved_share``: how many verdicts those
        are; ``misled``: whether the rate is above ``misled_above``; ``result``: ``"hit"``,
        ``"miss"``, ``"abstained"`` or, where no verdict is resolved, ``"undecided"``; ``why``.
        Rate, share and `misled` are None where they cannot be had.

    Notes
    -----
    A rate exactly at the threshold counts as not misled.  One model is one trial: a hit says
    little.

    Examples
    --------
    >>> import sinkwise as sw
    >>> z = np.random.default_rng(0).normal(size=(6, 5, 6, 8))  # documents, heads, queries, keys
    >>> z[..., 0] += 2 * np.arange(5)[:, None]
    >>> regime_outcome(sw.audit(sw.rows(z, sink=0, logits=True)))["result"]
    'miss'
    """
    rule = frozen_rule()
    found: dict[str, Any] = {"rate": None, "resolved_share": None, "misled": None}
    verdict = audit.regime()
    rate, share, why = _resolved_js(audit)
    if rate is None or verdict is None:
        return {**found, "misled_above": rule.misled_above, "result": "undecided", "why": why}
    misled = rate > rule.misled_above
    said = verdict["verdict"]
    result = "abstained" if said == ABSTAIN else "hit" if (said == UNSAFE) == misled else "miss"
    side = "above" if misled else "not above"
    return {
        "rate": rate,
        "resolved_share": share,
        "misled": misled,
        "misled_above": rule.misled_above,
        "result": result,
        "why": (
            f"{rate:.1%} of the resolved Jensen-Shannon verdicts ({share:.0%} of all) reverse when "
            f"the sink is dropped, {side} {rule.misled_above:.0%}"
        ),
    }


def _resolved_js(audit: Audit) -> tuple[float | None, float | None, str]:
    if len(audit.heads) < 3:
        return None, None, "a verdict needs 3 heads"
    pairs = {name: audit.store.pairs(name) for name in _JS}
    if not all(np.isfinite(p.distances()).all() for p in pairs.values()):
        return None, None, "some two heads share no row, so that not every verdict can be had"
    found = resolved_rates(pairs, len(audit.heads), seed=audit.seed)
    rate, share = float(found.rate[0, 1]), float(found.share[0, 1])
    if not math.isfinite(rate):
        return None, None, "no verdict stands out from its noise: too few documents"
    return rate, share, ""
