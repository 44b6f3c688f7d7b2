"""Scores that choose the heads to remove, as one registry; NumPy only."""

from sinkwise.studies.head_scores.budgets import Budget, Scope, budget, refuse_no_removal
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.registry import DEFAULT, SCORES, distances_of, score_named
from sinkwise.studies.head_scores.score import Score
from sinkwise.studies.head_scores.selection import SetEnergy, removed_heads, set_energy

__all__ = [
    "DEFAULT",
    "SCORES",
    "Budget",
    "Evidence",
    "Scope",
    "Score",
    "SetEnergy",
    "budget",
    "distances_of",
    "refuse_no_removal",
    "removed_heads",
    "score_named",
    "set_energy",
]
