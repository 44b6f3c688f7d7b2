"""Per-document sums behind an audit, wherever they are kept: in memory here, on disk in a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from sinkwise.accumulate.documents import DocumentSums
from sinkwise.accumulate.example import ExampleRow
from sinkwise.accumulate.placement import PlacementSums
from sinkwise.accumulate.profile import PROFILE_COUNT_OF
from sinkwise.accumulate.sink_sets import SinkSetSums
from sinkwise.distances.all_pairs import COUNT_OF
from sinkwise.studies.document_halves import DocumentPairs

__all__ = ["DocumentStore", "MemoryStore"]


class DocumentStore(Protocol):
    """Sums of every document, read one quantity at a time."""

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents, ascending."""

    @property
    def n_rows(self) -> int:
        """Query positions used, over all documents."""

    @property
    def excluded(self) -> dict[str, int]:
        """Query rows left out, by reason."""

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the pair sums kept."""

    def profile(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts of a per-head quantity, each ``(documents, heads)``."""

    def pairs(self, name: str) -> DocumentPairs:
        """Sums and counts of a distance, each ``(documents, pairs)``."""

    def placement(self, document: int) -> PlacementSums:
        """Where each head's attention goes in a document."""

    def tokens(self, document: int) -> np.ndarray | None:
        """Text of a document's tokens, where there is text."""

    def example(self, document: int) -> ExampleRow | None:
        """One row of every head, where it was kept."""

    def sink_sets(self, document: int) -> tuple[str, ...]:
        """Names of the sink sets under which a document was summed."""

    def sink_set(self, document: int, name: str) -> SinkSetSums:
        """A document's sums under one of its :meth:`sink_sets`."""

    def study(self, name: str) -> Mapping[str, Any] | None:
        """What another study of the model left beside the sums, such as ``"interchange"``."""


class MemoryStore:
    """The sums of documents held in memory.

    Parameters
    ----------
    documents
        Sums by document number, at least one.
    """

    def __init__(self, documents: Mapping[int, DocumentSums]) -> None:
        self._sums = dict(sorted(documents.items()))

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents, ascending."""
        return tuple(self._sums)

    @property
    def n_rows(self) -> int:
        """Query positions used, over all documents."""
        return sum(d.n_rows for d in self._sums.values())

    @property
    def excluded(self) -> dict[str, int]:
        """Query rows left out, by reason."""
        total: dict[str, int] = {}
        for document in self._sums.values():
            for reason, number in document.excluded.items():
                total[reason] = total.get(reason, 0) + number
        return total

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the pair sums kept."""
        return tuple(next(iter(self._sums.values())).pairs.sums)

    def profile(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts of a per-head quantity, each ``(documents, heads)``."""
        found = [d.profile for d in self._sums.values()]
        sums = np.stack([p.sums[name] for p in found])
        return sums, np.stack([p.counts[PROFILE_COUNT_OF[name]] for p in found])

    def pairs(self, name: str) -> DocumentPairs:
        """Sums and counts of a distance, each ``(documents, pairs)``."""
        found = [d.pairs for d in self._sums.values()]
        sums = np.stack([p.sums[name] for p in found])
        return DocumentPairs(sums, np.stack([p.counts[COUNT_OF[name]] for p in found]))

    def placement(self, document: int) -> PlacementSums:
        """Where each head's attention goes in a document."""
        return self._sums[document].placement

    def tokens(self, document: int) -> np.ndarray | None:
        """Text of a document's tokens, where there is text."""
        return self._sums[document].tokens

    def example(self, document: int) -> ExampleRow | None:
        """One row of every head, where it was kept."""
        return self._sums[document].example

    def sink_sets(self, document: int) -> tuple[str, ...]:
        """Names of the sink sets under which a document was summed."""
        return tuple(self._sums[document].sink_sets)

    def sink_set(self, document: int, name: str) -> SinkSetSums:
        """A document's sums under one of its :meth:`sink_sets`."""
        return self._sums[document].sink_sets[name]

    def study(self, name: str) -> Mapping[str, Any] | None:
        """Studies leave files; sums in memory have none beside them."""
        return None
