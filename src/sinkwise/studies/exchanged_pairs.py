"""Which heads borrow whose pattern: the closest pairs by a distance, random ones, and a sample.

The later head of a pair borrows from the earlier one (in one layer, the one of the higher index),
since a pattern must be there before it can be lent.  A head borrows once.  A donor may borrow as
well: what it lends is the pattern of its own logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId

__all__ = ["SCOPES", "Pair", "Scope", "closest_pairs", "random_distances", "sampled_pairs"]

Pair = tuple[int, int]
"""Numbers of the borrower and its donor, in layer-major order."""

Scope = Literal["model", "layer"]
SCOPES: tuple[str, ...] = get_args(Scope)


def closest_pairs(
    distances: np.ndarray, heads: Sequence[HeadId], share: float, scope: Scope
) -> tuple[Pair, ...]:
    """Return the pairs that exchange, closest first, until a share of the heads borrows.

    Parameters
    ----------
    distances
        ``(heads, heads)``, symmetric; pairs with NaN are never taken.  Ties go to the pair that
        comes first in the model.
    heads
        In layer-major order.
    share
        Of the heads, above 0 and below 1.
    scope
        ``"model"``: pairs from anywhere, ``round(share * heads)`` of them.  ``"layer"``: pairs
        within a layer, ``round(share * n)`` from each layer of n heads.

    Raises
    ------
    RowError
        If the shapes or the share are wrong, the share comes to no head, or there aren't so many
        pairs.

    Notes
    -----
    O(heads² log heads).

    Examples
    --------
    >>> heads = [HeadId(0, 0), HeadId(0, 1), HeadId(1, 0), HeadId(1, 1)]
    >>> d = np.abs(np.subtract.outer([0.0, 5.0, 1.0, 1.5], [0.0, 5.0, 1.0, 1.5]))
    >>> closest_pairs(d, heads, 0.5, "model")
    ((3, 2), (2, 0))
    >>> closest_pairs(d, heads, 0.5, "layer")
    ((3, 2), (1, 0))
    """
    matrix = np.asarray(distances, dtype=np.float64)
    if matrix.shape != (len(heads), len(heads)):
        raise RowError(
            f"distances of shape {matrix.shape} arrived with {len(heads)} heads, expected "
            f"({len(heads)}, {len(heads)})"
        )
    if scope not in SCOPES:
        raise RowError(f'scope={scope!r} arrived, expected "model" or "layer"')
    if not 0 < share < 1:
        raise RowError(f"share={share!r} arrived, expected a share of the heads such as 0.1")
    layers = np.array([head.layer for head in heads])
    first, second = np.triu_indices(len(heads), 1)
    usable = np.isfinite(matrix[first, second])
    if scope == "layer":
        usable &= layers[first] == layers[second]
    first, second = first[usable], second[usable]
    order = np.argsort(matrix[first, second], kind="stable")
    left = _numbers(layers, share, scope)
    found: dict[int, int] = {}
    for donor, borrower in zip(first[order].tolist(), second[order].tolist(), strict=True):
        group = int(layers[borrower]) if scope == "layer" else -1
        if borrower not in found and left[group] > 0:
            found[borrower] = donor
            left[group] -= 1
    missing = {group: number for group, number in left.items() if number > 0}
    if missing or not found:
        where = "" if scope == "model" else f" in layer {next(iter(missing), layers[0])}"
        raise RowError(
            f"share={share}: there are not enough pairs of heads with a distance{where} for it; "
            "type a smaller share, or a larger one if it comes to no head at all"
        )
    return tuple(found.items())


def _numbers(layers: np.ndarray, share: float, scope: str) -> dict[int, int]:
    """How many heads borrow: by layer, or in all under -1."""
    if scope == "model":
        return {-1: round(share * len(layers))}
    found, counts = np.unique(layers, return_counts=True)
    return {
        int(layer): min(round(share * n), n - 1)
        for layer, n in zip(found, counts.tolist(), strict=True)
    }


def random_distances(n_heads: int, seed: int) -> np.ndarray:
    """Return a symmetric matrix of random numbers: its closest pairs are random pairs.

    Random exchanges so obey every rule that the closest ones obey.

    Examples
    --------
    >>> d = random_distances(3, seed=0)
    >>> bool((d == d.T).all()), d.diagonal().tolist()
    (True, [0.0, 0.0, 0.0])
    """
    upper = np.triu(np.random.default_rng(seed).random((n_heads, n_heads)), 1)
    return upper + upper.T


def sampled_pairs(
    distances: Mapping[str, np.ndarray], n_heads: int, number: int, *, donors: int = 4, seed: int
) -> tuple[Pair, ...]:
    """Return pairs to exchange one at a time, over the whole range of every distance.

    Each of ``number / donors`` borrowers, spread over the depth of the model, gets `donors`
    donors: the nearest by one measure, then one from each of as many equal strata of the others
    by their distance.  The measure changes from one draw to the next, so that no measure alone
    decides the sample.

    Parameters
    ----------
    distances
        ``(heads, heads)`` by measure.
    n_heads
        Number of heads.
    number
        Pairs wanted; fewer come back where there are not so many.
    donors
        Donors a borrower, at least 2.
    seed
        Of the draws.

    Returns
    -------
    tuple of (int, int)
        Borrower and donor; the pairs of one borrower stand together.

    Raises
    ------
    RowError
        If no distance arrived, or no head has `donors` earlier heads at known distances.

    Examples
    --------
    >>> d = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    >>> pairs = sampled_pairs({"content": d}, 8, 6, donors=3, seed=0)
    >>> [len({d for b, d in pairs if b == borrower}) for borrower in dict(pairs)]
    [3, 3]
    """
    if not distances:
        raise RowError("no distance arrived to sample pairs by")
    if donors < 2:
        raise RowError(f"donors={donors} arrived, expected at least 2 to compare within a borrower")
    known = np.all([np.isfinite(d) for d in distances.values()], axis=0)
    earlier = {b: np.flatnonzero(known[b, :b]) for b in range(n_heads)}
    able = [b for b, found in earlier.items() if len(found) >= donors]
    if not able:
        raise RowError(f"no head has {donors} earlier heads to borrow from: {n_heads} heads")
    rng = np.random.default_rng([seed, 1])
    wanted = min(len(able), max(1, round(number / donors)))
    edges = np.arange(wanted + 1) * len(able) // wanted
    borrowers = [able[rng.integers(a, b)] for a, b in pairwise(edges)]
    matrices = list(distances.values())
    found: list[Pair] = []
    turn = 0
    for borrower in borrowers:
        left = earlier[borrower]
        for slot in range(donors):
            ranked = left[np.argsort(matrices[turn % len(matrices)][borrower, left], kind="stable")]
            # the nearest, then strata of what is left: its first part, its second, ...
            parts = donors - 1
            stratum = ranked[:1] if slot == 0 else np.array_split(ranked, parts)[slot - 1]
            stratum = stratum if len(stratum) else ranked
            donor = int(rng.choice(stratum))
            found.append((borrower, donor))
            left = left[left != donor]
            turn += 1
    return tuple(found)
