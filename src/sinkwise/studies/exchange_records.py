"""What was exchanged and what held-out documents gave: the raw material of an interchange study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinkwise.studies.exchanged_pairs import Pair

__all__ = ["ExchangePoint", "Records", "Singles"]

Records = Sequence[Mapping[str, Any]]
"""The evaluation's records, one a document: ``tokens`` with ``loss`` or ``damage``."""


@dataclass(frozen=True)
class ExchangePoint:
    """One evaluated exchange.

    Attributes
    ----------
    metric
        The distance that chose the pairs, or ``"random"``.
    mode
        ``"whole"`` or ``"split"``.
    scope
        ``"model"`` or ``"layer"``.
    share
        Share of the heads that borrow.
    seed
        Of random pairs; ``None`` otherwise.
    pairs
        Numbers of borrower and donor.
    documents
        The evaluation's records, one a document.
    top1_agreement
        Share of tokens whose most likely label is the dense model's, or ``None``.
    """

    metric: str
    mode: str
    scope: str
    share: float
    seed: int | None
    pairs: tuple[Pair, ...]
    documents: Records
    top1_agreement: float | None = None


@dataclass(frozen=True)
class Singles:
    """Pairs exchanged one at a time.

    Attributes
    ----------
    pairs
        Numbers of borrower and donor.
    distances
        ``(pairs,)`` by metric.
    clusters
        ``(heads,)`` cluster numbers by metric and clustering method.
    documents
        By mode, one list of the evaluation's records a pair.
    """

    pairs: tuple[Pair, ...]
    distances: Mapping[str, Sequence[float]]
    clusters: Mapping[tuple[str, str], Sequence[int]]
    documents: Mapping[str, Sequence[Records]]
