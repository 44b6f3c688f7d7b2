"""Verdicts on halves of the documents, on the same triples for every half and measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.head_matrix import condensed_pair
from sinkwise.studies.reversal import sample_triples

__all__ = ["flips_within", "half_triples", "rates_on"]

_HALF_TRIPLES = 20_000  # on which the halves are compared; all triples where there are fewer
_TILE_TRIPLES = 2_000


def half_triples(n_heads: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All triples where they are few, else a seeded sample."""
    if n_heads * (n_heads - 1) * (n_heads - 2) // 2 > _HALF_TRIPLES:
        return sample_triples(n_heads, _HALF_TRIPLES, seed + 1)
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
    a, b, c = triples
    # pairs first: the distances of one pair under all subsets are then one contiguous row
    distances = [np.ascontiguousarray(d.of(chosen).T) for d in documents.values()]
    products = np.zeros((len(chosen), len(distances), len(distances)))
    magnitudes = np.zeros_like(products)
    for part in _tiles(len(a)):
        ab = condensed_pair(n_heads, a[part], b[part])
        ac = condensed_pair(n_heads, a[part], c[part])
        signs = np.empty((len(chosen), len(distances), len(ab)), dtype=np.float32)
        for k, d in enumerate(distances):
            signs[:, k] = np.sign(d[ab] - d[ac]).T
        products += signs @ signs.swapaxes(1, 2)
        np.abs(signs, out=signs)
        magnitudes += signs @ signs.swapaxes(1, 2)
    # opposite signs score 1 and one zero scores 1/2, which (1 - product) / 2 says of every triple
    # but those tied in both: there it says 1/2 in place of 0
    untied = np.diagonal(magnitudes, axis1=1, axis2=2)
    tied_in_both = len(a) - untied[:, :, None] - untied[:, None, :] + magnitudes
    return (len(a) - products - tied_in_both) / (2 * len(a))


def flips_within(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    halves: np.ndarray,
    triples: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Share of verdicts that differ between disjoint halves, ``(names,)``, ties counting half."""
    a, b, c = triples
    ab, ac = condensed_pair(n_heads, a, b), condensed_pair(n_heads, a, c)
    shares = []
    for d in documents.values():
        one, other = d.of(halves), d.of(~halves)
        flips = [
            np.abs(np.sign(x[ab] - x[ac]) - np.sign(y[ab] - y[ac])).mean() / 2
            for x, y in zip(one, other, strict=True)
        ]
        shares.append(float(np.mean(flips)))
    return np.array(shares)


def _tiles(n: int) -> Iterator[slice]:
    for start in range(0, n, _TILE_TRIPLES):
        yield slice(start, start + _TILE_TRIPLES)
