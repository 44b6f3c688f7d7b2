"""Which part of a disagreement between two clusterings is linkage, which scale, which the sink.

Clusters by content distance and by a classical measure that keeps the sink differ in three ways at
once.  Changed one at a time, each way has an index of its own to be read against its ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from sinkwise.rowdata import HeadId
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.half_clusterings import HalfClusterings
from sinkwise.studies.taxonomy import TAXONOMY_NAMES

__all__ = [
    "EFFECT_COLUMNS",
    "EFFECT_NAMES",
    "effects_of",
    "taxonomy_effects",
    "what_follows",
]

EFFECT_COLUMNS = (
    "effect",
    "first",
    "first_method",
    "second",
    "second_method",
    "ari",
    "low",
    "high",
    "ceiling",
    "sizes_first",
    "sizes_second",
    "degenerate",
    "note",
)
"""Columns of the table, there also when it is empty."""

EFFECT_NAMES = (*TAXONOMY_NAMES, "dispersion")
"""The measures that the table needs; rows of missing ones are left out."""

_AVERAGE, _MEDOIDS = "average", "k-medoids"
_KEPT, _DROPPED = "js_divergence/kept", "js_divergence/dropped"

_COMPARED = (
    *(("linkage", (name, _AVERAGE), (name, _MEDOIDS)) for name in ("content", _KEPT)),
    *(
        ("scale", (first, method), (second, method))
        for first, second in (("content", "content_angle"), ("content", "dispersion"))
        for method in (_AVERAGE, _MEDOIDS)
    ),
    *(
        ("sink", (f"{metric}/kept", method), (f"{metric}/dropped", method))
        for metric in ("js_divergence", "cosine")
        for method in (_AVERAGE, _MEDOIDS)
    ),
    *(
        ("together", (name, method), (_KEPT, method))
        for name in ("content", "content_angle")
        for method in (_AVERAGE, _MEDOIDS)
    ),
)


def taxonomy_effects(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    *,
    k: int | Literal["silhouette"] | None = None,
    halves: int = 25,
    seed: int = 0,
    level: float = 0.95,
    heads: Sequence[HeadId] | None = None,
) -> pd.DataFrame:
    """Compare clusterings that differ in one thing: linkage, scale or the sink.

    Parameters
    ----------
    documents
        Per-document sums and counts by measure, all over the same documents and pairs; those of
        :data:`EFFECT_NAMES` are used.
    n_heads, k, halves, seed, level, heads
        As in :func:`~sinkwise.studies.taxonomy.taxonomy`.

    Returns
    -------
    pandas.DataFrame
        One row per comparison: ``effect`` (``"linkage"``: one matrix under average linkage and
        k-medoids; ``"scale"``: content against its angle, which is blind to how sharp a head is,
        and against the gap in dispersion, which sees nothing else; ``"sink"``: a classical measure
        with the sink kept and dropped; ``"together"``: content or its angle against JS kept, where
        all differ at once); ``first``, ``first_method``, ``second``, ``second_method``; ``ari``
        with ``low`` and ``high``; ``ceiling`` (the lower of the two); ``sizes_first``,
        ``sizes_second``, ``degenerate`` and ``note`` as in
        :func:`~sinkwise.studies.taxonomy.taxonomy`.

    Notes
    -----
    An index below its ceiling by more than its interval says that the change moves heads between
    clusters by more than other documents would.  In the second scale comparison a *high* index
    speaks of scale: clusters of content that are clusters of its norm.  :func:`what_follows` says
    it in words.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import pdist
    >>> points = np.repeat([[0.0], [5.0], [9.0]], 4, axis=0) + np.linspace(0, 1, 12)[:, None]
    >>> pairs = DocumentPairs(np.tile(pdist(points), (4, 1)), np.ones((4, 1)))
    >>> table = taxonomy_effects({"content": pairs, "content_angle": pairs}, 12, k=3)
    >>> table[["effect", "ari"]].values.tolist()
    [['linkage', 1.0], ['scale', 1.0], ['scale', 1.0]]
    """
    found = HalfClusterings(
        documents,
        n_heads,
        default=EFFECT_NAMES,
        k=k,
        halves=halves,
        seed=seed,
        level=level,
        heads=heads,
    )
    return effects_of(found)


def effects_of(clusterings: HalfClusterings) -> pd.DataFrame:
    """Return the table of :func:`taxonomy_effects` from clusterings that other studies use too."""
    rows: list[dict[str, Any]] = []
    for effect, first, second in _COMPARED:
        if not {first[0], second[0]} <= set(clusterings.names):
            continue
        found = clusterings.agreement(first, second)
        rows.append(
            {
                "effect": effect,
                "first": first[0],
                "first_method": first[1],
                "second": second[0],
                "second_method": second[1],
                "ari": found.ari,
                "low": found.low,
                "high": found.high,
                "ceiling": float(np.min(found.ceilings)),
                "sizes_first": found.sizes[0],
                "sizes_second": found.sizes[1],
                "degenerate": found.degenerate,
                "note": found.note,
            }
        )
    return pd.DataFrame(rows, columns=EFFECT_COLUMNS)


def what_follows(table: pd.DataFrame) -> str:
    """Return what :func:`taxonomy_effects` says about this model, in plain words.

    Says of linkage, scale and sink, each changed alone, whether the index stands below its ceiling
    by more than its interval, and names clusterings too lopsided to tell.  Empty for an empty
    table.

    Parameters
    ----------
    table
        What :func:`taxonomy_effects` returned.

    Examples
    --------
    >>> row = {
    ...     "effect": "sink", "first": "js_divergence/kept", "first_method": "k-medoids",
    ...     "second": "js_divergence/dropped", "second_method": "k-medoids", "ari": 0.46,
    ...     "low": 0.31, "high": 0.63, "ceiling": 0.68, "sizes_first": (9, 8),
    ...     "sizes_second": (10, 7), "degenerate": False, "note": "",
    ... }
    >>> what_follows(pd.DataFrame([row], columns=EFFECT_COLUMNS))
    'The sink alone (JS kept against dropped, k-medoids) gives 0.46 of a ceiling of 0.68: below it.'
    """
    cases = (
        ("The linkage alone (content, average against k-medoids)", "linkage", "content", None),
        ("the scale alone (content against its angle, k-medoids)", "scale", "content", _MEDOIDS),
        ("the sink alone (JS kept against dropped, k-medoids)", "sink", _KEPT, _MEDOIDS),
    )
    said = []
    for words, effect, first, method in cases:
        rows = table[(table.effect == effect) & (table["first"] == first)]
        if effect == "scale":
            rows = rows[rows.second == "content_angle"]
        if method is not None:
            rows = rows[rows.first_method == method]
        if len(rows):
            said.append(f"{words} gives {_told(rows.iloc[0])}")
    if not said:
        return ""
    sentence = "; ".join(said)
    return sentence[0].upper() + sentence[1:] + "."


def _told(row: pd.Series) -> str:
    """The index beside its ceiling, and what can be said of it."""
    of = f"{row.ari:.2f}"
    if np.isfinite(row.ceiling):
        of += f" of a ceiling of {row.ceiling:.2f}"
    if row.degenerate:
        share = max(_largest_share(s) for s in (row.sizes_first, row.sizes_second))
        return f"{of}, which says little with {100 * share:.0f} % of the heads in one cluster"
    if not (np.isfinite(row.high) and np.isfinite(row.ceiling)):
        return f"{of}, with too few documents to say more"
    return f"{of}: below it" if row.high < row.ceiling else f"{of}: not told from noise"


def _largest_share(sizes: tuple[int, ...]) -> float:
    return max(sizes) / sum(sizes)
