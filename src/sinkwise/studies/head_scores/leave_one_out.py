"""Heads by what the loss loses with each alone switched off, least first."""

from __future__ import annotations

import numpy as np

from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.singles import single_score

__all__ = ["SCORES"]


def _rise(evidence: Evidence) -> np.ndarray:
    return evidence.leave_one_out


SCORES = (
    single_score(
        "leave_one_out",
        "smallest rise of the loss with the head alone switched off first",
        _rise,
        needs=("leave_one_out",),
        classical=True,
        parameters={"operation": "zero"},
    ),
)
