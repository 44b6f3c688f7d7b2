"""Clusterings of the heads on all documents and on halves of them: computed once, compared often.

A clustering has a ceiling: how far it agrees with itself when it is made from other documents.
Two clusterings can't be told to agree worse than the shakier of them agrees with itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.clustering import (
    FINDS_NUMBER,
    METHODS,
    adjusted_rand_index,
    cluster_checked,
    cluster_heads,
    cluster_sizes,
    is_degenerate,
    noise_apart,
    silhouettes,
)
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import (
    DocumentPairs,
    checked_pairs,
    halves_interval,
    random_halves,
)
from sinkwise.studies.head_matrix import square
from sinkwise.studies.neighbourhood_clustering import groups_may_be_far_apart

__all__ = ["FEW_PARTINGS", "FEW_PARTINGS_NOTE", "Agreement", "HalfClusterings"]

FEW_PARTINGS = 2
"""Partings of the documents for the methods that cost more: spectral and HDBSCAN."""

ALL_ALIKE = "heads all alike: no groups to compare"
FEW_PARTINGS_NOTE = f"no interval: ceilings from {FEW_PARTINGS} partings"
"""The note where a ceiling comes from so few partings that no interval is given."""

SELF_AGREEMENT = 0.5
"""A measure whose own halves agree less than this is too noisy for an interval."""

_COSTLY = ("spectral", "hdbscan")
_CLUSTERS = 5
_MOST_CLUSTERS = 10
_LEAST_INDEX = -0.5  # of the adjusted Rand index


@dataclass(frozen=True)
class Agreement:
    """How two clusterings agree.

    Attributes
    ----------
    ari
        Adjusted Rand index; heads in no cluster (HDBSCAN) count as clusters of their own.
    low, high, bias, note
        As :func:`~sinkwise.studies.document_halves.halves_interval` gives them.
    ceilings
        Mean index of each with itself on two halves that share no document; NaN without halves.
    sizes
        Heads per cluster of each, largest first; what is missing to all heads is in no cluster.
    degenerate
        Whether either has over 90 % of the heads in one cluster or in none.
    """

    ari: float
    low: float
    high: float
    bias: float
    note: str
    ceilings: tuple[float, float]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    degenerate: bool


class HalfClusterings:
    """Clusterings under several measures and methods, each made when it is first asked for.

    Parameters
    ----------
    documents
        Per-document sums and counts by measure, all over the same documents and pairs.
    n_heads
        Number of heads, at least 3.
    names
        Measures; those of `default` that are there when None.
    default
        Measures taken when `names` is None.
    k
        Number of clusters: 5 when None, or one less than the heads where they are fewer; a number;
        or ``"silhouette"``: for each method the number from 2 to 10 with the largest silhouette
        averaged over the measures.  HDBSCAN takes none.
    halves
        Partings of the documents into two halves; :data:`FEW_PARTINGS` at most for the methods
        that cost more.
    seed
        Of the partings.
    level
        Two-sided level of intervals.
    heads
        Names for messages.

    Raises
    ------
    RowError
        If measures are missing or disagree in documents or pairs, a mean distance is NaN (naming
        the heads), or `halves` is below 2.

    Notes
    -----
    Holds one ``(heads, heads)`` matrix per measure, and some nine more a core while halves are
    clustered: 8 · (measures + 9 · cores) · heads² bytes, 1 GB for 2,000 heads, 12 measures and 2
    cores, beside the sums.
    """

    def __init__(
        self,
        documents: Mapping[str, DocumentPairs],
        n_heads: int,
        *,
        names: Sequence[str] | None = None,
        default: Sequence[str] = (),
        k: int | Literal["silhouette"] | None = None,
        halves: int = 25,
        seed: int = 0,
        level: float = 0.95,
        heads: Sequence[HeadId] | None = None,
    ) -> None:
        self._documents, self._matrices = checked_pairs(
            documents, n_heads, names, heads, default=default
        )
        if halves < 2:
            raise RowError(f"halves is {halves}, expected 2 partings of the documents or more")
        self.n_documents = next(iter(self._documents.values())).n_documents
        self._parted = random_halves(self.n_documents, halves, seed)
        self._k = k
        self._level = level
        self._heads = heads
        self._numbers: dict[str, int | None] = {}
        self._whole: dict[tuple[str, str], np.ndarray] = {}
        self._ceilings: dict[tuple[str, str], float] = {}
        self._halves: dict[tuple[str, str], list[np.ndarray]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The measures."""
        return tuple(self._documents)

    def number(self, method: str) -> int | None:
        """Return how many clusters `method` is asked for; None where it finds their number."""
        if method not in METHODS:
            raise RowError(f"unknown clustering {method!r}; there are {', '.join(METHODS)}")
        if method in FINDS_NUMBER:
            return None
        if method not in self._numbers:
            n_heads = len(next(iter(self._matrices.values())))
            if self._k == "silhouette":
                self._numbers[method] = self._best_number(method, n_heads)
            else:
                self._numbers[method] = min(_CLUSTERS, n_heads - 1) if self._k is None else self._k
        return self._numbers[method]

    def labels(self, name: str, method: str) -> np.ndarray:
        """Return the clusters on all documents, ``(heads,)``."""
        key = (name, method)
        if key not in self._whole:
            self._whole[key] = cluster_heads(
                self._matrices[name], k=self.number(method), method=method, heads=self._heads
            )
        return self._whole[key]

    def ceiling(self, name: str, method: str) -> float:
        """Return the mean index of a clustering with itself on disjoint halves; NaN without."""
        key = (name, method)
        if key not in self._ceilings:
            found = self._on_halves(name, method)
            pairs = zip(found[::2], found[1::2], strict=True)
            self._ceilings[key] = (
                float(np.mean([_index(a, b) for a, b in pairs])) if found else float("nan")
            )
        return self._ceilings[key]

    def agreement(self, first: tuple[str, str], second: tuple[str, str]) -> Agreement:
        """Compare two clusterings, each a measure and a method."""
        labels = [self.labels(*first), self.labels(*second)]
        ari = _index(*labels)
        ceilings = self.ceiling(*first), self.ceiling(*second)
        sizes = cluster_sizes(labels[0]), cluster_sizes(labels[1])
        if not all(self._matrices[name].any() for name, _ in (first, second)):
            nan = float("nan")  # which heads share a cluster is then the method's whim
            return Agreement(nan, nan, nan, nan, ALL_ALIKE, (nan, nan), sizes, True)
        degenerate = any(is_degenerate(x) for x in labels)
        if {first[1], second[1]} & set(_COSTLY):
            nan = float("nan")
            return Agreement(ari, nan, nan, nan, FEW_PARTINGS_NOTE, ceilings, sizes, degenerate)
        on_halves = self._on_halves(*first), self._on_halves(*second)
        found = [_index(a, b) for a, b in zip(*on_halves, strict=False)]
        whole = len(found) == 2 * len(self._parted)
        interval = halves_interval(
            ari,
            np.array(found if whole else [np.nan]),
            self.n_documents,
            level=self._level,
            bounds=(_LEAST_INDEX, 1.0),
            drowned=min(ceilings) < SELF_AGREEMENT,
        )
        return Agreement(
            ari,
            interval.low,
            interval.high,
            interval.bias,
            interval.note,
            ceilings,
            sizes,
            degenerate,
        )

    def _on_halves(self, name: str, method: str) -> list[np.ndarray]:
        """Clusters on both halves of every parting, in turn; none if a pair has no row in one."""
        key = (name, method)
        if key not in self._halves:
            parted = self._parted[:FEW_PARTINGS] if method in _COSTLY else self._parted
            both = np.stack([parted, ~parted], axis=1).reshape(-1, self.n_documents)
            number, n_heads = self.number(method), len(self._matrices[name])
            documents = self._documents[name]

            def clustered(half: np.ndarray) -> np.ndarray | None:
                condensed = documents.of(half)
                if not np.isfinite(condensed).all():
                    return None
                return cluster_checked(square(condensed, n_heads), k=number, method=method)

            with groups_may_be_far_apart():
                labels = list(on_all_cores(clustered, both))
            found = [x for x in labels if x is not None]
            found = found if len(found) == len(both) else []
            self._halves[key] = found
        return self._halves[key]

    def _best_number(self, method: str, n_heads: int) -> int:
        def score(matrix: np.ndarray, k: int) -> float:
            labels = cluster_heads(matrix, k=k, method=method)
            if len(np.unique(labels)) < 2:  # heads that coincide
                return -1.0
            return float(silhouettes(matrix, labels).mean())

        candidates = range(2, min(_MOST_CLUSTERS, n_heads - 1) + 1)
        scores = [np.mean([score(m, k) for m in self._matrices.values()]) for k in candidates]
        return int(candidates[int(np.argmax(scores))])


def _index(first: np.ndarray, second: np.ndarray) -> float:
    return adjusted_rand_index(noise_apart(first), noise_apart(second))
