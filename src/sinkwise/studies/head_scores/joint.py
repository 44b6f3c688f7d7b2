"""Sets of heads by what they do together: the head that adds least goes next.

Losses add up or cancel inside a set: the effect of switching off a set S is close to a quadratic
form ``sum over j, k in S of M_jk``, which no value of single heads or pairs sees.  M is the Gram
matrix of the heads' writes (joint output energy), the same under gradient weights, or the Fisher
matrix of gates on the heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from sinkwise.studies.head_scores.budgets import Budget
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.gate_gradients import gate_fisher
from sinkwise.studies.head_scores.greedy import least_increase
from sinkwise.studies.head_scores.layer_scale import to_unit_mean
from sinkwise.studies.head_scores.score import Need, Score

__all__ = ["SCORES", "fisher_matrix", "gradient_weighted_gram"]

JointMatrix = Callable[[Evidence], np.ndarray]


def gradient_weighted_gram(evidence: Evidence) -> np.ndarray:
    """Return ``M_hk = G_hk (F_h / G_hh)^(1/4) (F_k / G_kk)^(1/4)``, ``(H, H)``.

    G is the Gram matrix of the writes and F the gate Fisher (:func:`gate_fisher`), so that
    ``M_hh = sqrt(G_hh F_h)``: the geometric mean of what a head writes and of what the loss makes
    of it.  A head that writes nothing has a row of zeros.

    Raises
    ------
    RowError
        If there are no gradients.
    """
    gram = evidence.outputs.gram
    energy = np.diag(gram)
    ratio = np.divide(gate_fisher(evidence), energy, out=np.zeros(len(energy)), where=energy > 0)
    weight = ratio**0.25
    return gram * np.outer(weight, weight)


def fisher_matrix(evidence: Evidence, *, moment: Literal["token", "document"]) -> np.ndarray:
    """Return the Fisher matrix of gates on the heads, ``(H, H)``, of mean diagonal 1.

    The mean over true and sampled labels of ``sum_t g_h g_k`` (``"token"``) or
    ``(sum_t g_h)(sum_t g_k)`` (``"document"``), averaged over documents, each first scaled to a
    mean diagonal of 1.

    Raises
    ------
    RowError
        If there are no gradients.
    """
    matrices = [
        found.token_fisher if moment == "token" else found.document_fisher
        for found in evidence.gradients.values()
    ]
    return np.mean([_scaled(m) for m in matrices], axis=0)


def _gram(evidence: Evidence) -> np.ndarray:
    return evidence.outputs.gram


def _fisher_and_gram(evidence: Evidence) -> np.ndarray:
    return fisher_matrix(evidence, moment="token") + _scaled(evidence.outputs.gram)


def _scaled(matrix: np.ndarray) -> np.ndarray:
    return to_unit_mean(matrix, np.diag(matrix).mean())


def _choose(
    evidence: Evidence, budget: Budget, generator: np.random.Generator, *, matrix: JointMatrix
) -> tuple[int, ...]:
    return least_increase(matrix(evidence), evidence.layers, budget)


def _joint_score(
    name: str, title: str, matrix: JointMatrix, needs: tuple[Need, ...], form: str
) -> Score:
    choose = partial(_choose, matrix=matrix)
    parameters = {"matrix": form, "rescored": "after every head"}
    return Score(name, title, "joint", False, frozenset(needs), choose, parameters)


SCORES = (
    _joint_score(
        "joint_output_fisher",
        "least joint output energy under gradient weights",
        gradient_weighted_gram,
        ("outputs", "gradients"),
        form="G_hk (F_h/G_hh)^(1/4) (F_k/G_kk)^(1/4)",
    ),
    _joint_score(
        "joint_output",
        "least joint output energy",
        _gram,
        ("outputs",),
        form="G_hk",
    ),
    _joint_score(
        "fisher_matrix",
        "least joint Fisher information, per token",
        partial(fisher_matrix, moment="token"),
        ("gradients",),
        form="sum over tokens of g_h g_k",
    ),
    _joint_score(
        "fisher_matrix/document",
        "least joint Fisher information, per document",
        partial(fisher_matrix, moment="document"),
        ("gradients",),
        form="(sum over tokens of g_h)(sum over tokens of g_k)",
    ),
    _joint_score(
        "fisher_matrix+output",
        "least joint Fisher information per token and output energy",
        _fisher_and_gram,
        ("outputs", "gradients"),
        form="sum over tokens of g_h g_k, plus G_hk, each of mean diagonal 1",
    ),
)
