"""Heads by how sharply they attend to the content: the flattest, or the sharpest, first.

Flat heads are each other's nearest by an unweighted log-ratio distance, whatever they attend to:
flattest-first is the control that shows how much of such a distance is scale alone.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.singles import single_score

__all__ = ["SCORES"]


def _dispersion(evidence: Evidence, *, sign: int) -> np.ndarray:
    return sign * evidence.of_profile("content_dispersion")


SCORES = tuple(
    single_score(
        name,
        f"{name} content first (norm of its clr)",
        partial(_dispersion, sign=sign),
        needs=("rows",),
        classical=False,
        parameters={"order": f"{name} first"},
    )
    for name, sign in (("flattest", 1), ("sharpest", -1))
)
