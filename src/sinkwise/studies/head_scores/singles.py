"""Single-head scores: each head has a value, and the lowest go first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from sinkwise.studies.head_scores.budgets import Budget
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.greedy import ascending
from sinkwise.studies.head_scores.score import Need, Score

__all__ = ["HeadValues", "single_score"]

HeadValues = Callable[[Evidence], np.ndarray]
"""Gives a value to each head, ``(H,)``; NaN where it has none."""


def single_score(
    name: str,
    title: str,
    values: HeadValues,
    *,
    needs: Iterable[Need],
    classical: bool,
    parameters: Mapping[str, Any] | None = None,
) -> Score:
    """Return the score that removes the heads of the lowest `values` first.

    Values are taken once, on the whole model; they are not taken again after a removal.
    """
    return Score(
        name,
        title,
        "single",
        classical,
        frozenset(needs),
        partial(_choose, values=values),
        {"rescored": "never", **(parameters or {})},
    )


def _choose(
    evidence: Evidence, budget: Budget, generator: np.random.Generator, *, values: HeadValues
) -> tuple[int, ...]:
    return ascending(values(evidence), evidence.layers, budget)
