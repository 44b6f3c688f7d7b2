"""Which heads belong together, under each measure, and how far that depends on the measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.clustering import (
    METHODS,
    adjusted_rand_index,
    cluster_heads,
    silhouettes,
)
from sinkwise.studies.document_halves import (
    DocumentPairs,
    checked_pairs,
    halves_interval,
    random_halves,
)
from sinkwise.studies.head_matrix import square

__all__ = ["TAXONOMY_COLUMNS", "TAXONOMY_NAMES", "taxonomy"]

TAXONOMY_COLUMNS = (
    "first",
    "second",
    "method",
    "k",
    "ari",
    "low",
    "high",
    "bias",
    "ceiling_first",
    "ceiling_second",
    "sizes_first",
    "sizes_second",
    "degenerate",
    "note",
)
"""Columns of the table, there also when it is empty."""

TAXONOMY_NAMES = (
    "content",
    "content_angle",
    "aitchison",
    "js_divergence/kept",
    "js_divergence/dropped",
    "cosine/kept",
    "cosine/dropped",
)
"""The measures compared when none are named."""

DEGENERATE_SHARE = 0.9
"""A clustering with a larger share of the heads in one cluster says next to nothing."""

SELF_AGREEMENT = 0.5
"""A measure whose own halves agree less than this is too noisy for an interval."""

_CLUSTERS = 5
_MOST_CLUSTERS = 10


def taxonomy(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    *,
    names: Sequence[str] | None = None,
    k: int | Literal["silhouette"] | None = None,
    methods: Sequence[str] = METHODS,
    halves: int = 25,
    seed: int = 0,
    level: float = 0.95,
    heads: Sequence[HeadId] | None = None,
) -> pd.DataFrame:
    """Cluster the heads under every measure and compare the clusterings, two by two.

    Parameters
    ----------
    documents
        Per-document sums and counts by measure, all over the same documents and pairs.
    n_heads
        Number of heads.
    names
        Measures to compare; :data:`TAXONOMY_NAMES` where present by default.
    k
        Number of clusters; 5 by default, or one less than the heads where they are fewer; or
        ``"silhouette"``: for each method the number from 2 to 10 with the largest silhouette
        averaged over the measures.
    methods
        Of :data:`~sinkwise.studies.clustering.METHODS`.
    halves
        How many times the documents are parted into two halves.
    seed
        Of the halves.
    level
        Two-sided level of the intervals.
    heads
        Names for messages.

    Returns
    -------
    pandas.DataFrame
        One row per method and pair of measures: ``first``, ``second``, ``method``, ``k``; ``ari``
        (adjusted Rand index of the two clusterings); ``low``, ``high`` and ``bias``
        (:func:`~sinkwise.studies.document_halves.halves_interval` over both halves of every
        parting; NaN with a ``note`` where the documents are too few, which a ceiling below 0.5
        says too); ``ceiling_first`` and
        ``ceiling_second`` (mean index of the measure's own clusterings on two halves that share
        no document: an ``ari`` near it is agreement as good as can be told); ``sizes_first`` and
        ``sizes_second`` (heads per cluster, largest first); ``degenerate`` (either clustering has
        more than 90 % of the heads in one cluster, so its index means little).

    Raises
    ------
    RowError
        If measures are missing or disagree in documents or pairs, a mean distance is NaN (naming
        the heads), or `k` or a method is out of range.

    Notes
    -----
    O(methods · measures · halves) clusterings of O(heads^2) each.  A ceiling from halves is that
    of half the documents, so the whole's is if anything higher.  Simulated with 40 heads in 5
    loose or tight groups, 8 and 32 documents and noise from small to overwhelming, the intervals
    given at level 0.95 cover 0.94 overall and 0.85-1.00 by case (0.70 in a case where few are
    given); without the rule on ceilings 0.00 at worst.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import pdist
    >>> points = np.repeat([[0.0], [5.0], [9.0]], 4, axis=0) + np.linspace(0, 1, 12)[:, None]
    >>> pairs = DocumentPairs(np.tile(pdist(points), (4, 1)), np.ones((4, 1)))
    >>> table = taxonomy({"content": pairs, "js_divergence/kept": pairs}, 12, k=3)
    >>> table.ari.tolist(), table.sizes_first[0], float(table.ceiling_first[0])
    ([1.0, 1.0], (4, 4, 4), 1.0)
    """
    chosen, matrices = checked_pairs(documents, n_heads, names, heads, default=TAXONOMY_NAMES)
    if halves < 2:
        raise RowError(f"halves is {halves}, expected 2 partings of the documents or more")
    n_documents = next(iter(chosen.values())).n_documents
    parted = random_halves(n_documents, halves, seed)
    half_matrices = {name: _half_matrices(d, n_heads, parted) for name, d in chosen.items()}
    found = []
    for method in methods:
        if k == "silhouette":
            number = _best_k(matrices, method)
        else:
            number = min(_CLUSTERS, n_heads - 1) if k is None else k
        whole = {
            name: cluster_heads(matrix, k=number, method=method, heads=heads)
            for name, matrix in matrices.items()
        }
        on_halves = {
            name: [cluster_heads(m, k=number, method=method) for m in found_halves]
            for name, found_halves in half_matrices.items()
        }
        ceilings = {name: _ceiling(labels, halves) for name, labels in on_halves.items()}
        for first, second in combinations(chosen, 2):
            ari = adjusted_rand_index(whole[first], whole[second])
            half_values = [
                adjusted_rand_index(a, b)
                for a, b in zip(on_halves[first], on_halves[second], strict=False)
            ]
            complete = len(half_values) == 2 * halves
            interval = halves_interval(
                ari,
                np.array(half_values if complete else [np.nan]),
                n_documents,
                level=level,
                bounds=(-0.5, 1.0),  # the index can't be lower
                drowned=min(ceilings[first], ceilings[second]) < SELF_AGREEMENT,
            )
            sizes = [_sizes(whole[name]) for name in (first, second)]
            found.append(
                {
                    "first": first,
                    "second": second,
                    "method": method,
                    "k": number,
                    "ari": ari,
                    "low": interval.low,
                    "high": interval.high,
                    "bias": interval.bias,
                    "ceiling_first": ceilings[first],
                    "ceiling_second": ceilings[second],
                    "sizes_first": sizes[0],
                    "sizes_second": sizes[1],
                    "degenerate": max(s[0] for s in sizes) > DEGENERATE_SHARE * n_heads,
                    "note": interval.note,
                }
            )
    return pd.DataFrame(found, columns=TAXONOMY_COLUMNS)


def _half_matrices(documents: DocumentPairs, n_heads: int, parted: np.ndarray) -> list[np.ndarray]:
    """Matrices of all first halves, then all second ones; none if a pair has no row in one."""
    condensed = documents.of(np.concatenate([parted, ~parted]))
    if not np.isfinite(condensed).all():
        return []
    return [square(d, n_heads) for d in condensed]


def _ceiling(on_halves: Sequence[np.ndarray], halves: int) -> float:
    """Mean index of a measure with itself on disjoint halves; NaN without them."""
    if not on_halves:
        return float("nan")
    pairs = zip(on_halves[:halves], on_halves[halves:], strict=True)
    return float(np.mean([adjusted_rand_index(a, b) for a, b in pairs]))


def _best_k(matrices: Mapping[str, np.ndarray], method: str) -> int:
    n_heads = len(next(iter(matrices.values())))
    candidates = range(2, min(_MOST_CLUSTERS, n_heads - 1) + 1)
    scores = [
        np.mean(
            [silhouettes(m, cluster_heads(m, k=k, method=method)).mean() for m in matrices.values()]
        )
        for k in candidates
    ]
    return int(candidates[int(np.argmax(scores))])


def _sizes(labels: np.ndarray) -> tuple[int, ...]:
    return tuple(sorted((int(n) for n in np.bincount(labels)), reverse=True))
