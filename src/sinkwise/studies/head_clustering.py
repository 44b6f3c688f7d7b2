"""Clusters of heads as a scikit-learn estimator on a precomputed distance matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

from sinkwise.errors import RowError
from sinkwise.studies.clustering import (
    FINDS_NUMBER,
    METHODS,
    cluster_heads,
    cluster_sizes,
    is_degenerate,
    silhouettes,
)
from sinkwise.studies.head_matrix import as_head_matrix

__all__ = ["HeadClustering"]

_CLUSTERS = 5


class HeadClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Cluster heads from their distances; works where scikit-learn's clusterers work.

    Parameters
    ----------
    n_clusters
        Number of clusters; 5 when None, or one less than the heads where they are fewer;
        ``"silhouette"`` for the number from 2 to `max_clusters` with the largest mean silhouette.
        HDBSCAN finds the number itself and wants None.
    method
        ``"average"``, ``"k-medoids"``, ``"spectral"`` or ``"hdbscan"``
        (:func:`~sinkwise.studies.clustering.cluster_heads`); all are deterministic.
    max_clusters
        The most clusters that ``"silhouette"`` tries.

    Attributes
    ----------
    labels_
        int ``(heads,)`` from 0, in the order of first heads; -1 for heads in no cluster.
    n_clusters_
        How many clusters there are.
    sizes_
        Heads per cluster, largest first.
    degenerate_
        Whether over 90 % of the heads share one cluster, or none is in any to speak of.
    n_features_in_
        Number of heads.

    Examples
    --------
    >>> import numpy as np
    >>> d = np.abs(np.subtract.outer([0, 1, 10, 11.0], [0, 1, 10, 11.0]))
    >>> model = HeadClustering(n_clusters=2).fit(d)
    >>> model.labels_.tolist(), model.sizes_, model.degenerate_
    ([0, 0, 1, 1], (2, 2), False)
    """

    def __init__(
        self,
        n_clusters: int | str | None = None,
        *,
        method: str = "average",
        max_clusters: int = 10,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.max_clusters = max_clusters

    def fit(self, X: np.ndarray, y: object = None) -> HeadClustering:
        """Cluster heads.

        Parameters
        ----------
        X
            ``(heads, heads)`` or condensed ``(pairs,)`` distances, always read as distances and
            never as observations; rounding asymmetry is averaged out.  Not modified.
        y
            Ignored.

        Raises
        ------
        RowError
            If `X` is no distance matrix (NaN, negative, asymmetric, nonzero diagonal), or a
            parameter is out of range.
        """
        matrix = as_head_matrix(X, at_least=3)
        if matrix.min() < 0:
            raise RowError(
                f"X holds {matrix.min():.6g}; a distance is never negative. Were these "
                "similarities? Pass 1 - similarity"
            )
        if self.method in METHODS and self.method not in FINDS_NUMBER:
            self.labels_ = self._fit_number(matrix)
        else:
            if isinstance(self.n_clusters, str):
                raise RowError(
                    f"n_clusters is {self.n_clusters!r}, but {self.method} finds the number of "
                    "clusters: leave it out"
                )
            self.labels_ = cluster_heads(matrix, k=self.n_clusters, method=self.method)
        self.sizes_ = cluster_sizes(self.labels_)
        self.n_clusters_ = len(self.sizes_)
        self.degenerate_ = is_degenerate(self.labels_)
        self.n_features_in_ = len(matrix)
        return self

    def _fit_number(self, matrix: np.ndarray) -> np.ndarray:
        if self.n_clusters is None:
            return cluster_heads(matrix, k=min(_CLUSTERS, len(matrix) - 1), method=self.method)
        if not isinstance(self.n_clusters, str):
            return cluster_heads(matrix, k=self.n_clusters, method=self.method)
        if self.n_clusters != "silhouette":
            raise RowError(
                f"n_clusters is {self.n_clusters!r}, expected a number, None or 'silhouette'"
            )
        best, best_score = np.zeros(len(matrix), dtype=int), -np.inf
        for k in range(2, min(self.max_clusters, len(matrix) - 1) + 1):
            labels = cluster_heads(matrix, k=k, method=self.method)
            if len(np.unique(labels)) < 2:  # heads that all coincide
                continue
            score = float(silhouettes(matrix, labels).mean())
            if score > best_score:
                best, best_score = labels, score
        return best

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that rows and columns are the same heads."""
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = True
        return tags
