"""Neighbours by one measure, strangers by another: the head pairs on which two disagree most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import (
    TOO_FEW,
    DocumentPairs,
    checked_pairs,
    random_halves,
)

__all__ = ["WORST_PAIRS_COLUMNS", "rank_shares", "worst_pairs"]

WORST_PAIRS_COLUMNS = (
    "near_in",
    "place",
    "head",
    "other",
    "label",
    "other_label",
    "share_near",
    "share_far",
    "gap",
    "held_out_gap",
    "picked_again",
    "note",
)
"""Columns of the table, there also when it is empty."""

_FEWEST_DOCUMENTS = 4


def worst_pairs(
    first: DocumentPairs,
    second: DocumentPairs,
    n_heads: int,
    n: int = 10,
    *,
    names: tuple[str, str] = ("first", "second"),
    partings: int = 20,
    seed: int = 0,
    heads: Sequence[HeadId] | None = None,
) -> pd.DataFrame:
    """Return the pairs of heads that are near by one measure and far by the other.

    The distance of a pair is put as its share of rank among all pairs by the same measure, 0 the
    nearest and 1 the farthest, so that measures of different units compare.  What is picked as
    the largest gap among many pairs is large by accident too; the gap of the pick is therefore
    shown again on documents that had no say in it.

    Parameters
    ----------
    first, second
        Two measures over the same documents and pairs.
    n_heads
        Number of heads, at least 3.
    n
        Pairs in each direction.
    names
        What to call the two measures.
    partings
        Random partings of the documents in two halves, each of which picks for the other.
    seed
        Of the partings.
    heads
        Names of the heads; without them they are numbered.

    Returns
    -------
    pandas.DataFrame
        For either measure its `n` worst pairs, largest gap first, fewer where no more are nearer
        by it than by the other:

        - ``near_in``: the measure by which the two are neighbours;
        - ``place``: 1 for the largest gap;
        - ``head``, ``other``, ``label``, ``other_label``: the two heads;
        - ``share_near``, ``share_far``: shares of rank (mid-ranks for ties) of their distance by
          ``near_in`` and by the other measure;
        - ``gap``: ``share_far - share_near``, on all documents: too large by having been picked;
        - ``held_out_gap``: the mean gap, on the documents of a half, of the pair that was picked
          for this place on the other half;
        - ``picked_again``: the share of halves among whose `n` picks is this very pair;
        - ``note``: empty, or ``"too few documents"``: fewer than 4, and no correction.

    Raises
    ------
    RowError
        If the measures disagree in documents or pairs, a mean distance is NaN, or `n` or
        `partings` is below 1.

    Notes
    -----
    Without a true difference between the measures ``held_out_gap`` is about 0, however large
    ``gap``.  Half of the documents pick worse than all of them and are noisier, so it errs on the
    small side.  A pair without rows in a half is not picked there.  O(partings · H^2 log H) on
    all cores, O(H^2) memory a core.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random(45)
    >>> noise = rng.normal(0, 0.05, (2, 8, 45))
    >>> other = truth.copy()
    >>> other[truth.argmin()] = 1.0  # one pair of neighbours become strangers
    >>> found = worst_pairs(DocumentPairs(truth + noise[0], np.ones(8)),
    ...                     DocumentPairs(other + noise[1], np.ones(8)), 10, n=1)
    >>> found.loc[0, ["near_in", "label", "other_label"]].tolist()
    ['first', '1', '4']
    >>> float(found.picked_again[0])
    1.0
    """
    for name, value in (("n", n), ("partings", partings)):
        if value < 1:
            raise RowError(f"{name} is {value}, expected at least 1")
    measures = dict(zip(names, (first, second), strict=True))
    if len(measures) < 2:
        raise RowError(f"both measures are called {names[0]!r}, expected two names")
    checked_pairs(measures, n_heads, names, heads, default=names)
    n = min(n, first.sums.shape[1])
    shares = rank_shares(first.distances()), rank_shares(second.distances())
    gaps = shares[1] - shares[0]
    held_out, times_picked = _held_out(first, second, n, partings, seed)
    heads_of_pair = np.triu_indices(n_heads, 1)
    labels = [h.label for h in heads] if heads is not None else list(map(str, range(n_heads)))

    rows = []
    for way, (near, far) in enumerate(((0, 1), (1, 0))):
        signed = gaps if way == 0 else -gaps
        for place, pair in enumerate(_largest(signed, n)):
            if signed[pair] <= 0:
                break
            head, other = (int(of[pair]) for of in heads_of_pair)
            rows.append(
                {
                    "near_in": names[near],
                    "place": place + 1,
                    "head": head,
                    "other": other,
                    "label": labels[head],
                    "other_label": labels[other],
                    "share_near": float(shares[near][pair]),
                    "share_far": float(shares[far][pair]),
                    "gap": float(signed[pair]),
                    "held_out_gap": float(held_out[way, place]),
                    "picked_again": times_picked[way].get(int(pair), 0) / (2 * partings)
                    if np.isfinite(held_out[way, place])
                    else float("nan"),
                    "note": "" if np.isfinite(held_out[way, place]) else TOO_FEW,
                }
            )
    return pd.DataFrame(rows, columns=WORST_PAIRS_COLUMNS)


def rank_shares(distances: np.ndarray) -> np.ndarray:
    """Return mid-ranks of distances as shares of their number, in (0, 1); NaN stays NaN.

    Examples
    --------
    >>> rank_shares(np.array([5.0, 1.0, 5.0, np.nan])).round(3).tolist()
    [0.667, 0.167, 0.667, nan]
    """
    known = np.isfinite(distances)
    shares = np.full(distances.shape, np.nan)
    shares[known] = (rankdata(distances[known]) - 0.5) / max(1, known.sum())
    return shares


def _largest(values: np.ndarray, n: int) -> np.ndarray:
    """Places of the `n` largest values, largest first, the earlier one first among equals."""
    values = np.where(np.isfinite(values), values, -np.inf)
    least = np.partition(values, len(values) - n)[len(values) - n]
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")][:n]


def _held_out(
    first: DocumentPairs, second: DocumentPairs, n: int, partings: int, seed: int
) -> tuple[np.ndarray, tuple[dict[int, int], dict[int, int]]]:
    """Gaps ``(2, n)`` of the picks of either way on documents that did not pick; who was picked."""
    if first.n_documents < _FEWEST_DOCUMENTS:
        return np.full((2, n), np.nan), ({}, {})

    def picked(half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sides = np.stack([half, ~half])
        gap = [
            rank_shares(two) - rank_shares(one)
            for one, two in zip(first.of(sides), second.of(sides), strict=True)
        ]
        picks = np.array([[_largest(sign * g, n) for g in gap] for sign in (1, -1)])
        other = gap[::-1]  # (way, half, place)
        seen = [[sign * other[k][picks[w, k]] for k in (0, 1)] for w, sign in enumerate((1, -1))]
        return picks, np.array(seen)

    halves = random_halves(first.n_documents, partings, seed)
    found = list(on_all_cores(picked, halves))
    seen = np.stack([s for _, s in found])  # (parting, way, half, place)
    there = np.isfinite(seen)
    total = np.where(there, seen, 0.0).sum((0, 2))
    number = there.sum((0, 2))
    held_out = np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)
    times: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for way in (0, 1):
        pairs, counts = np.unique([picks[way] for picks, _ in found], return_counts=True)
        times[way].update(zip(pairs.tolist(), counts.tolist(), strict=True))
    return held_out, times
