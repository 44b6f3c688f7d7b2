"""Verdicts on halves of the documents, on the same triples for every half and measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.head_matrix import condensed_pair
from sinkwise.studies.reversal import sample_triples

__all__ = ["flips_within", "half_triples", "rates_on"]

_HALF_TRIPLES = 20_000  # on which the halves are compared; all triples where there are fewer
_TILE_TRIPLES = 2_000


def half_triples(n_heads: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All triples where they are few, else a seeded sample."""
    if n_heads * (n_heads - 1) * (n_heads - 2) // 2 > _HALF_TRIPLES:
        return sample_triples(n_heads, _HALF_TRIPLES, seed)
    b, c = np.triu_indices(n_heads, 1)
    a = np.repeat(np.arange(n_heads), len(b))
    b, c = np.tile(b, n_heads), np.tile(c, n_heads)
    keep = (a != b) & (a != c)
    return a[keep], b[keep], c[keep]


def rates_on(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    chosen: np.ndarray,
    triples: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Reversal rates on given triples, ``(subsets, names, names)``, each subset of documents alone.

    `chosen` is bool ``(subsets, documents)``.  NaN where a subset leaves a pair without rows.
    """

    def tallied(part: slice) -> tuple[np.ndarray, np.ndarray]:
        places = _places(n_heads, triples, part)
        signs = np.stack([d.signs(*places, chosen) for d in documents.values()], axis=1)
        signs = signs.astype(np.float32)  # counts of 2,000 triples are exact
        products = signs @ signs.swapaxes(1, 2)
        np.abs(signs, out=signs)
        return products, signs @ signs.swapaxes(1, 2)

    n_triples = len(triples[0])
    products = np.zeros((len(chosen), len(documents), len(documents)))
    magnitudes = np.zeros_like(products)
    for products_here, magnitudes_here in on_all_cores(tallied, _tiles(n_triples)):
        products += products_here
        magnitudes += magnitudes_here
    # opposite signs score 1 and one zero scores 1/2, which (1 - product) / 2 says of every triple
    # but those tied in both: there it says 1/2 in place of 0
    untied = np.diagonal(magnitudes, axis1=1, axis2=2)
    tied_in_both = n_triples - untied[:, :, None] - untied[:, None, :] + magnitudes
    return (n_triples - products - tied_in_both) / (2 * n_triples)


def flips_within(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    halves: np.ndarray,
    triples: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Share of verdicts that differ between disjoint halves, ``(names,)``, ties counting half."""

    def flipped(part: slice) -> list[float]:
        places = _places(n_heads, triples, part)
        pairs = ((d.signs(*places, halves), d.signs(*places, ~halves)) for d in documents.values())
        return [float(np.abs(one - other).sum()) / 2 for one, other in pairs]

    n_triples = len(triples[0])
    flips = np.sum(list(on_all_cores(flipped, _tiles(n_triples))), axis=0)
    return np.asarray(flips / (len(halves) * n_triples))


def _places(
    n_heads: int, triples: tuple[np.ndarray, np.ndarray, np.ndarray], part: slice
) -> tuple[np.ndarray, np.ndarray]:
    a, b, c = (heads[part] for heads in triples)
    return condensed_pair(n_heads, a, b), condensed_pair(n_heads, a, c)


def _tiles(n: int) -> Iterator[slice]:
    for start in range(0, n, _TILE_TRIPLES):
        yield slice(start, start + _TILE_TRIPLES)
