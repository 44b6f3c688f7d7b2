"""Clusters of heads from a distance matrix, and how two clusterings agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_matrix import as_head_matrix
from sinkwise.studies.neighbourhood_clustering import (
    groups_may_be_far_apart,
    hdbscan_labels,
    spectral_labels,
)

__all__ = [
    "DEGENERATE_SHARE",
    "FINDS_NUMBER",
    "METHODS",
    "NOISE",
    "adjusted_rand_index",
    "average_linkage_labels",
    "cluster_checked",
    "cluster_heads",
    "cluster_sizes",
    "head_linkage",
    "is_degenerate",
    "k_medoids_labels",
    "noise_apart",
    "silhouettes",
]

METHODS = ("average", "k-medoids", "spectral", "hdbscan")
"""Average linkage (as in the literature) cut at k clusters, k-medoids, spectral, and HDBSCAN."""

FINDS_NUMBER = ("hdbscan",)
"""Methods that take no number of clusters: they find it."""

NOISE = -1
"""The label of a head in no cluster."""

DEGENERATE_SHARE = 0.9
"""A clustering with a larger share of the heads in one cluster says next to nothing."""


def head_linkage(
    matrix: np.ndarray, *, method: str = "average", heads: Sequence[HeadId] | None = None
) -> np.ndarray:
    """Return SciPy's merge table of heads from their distances.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` or condensed ``(pairs,)`` distances; always read as distances, never as
        observations.
    method
        ``"average"``, ``"complete"`` or ``"single"``: the linkages that need distances alone.
    heads
        Names for messages.

    Returns
    -------
    numpy.ndarray
        ``(heads - 1, 4)`` as :func:`scipy.cluster.hierarchy.linkage`.

    Examples
    --------
    >>> import numpy as np
    >>> table = head_linkage(np.array([1, 2, 3, 1.5, 2.7, 0.15]), method="complete")
    >>> table[:, 2].tolist()
    [0.15, 1.0, 3.0]
    """
    if method not in ("average", "complete", "single"):
        raise RowError(
            f"linkage {method!r} needs more than distances; take average, complete or single"
        )
    # linkage() takes a square matrix for observations, so it only ever gets the condensed form
    condensed = squareform(as_head_matrix(matrix, heads=heads), checks=False)
    merges: np.ndarray = linkage(condensed, method=method)
    return merges


def cluster_heads(
    matrix: np.ndarray,
    *,
    k: int | None = None,
    method: str = "average",
    heads: Sequence[HeadId] | None = None,
) -> np.ndarray:
    """Return the cluster of every head, int ``(heads,)`` from 0, in the order of first heads.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` or condensed ``(pairs,)`` distances; not modified.
    k
        Number of clusters, from 2 to the number of heads less one; left out for ``"hdbscan"``.
    method
        ``"average"`` (average linkage), ``"k-medoids"``,
        :func:`"spectral" <sinkwise.studies.neighbourhood_clustering.spectral_labels>` or
        :func:`"hdbscan" <sinkwise.studies.neighbourhood_clustering.hdbscan_labels>`, which finds
        the number itself and labels heads in no cluster -1.  All are deterministic.
    heads
        Names for messages.

    Raises
    ------
    RowError
        If the matrix is no distance matrix (NaN, asymmetric, nonzero diagonal), or `k` or
        `method` is out of range.

    Notes
    -----
    Average linkage chains on log-ratio distances: look at the cluster sizes.  O(heads^2 log
    heads), or O(heads^2) a swap for k-medoids, O(k heads^2) an iteration for spectral.

    Examples
    --------
    >>> import numpy as np
    >>> d = np.abs(np.subtract.outer([0, 1, 10, 11.0], [0, 1, 10, 11.0]))
    >>> cluster_heads(d, k=2, method="k-medoids").tolist()
    [0, 0, 1, 1]
    """
    with groups_may_be_far_apart():
        return cluster_checked(as_head_matrix(matrix, heads=heads), k=k, method=method)


def cluster_checked(values: np.ndarray, *, k: int | None, method: str) -> np.ndarray:
    """Return :func:`cluster_heads` of a matrix that is known to be a distance matrix.

    Parameters
    ----------
    values
        float64 ``(heads, heads)``, exactly symmetric with a zero diagonal.
    k, method
        As in :func:`cluster_heads`.
    """
    if method not in METHODS:
        raise RowError(f"unknown clustering {method!r}; there are {', '.join(METHODS)}")
    if method in FINDS_NUMBER:
        if k is not None:
            raise RowError(f"k is {k}, but {method} finds the number of clusters: leave k out")
        return _renumbered(hdbscan_labels(values))
    if k is None or not 2 <= k < len(values):
        raise RowError(f"k is {k}, expected 2 to {len(values) - 1} clusters of {len(values)} heads")
    if method == "spectral":
        return _renumbered(spectral_labels(values, k))
    if method == "k-medoids":
        return k_medoids_labels(values, k)
    return average_linkage_labels(values, k)


def average_linkage_labels(matrix: np.ndarray, k: int) -> np.ndarray:
    """Cut the average linkage of a checked matrix at exactly `k` clusters, ties included."""
    n = len(matrix)
    # row numbers from n on are the clusters made by earlier rows
    merges = linkage(squareform(matrix, checks=False), method="average")[: n - k, :2].astype(int)
    root = np.arange(n + len(merges))
    for number in range(len(merges) - 1, -1, -1):
        root[merges[number]] = root[n + number]
    return _renumbered(root[:n])


def k_medoids_labels(matrix: np.ndarray, k: int) -> np.ndarray:
    """Partition a checked matrix around `k` medoids: greedy start, then the best swap until none.

    The start and the swaps are those of PAM (Kaufman and Rousseeuw 1990), swaps evaluated for all
    pairs of medoid and candidate at once (Schubert and Rousseeuw 2021).  No randomness: ties go
    to the lower head number.
    """
    n = len(matrix)
    medoids = [int(matrix.sum(1).argmin())]
    nearest = matrix[medoids[0]]
    while len(medoids) < k:
        gain = np.maximum(nearest - matrix, 0.0).sum(1)
        gain[medoids] = -1.0
        medoids.append(int(gain.argmax()))
        nearest = np.minimum(nearest, matrix[medoids[-1]])
    tolerance = 1e-12 * float(matrix.max()) * n
    work = np.empty_like(matrix)  # one for all swaps: fresh memory would cost more than the sums
    while True:
        to_medoids = matrix[medoids]
        owner = to_medoids.argmin(0)
        first, second = np.sort(to_medoids, axis=0)[:2]
        owned = np.eye(k)[owner]
        # of replacing a medoid by a candidate: what the candidate saves everyone ...
        np.minimum(matrix, first, out=work)
        saved = first.sum() - work.sum(1)
        # ... and, of the heads that the medoid owned, how far they end up beyond their first
        np.minimum(matrix, second, out=work)
        np.maximum(work, first, out=work)
        change = (work @ owned - first @ owned) - saved[:, None]
        change[medoids] = np.inf
        candidate, replaced = np.unravel_index(int(change.argmin()), change.shape)
        if change[candidate, replaced] >= -tolerance:
            return _renumbered(owner)
        medoids[replaced] = int(candidate)


def silhouettes(
    matrix: np.ndarray, labels: np.ndarray, *, heads: Sequence[HeadId] | None = None
) -> np.ndarray:
    """Return every head's silhouette, ``(heads,)`` in [-1, 1]; larger is better separated.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` or condensed ``(pairs,)`` distances; not modified.
    labels
        ``(heads,)`` clusters, at least 2 and fewer than there are heads.
    heads
        Names for messages.

    References
    ----------
    Rousseeuw (1987), Silhouettes: a graphical aid to the interpretation of cluster analysis.
    """
    from sklearn.metrics import silhouette_samples

    values = as_head_matrix(matrix, heads=heads)
    labels = np.asarray(labels)
    if labels.shape != (len(values),):
        raise RowError(f"labels have shape {labels.shape}, expected one per head, {len(values)}")
    if not 2 <= len(np.unique(labels)) < len(values):
        raise RowError(
            f"a silhouette of {len(np.unique(labels))} clusters of {len(values)} heads says "
            f"nothing; expected 2 to {len(values) - 1} clusters"
        )
    return np.asarray(silhouette_samples(values, labels, metric="precomputed"))


def adjusted_rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """Return the adjusted Rand index of two clusterings: 1 for equal ones, 0 at chance.

    Parameters
    ----------
    first, second
        ``(n,)`` cluster labels of any kind.

    Notes
    -----
    O(n log n); counts of pairs are taken in float64, so they don't overflow at a million labels.
    Two clusterings that are the same trivial one (all apart, all together) give 1.

    References
    ----------
    Hubert and Arabie (1985), Comparing partitions.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    """
    first, second = np.asarray(first), np.asarray(second)
    if first.shape != second.shape or first.ndim != 1 or len(first) < 2:
        raise RowError(
            f"labels have shapes {first.shape} and {second.shape}, expected two of one length, "
            "2 or more"
        )
    a = np.unique(first, return_inverse=True)[1]
    b = np.unique(second, return_inverse=True)[1]
    width = int(b.max()) + 1
    cells = np.unique(a.astype(np.int64) * width + b, return_counts=True)[1]
    together, in_a, in_b = (_pairs(c) for c in (cells, np.bincount(a), np.bincount(b)))
    if together == in_a == in_b:
        return 1.0
    by_chance = in_a * (in_b / _pairs(np.array([len(first)])))
    return (together - by_chance) / ((in_a + in_b) / 2 - by_chance)


def noise_apart(labels: np.ndarray) -> np.ndarray:
    """Return labels in which every head of no cluster is a cluster of its own.

    The index of two clusterings counts pairs that share a cluster, and heads in no cluster share
    none: as one big cluster they would pass for agreement.

    Examples
    --------
    >>> import numpy as np
    >>> noise_apart(np.array([0, -1, 1, -1])).tolist()
    [0, 2, 1, 3]
    """
    apart = np.array(labels)
    noise = apart == NOISE
    apart[noise] = apart.max() + 1 + np.arange(noise.sum())
    return apart


def cluster_sizes(labels: np.ndarray) -> tuple[int, ...]:
    """Return the heads per cluster, largest first; heads in no cluster are not counted."""
    inside = np.asarray(labels)[np.asarray(labels) != NOISE]
    return tuple(sorted((int(n) for n in np.bincount(inside) if n), reverse=True))


def is_degenerate(labels: np.ndarray) -> bool:
    """Return whether over 90 % of the heads share one cluster, or none is in any to speak of.

    An index of such a clustering means little: whatever the other does inside the one cluster
    goes unseen.
    """
    sizes = cluster_sizes(labels)
    lost = len(labels) - sum(sizes)
    return max(*sizes, lost, 0) > DEGENERATE_SHARE * len(labels) or len(sizes) + lost < 2


def _pairs(counts: np.ndarray) -> float:
    counts = counts.astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def _renumbered(labels: np.ndarray) -> np.ndarray:
    """Number clusters from 0 in the order of their first heads; noise stays noise."""
    out = np.full(len(labels), NOISE)
    inside = labels != NOISE
    if inside.any():
        _, start, inverse = np.unique(labels[inside], return_index=True, return_inverse=True)
        out[inside] = np.argsort(np.argsort(start))[inverse]
    return out
