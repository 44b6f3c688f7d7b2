"""Clusters from neighbourhoods in place of whole distances: spectral clustering and HDBSCAN.

Both are scikit-learn's, given what makes them repeatable on a distance matrix of heads.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

__all__ = [
    "HDBSCAN_SIZE",
    "gaussian_affinity",
    "groups_may_be_far_apart",
    "hdbscan_labels",
    "spectral_labels",
]

HDBSCAN_SIZE = 5
"""The fewest heads that HDBSCAN calls a cluster, where there are enough of them."""


def gaussian_affinity(matrix: np.ndarray) -> np.ndarray:
    """Return ``exp(-d² / (2 σ²))`` with σ the median distance between different heads.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` as :func:`~sinkwise.studies.head_matrix.as_head_matrix` returns it.

    Notes
    -----
    The median is over pairs that do not coincide, so duplicated heads do not shrink it; where all
    coincide every affinity is 1.  The unit of the distance cancels.

    Examples
    --------
    >>> import numpy as np
    >>> gaussian_affinity(np.array([[0.0, 2.0], [2.0, 0.0]])).round(4).tolist()
    [[1.0, 0.6065], [0.6065, 1.0]]
    """
    apart = matrix[matrix > 0]
    width = float(np.median(apart)) if apart.size else 1.0
    affinity: np.ndarray = np.exp(-((matrix / width) ** 2) / 2)
    return affinity


def spectral_labels(matrix: np.ndarray, k: int) -> np.ndarray:
    """Part a checked matrix into at most `k` clusters by the spectrum of its Gaussian affinity.

    Parameters
    ----------
    matrix
        As for :func:`gaussian_affinity`.
    k
        Number of clusters; fewer come back where heads coincide so that the spectrum can't part
        them.

    Notes
    -----
    ``sklearn.cluster.SpectralClustering`` on the precomputed :func:`gaussian_affinity`, with
    clusters read off the eigenvectors by pivoted QR: no random start, unlike k-means, and ARPACK
    begins from a seeded vector.  A single head without affinity to any other is no cluster of its
    own to it: see whether average linkage splits it off.

    References
    ----------
    Ng, Jordan and Weiss (2002), On spectral clustering; Damle, Minden and Ying (2019), Simple,
    direct and efficient multi-way spectral clustering.
    """
    from sklearn.cluster import SpectralClustering
    from threadpoolctl import threadpool_limits

    if not matrix.any():
        return np.zeros(len(matrix), dtype=int)
    model = SpectralClustering(
        n_clusters=k, affinity="precomputed", assign_labels="cluster_qr", random_state=0
    )
    # the matrices are small: threads of the linear algebra would wait for each other
    with threadpool_limits(1, user_api="blas"):
        return np.asarray(model.fit_predict(gaussian_affinity(matrix)))


@contextmanager
def groups_may_be_far_apart() -> Iterator[None]:
    """Keep scikit-learn from warning that groups have no affinity: they are what is looked for.

    Enter it before threads start, never in them: the filters of warnings belong to the process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        yield


def hdbscan_labels(matrix: np.ndarray) -> np.ndarray:
    """Return the dense groups of a checked matrix, from 0; -1 for heads in none.

    Parameters
    ----------
    matrix
        As for :func:`gaussian_affinity`.

    Notes
    -----
    ``sklearn.cluster.HDBSCAN`` on the precomputed distances, with clusters of
    :data:`HDBSCAN_SIZE` heads or more (half of the heads, but 2 at least, where there are fewer
    than ten), chosen by excess of mass.  It finds their number itself.

    References
    ----------
    Campello, Moulavi and Sander (2013), Density-based clustering based on hierarchical density
    estimates.
    """
    from sklearn.cluster import HDBSCAN

    size = max(2, min(HDBSCAN_SIZE, len(matrix) // 2))
    return np.asarray(
        HDBSCAN(min_cluster_size=size, metric="precomputed", copy=True).fit(matrix).labels_
    )
