"""Heads by the size of what they write into the residual stream, smallest first."""

from __future__ import annotations

import numpy as np

from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.layer_scale import over_layer
from sinkwise.studies.head_scores.singles import single_score

__all__ = ["SCORES"]


def _norm(evidence: Evidence) -> np.ndarray:
    return evidence.outputs.norm


def _relative_norm(evidence: Evidence) -> np.ndarray:
    return evidence.outputs.relative_norm


def _over_layer_mean(evidence: Evidence) -> np.ndarray:
    return over_layer(evidence.outputs.norm, evidence.layers, np.mean)


SCORES = (
    single_score(
        "output_norm",
        "smallest output first",
        _norm,
        needs=("outputs",),
        classical=True,
        parameters={"value": "mean over tokens of |W_O o|"},
    ),
    single_score(
        "relative_output_norm",
        "smallest output over the residual stream's norm first",
        _relative_norm,
        needs=("outputs",),
        classical=True,
        parameters={"value": "mean over tokens of |W_O o| / |x|"},
    ),
    single_score(
        "ahon_ln",
        "smallest output over its layer's mean first (AHON-LN)",
        _over_layer_mean,
        needs=("outputs",),
        classical=True,
        parameters={"value": "mean over tokens of |W_O o|, over its mean over the layer"},
    ),
)
