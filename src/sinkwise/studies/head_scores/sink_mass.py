"""Heads by how much they attend to the sink: the sinkiest, or the least sinky, first.

With ``_deep`` the deeper half of the layers goes first, as in BOS sink-aware pruning (Sok et al.,
2026), which removes heads with a high sink score from deep layers.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.singles import single_score

__all__ = ["SCORES"]

DEEP = 0.5
"""Share of the layers that count as shallow."""


def _sink_mass(evidence: Evidence, *, sign: int, deep_first: bool) -> np.ndarray:
    values = sign * evidence.of_profile("sink_mass")
    if not deep_first:
        return values
    layers, place = np.unique(evidence.layers, return_inverse=True)
    shallow = place < DEEP * len(layers)
    return values + np.where(shallow, 2.0, 0.0)  # masses lie within 1 of each other


SCORES = tuple(
    single_score(
        f"sink_mass/{which}{'_deep' if deep_first else ''}",
        f"{title} heads first{', deeper half of the layers before the rest' * deep_first}",
        partial(_sink_mass, sign=sign, deep_first=deep_first),
        needs=("rows",),
        classical=True,
        parameters={"order": f"{title} first"} | ({"deep_from": DEEP} if deep_first else {}),
    )
    for which, title, sign in (("most", "sinkiest", -1), ("least", "least sinky", 1))
    for deep_first in (False, True)
)
