"""What a score is: a name, what it needs, and the order in which it takes heads away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from sinkwise.studies.head_scores.budgets import Budget
from sinkwise.studies.head_scores.evidence import Evidence

__all__ = ["Need", "Score", "ScoreKind"]

ScoreKind = Literal["pairs", "single", "joint", "random"]
Need = Literal["rows", "outputs", "gradients", "leave_one_out"]


@dataclass(frozen=True)
class Score:
    """A rule that chooses the heads to remove.

    Attributes
    ----------
    name
        As it is asked for and recorded.
    title
        A few words for tables and figures.
    kind
        ``"pairs"`` (closest pair first, one of the two goes), ``"single"`` (each head by itself,
        lowest first), ``"joint"`` (the head that adds least to what the set does) or
        ``"random"``.
    classical
        Whether it was in use before this library: what a new score has to be held against.
    needs
        What must be measured first: ``"rows"`` (an audit), ``"outputs"`` (a calibration),
        ``"gradients"`` and ``"leave_one_out"`` (a calibration with them).
    choose
        ``choose(evidence, budget, generator)``: numbers of the heads in the order they go.
    parameters
        All that was decided for this score, for the record.
    """

    name: str
    title: str
    kind: ScoreKind
    classical: bool
    needs: frozenset[Need]
    choose: Callable[[Evidence, Budget, np.random.Generator], tuple[int, ...]] = field(repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
