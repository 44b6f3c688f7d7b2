"""Heads at random: the band beside which every other score is read."""

from __future__ import annotations

import numpy as np

from sinkwise.studies.head_scores.budgets import Budget
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.greedy import ascending
from sinkwise.studies.head_scores.score import Score

__all__ = ["SCORES"]


def _choose(evidence: Evidence, budget: Budget, generator: np.random.Generator) -> tuple[int, ...]:
    order = generator.permutation(len(evidence.heads)).astype(np.float64)
    return ascending(order, evidence.layers, budget)


SCORES = (
    Score(
        "random",
        "random heads",
        "random",
        False,
        frozenset(),
        _choose,
        {"draw": "one order of all heads per seed, the same at every sparsity"},
    ),
)
