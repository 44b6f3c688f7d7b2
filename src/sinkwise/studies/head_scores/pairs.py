"""Pairs of heads, closest first: one of the two goes, its twin stays.

A score is named by its distance: ``"content"``, ``"js_divergence/kept"``.  Two parameters may be
written into the name: another floor (``"content/floor=0.01"``), and which head of a pair goes
(``"content:goes=weaker"``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sinkwise.errors import RowError
from sinkwise.studies.head_scores.budgets import Budget
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.greedy import closest_pairs
from sinkwise.studies.head_scores.score import Score

__all__ = ["GOES", "SCORES", "variant"]

_TITLES: Mapping[str, str] = {
    "content": "content distance",
    "content_angle": "content angle",
    "aitchison": "Aitchison distance",
    "aitchison_angle": "angle between whole rows' clr",
    "content/geometric_weights": "content distance, geometric-mean weights",
    "aitchison/geometric_weights": "Aitchison distance, geometric-mean weights",
    "cosine/kept": "cosine, sink kept",
    "cosine/dropped": "cosine, sink dropped",
    "js_divergence/kept": "JS divergence, sink kept",
    "js_divergence/dropped": "JS divergence, sink dropped",
    "js_divergence/zeroed": "JS divergence, sink zeroed",
    "euclidean/kept": "Euclid, sink kept",
    "euclidean/dropped": "Euclid, sink dropped",
    "euclidean/zeroed": "Euclid, sink zeroed",
    "content/floor=0.001": "content distance, shares floored at 0.001",
}

_IN_USE_BEFORE = ("content", "aitchison", "cosine", "js_divergence", "euclidean")
"""Distances that published pruning went by, under any convention; not their weighted forms."""


def _later(evidence: Evidence) -> Callable[[int, int], int]:
    return max  # heads are numbered layer by layer


def _earlier(evidence: Evidence) -> Callable[[int, int], int]:
    return min


def _weaker(evidence: Evidence) -> Callable[[int, int], int]:
    size = evidence.outputs.relative_norm
    if not np.isfinite(size).all():
        raise RowError(
            f"{int((~np.isfinite(size)).sum())} of {len(size)} heads have no finite output norm, "
            "so the weaker of a pair can't be told: calibrate outputs first, or use :goes=later"
        )
    return lambda i, j: i if size[i] < size[j] else j


GOES: Mapping[str, Callable[[Evidence], Callable[[int, int], int]]] = {
    "later": _later,
    "earlier": _earlier,
    "weaker": _weaker,
}
"""Which head of a pair goes: the deeper (within a layer the higher index), the shallower, or the
one with the smaller output over the residual stream's norm."""

DEFAULT_GOES = "later"


def _choose(
    evidence: Evidence, budget: Budget, generator: np.random.Generator, *, distance: str, goes: str
) -> tuple[int, ...]:
    distances = evidence.distance(distance)
    return closest_pairs(distances, evidence.layers, budget, GOES[goes](evidence))


def _pair_score(distance: str, title: str, goes: str = DEFAULT_GOES) -> Score:
    base, _, form = distance.partition("/")
    return Score(
        distance if goes == DEFAULT_GOES else f"{distance}:goes={goes}",
        f"closest pairs by {title}" + ("" if goes == DEFAULT_GOES else f", the {goes} goes"),
        "pairs",
        base in _IN_USE_BEFORE and not form.startswith(("floor", "geometric")),
        frozenset({"rows", "outputs"} if goes == "weaker" else {"rows"}),
        partial(_choose, distance=distance, goes=goes),
        {"distance": distance, "goes": goes, "rescored": "closest pair among the heads left"},
    )


SCORES = tuple(_pair_score(distance, title) for distance, title in _TITLES.items())


def variant(name: str) -> Score | None:
    """Return the pair score of a name with parameters written into it; ``None`` if it is none.

    Raises
    ------
    RowError
        If a parameter has no such value, or the distance is another one under a second name.

    Examples
    --------
    >>> variant("content/floor=0.01:goes=weaker").parameters["goes"]
    'weaker'
    """
    distance, *options = name.split(":")
    title = _title_of(distance)
    if title is None:
        return None
    goes = DEFAULT_GOES
    for option in options:
        key, _, goes = option.partition("=")
        if key != "goes" or goes not in GOES:
            raise RowError(
                f"score {name!r}: after the distance may stand which of a pair goes, "
                f"{', '.join(f':goes={rule}' for rule in GOES)}, not {':' + option!r}"
            )
    return _pair_score(distance, title, goes)


def _title_of(distance: str) -> str | None:
    if distance in _TITLES:
        return _TITLES[distance]
    if distance == "cosine/zeroed":
        raise RowError(
            "cosine distance with the sink zeroed is that with the sink dropped: ask for "
            "cosine/dropped"
        )
    base, found, floor = distance.partition("/floor=")
    if base != "content" or not found:
        return None
    try:
        share = float(floor)
    except ValueError:
        share = np.nan
    if not 0 < share < 1 or f"{share:g}" != floor:
        raise RowError(
            f"distance {distance!r}: expected a share between 0 and 1 in its shortest form, for "
            "example content/floor=0.01"
        )
    return f"content distance, shares floored at {floor}"
