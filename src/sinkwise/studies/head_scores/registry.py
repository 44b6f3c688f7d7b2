"""All scores by name.  To add one: a module that exports SCORES, named in FAMILIES below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from sinkwise.errors import RowError
from sinkwise.studies.head_scores import (
    dispersion,
    gate_gradients,
    joint,
    leave_one_out,
    output_norms,
    pairs,
    random_heads,
    sink_mass,
)
from sinkwise.studies.head_scores.score import Score

__all__ = ["DEFAULT", "SCORES", "distances_of", "score_named"]

FAMILIES = (
    joint,
    output_norms,
    gate_gradients,
    leave_one_out,
    sink_mass,
    dispersion,
    pairs,
    random_heads,
)

SCORES: Mapping[str, Score] = MappingProxyType(
    {score.name: score for family in FAMILIES for score in family.SCORES}
)
"""Every score, by name."""

DEFAULT = "fisher_matrix"
"""The score for deletion where none is asked for, held against the classical ones.

Of the joint scores it did least damage over six models; docs/studies/pruning.md has every cell.
"""


def score_named(name: str) -> Score:
    """Return the score of a name.

    Parameters
    ----------
    name
        One of :data:`SCORES`, or a pair score with parameters: ``"content/floor=0.01"``,
        ``"cosine/kept:goes=weaker"``.

    Raises
    ------
    RowError
        If there is no such score; the message lists what there is.

    Examples
    --------
    >>> score_named("joint_output").kind
    'joint'
    >>> score_named("content/floor=0.01").parameters["distance"]
    'content/floor=0.01'
    """
    found = SCORES.get(name) or pairs.variant(name)
    if found is None:
        near = get_close_matches(name, SCORES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise RowError(f"no score is named {name!r}{hint}; there are {', '.join(SCORES)}")
    return found


def distances_of(scores: Iterable[Score]) -> tuple[str, ...]:
    """Return the names of the distances that scores go by, each once.

    Examples
    --------
    >>> distances_of([score_named("content"), score_named("michel")])
    ('content',)
    """
    names = (score.parameters["distance"] for score in scores if "distance" in score.parameters)
    return tuple(dict.fromkeys(names))
