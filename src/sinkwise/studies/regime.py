"""The regime rule: does the spread of sink mass over heads warn that classical verdicts flip?"""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkwise.errors import RowError

__all__ = ["RECORD", "SAFE_BELOW", "UNSAFE_ABOVE", "regime"]

SAFE_BELOW = 0.10
UNSAFE_ABOVE = 0.20
"""Frozen before any outcome was looked at; the thresholds of the published rule are not known."""

RECORD = (
    "Published record of such a rule, out of sample: one hit, one abstention, one miss. It "
    "describes; it is no law."
)


def regime(sink_mass: np.ndarray) -> dict[str, Any]:
    """Judge from sink masses alone whether classical measures are likely to mislead.

    Parameters
    ----------
    sink_mass
        ``(heads,)`` mean sink mass of each head.

    Returns
    -------
    dict
        ``verdict`` (``"classical safe"``, ``"classical unsafe"`` or ``"abstain"``), ``why``,
        ``dispersion`` (standard deviation of the masses over heads), the thresholds
        ``safe_below`` and ``unsafe_above``, and the rule's own ``record``.

    Raises
    ------
    RowError
        On masses that are not numbers, or fewer than 2.

    Notes
    -----
    Where heads share one sink mass, keeping the sink adds nearly the same to every comparison;
    where they differ, it can outweigh the content.  The reversal rates say what really happened.

    Examples
    --------
    >>> regime(np.array([0.1, 0.5, 0.9]))["verdict"]
    'classical unsafe'
    """
    masses = np.asarray(sink_mass, dtype=np.float64)
    masses = masses[np.isfinite(masses)]
    if masses.size < 2:
        raise RowError("the spread of sink mass needs the masses of 2 heads or more")
    spread = float(masses.std())
    if spread < SAFE_BELOW:
        verdict, why = "classical safe", f"below {SAFE_BELOW}: heads have much the same sink mass"
    elif spread > UNSAFE_ABOVE:
        verdict, why = "classical unsafe", f"above {UNSAFE_ABOVE}: heads differ in their sink mass"
    else:
        verdict, why = "abstain", f"between {SAFE_BELOW} and {UNSAFE_ABOVE}: the rule is silent"
    return {
        "verdict": verdict,
        "why": f"the standard deviation of sink mass over heads is {spread:.3f}, {why}",
        "dispersion": spread,
        "safe_below": SAFE_BELOW,
        "unsafe_above": UNSAFE_ABOVE,
        "record": RECORD,
    }
