"""Heads by the gradient of the loss to a gate on each: Michel's importance, and Fisher.

Labels of the text itself ("true") exist for language models alone; labels drawn from the model's
own prediction ("sampled") for all.
"""

from __future__ import annotations

import numpy as np

from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.layer_scale import over_layer, to_unit_mean
from sinkwise.studies.head_scores.singles import single_score

__all__ = ["SCORES", "gate_fisher"]


def gate_fisher(evidence: Evidence) -> np.ndarray:
    """Return the gate Fisher F of each head, ``(H,)``, of mean 1.

    The mean of up to four vectors, each scaled to mean 1: the sum over tokens of g² and the
    square of the sum over tokens of g, averaged over documents, for true and for sampled labels;
    g is the gradient of a document's summed loss to a gate on the head.

    Raises
    ------
    RowError
        If there are no gradients.
    """
    vectors = [
        np.diag(matrix)
        for found in evidence.gradients.values()
        for matrix in (found.token_fisher, found.document_fisher)
    ]
    return np.mean([to_unit_mean(v, v.mean()) for v in vectors], axis=0)


def _importance(evidence: Evidence) -> np.ndarray:
    found = evidence.gradients
    return found["true" if "true" in found else "sampled"].importance


def _layer_normalised(evidence: Evidence) -> np.ndarray:
    return over_layer(_importance(evidence), evidence.layers, np.linalg.norm)


SCORES = (
    single_score(
        "michel",
        "smallest gradient to a gate first (Michel et al.)",
        _importance,
        needs=("gradients",),
        classical=True,
        parameters={"labels": "true where there are such, else sampled"},
    ),
    single_score(
        "michel/layer_normalised",
        "smallest gradient to a gate first, over its layer's Euclidean norm",
        _layer_normalised,
        needs=("gradients",),
        classical=True,
        parameters={"labels": "true where there are such, else sampled"},
    ),
    single_score(
        "fisher",
        "smallest gate Fisher first",
        gate_fisher,
        needs=("gradients",),
        classical=True,
        parameters={"vectors": "per token and per document, true and sampled, each of mean 1"},
    ),
)
