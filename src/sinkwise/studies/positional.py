"""Are two heads alike, or do both only look at recent keys?  A null from position alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from scipy.spatial.distance import pdist

from sinkwise.accumulate.placement import PlacementSums
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.head_matrix import square

__all__ = ["PositionalNull", "positional_null"]

_RANK = 1e-10  # of the largest eigenvalue: below, a direction of the profile is rounding


@dataclass(frozen=True)
class PositionalNull:
    """What position alone says of the content distances.

    Attributes
    ----------
    share, low, high
        Share of the mean squared content distance between heads that their mean profiles by
        offset give, with its jackknife interval over documents.
    positional
        ``(heads, heads)``: root-mean-square content distance between the two mean profiles.
    beyond
        ``(heads, heads)``: likeness beyond position, the correlation-like ratio in [-1, 1] of
        what the two heads share on each row once their own mean profiles are taken out: 1 for
        the same rows, 0 for heads alike by position only; NaN where two heads share no row or
        see different keys, and where neither departs from its profile.
    nearest
        One row per head: ``head``, ``nearest`` (labels), ``distance`` (root-mean-square content
        distance), ``positional`` and ``beyond``.
    """

    share: float
    low: float
    high: float
    positional: np.ndarray
    beyond: np.ndarray
    nearest: pd.DataFrame


def positional_null(
    store: DocumentStore, heads: Sequence[HeadId], *, level: float = 0.95
) -> PositionalNull:
    """Split every content distance into what position explains and what it does not.

    Let V be the functions of the offset, query position minus key position, centred within each
    row as every centred log-ratio is.  Projecting the difference of two heads' rows onto V splits
    the mean squared content distance exactly into what their mean profiles by offset say and the
    rest,

        D²(h, k) = P²(h, k) + R²(h, k).

    With ``v_h`` the mean squared departure of head h's rows from its own profile, heads that
    share nothing but position have ``R² = v_h + v_k``.  So ``beyond = 1 - R² / (v_h + v_k)`` is 0
    under the null that position alone makes them alike.

    Parameters
    ----------
    store
        Per-document sums.
    heads
        The heads.
    level
        Two-sided level of the interval.

    Raises
    ------
    RowError
        If a rounding zero was left out of log-ratios: the split is then not exact.

    Notes
    -----
    One bin an offset up to 63, then four to an octave.  With few rows a profile takes up some
    noise, one degree of freedom a bin, so the share is a little too large.  The projection needs
    only sums: the log-ratios summed by bin, and the Gram matrix of the bins' row-centred
    indicators.  O(documents · (bins³ + heads² · bins)) time, O(heads²) memory.
    """
    n_heads = len(heads)
    squares = store.pairs("content_sq")
    parts = _aligned([store.placement(d) for d in store.documents])
    if any(part.zero_cells.any() for part in parts):
        raise RowError(
            "rows hold rounding zeros that were left out of log-ratios pair by pair, so what "
            "position explains cannot be split off: use log-weights, or replace the zeros"
        )
    total = _added(parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = squares.distances()
        positional, departures = _profile_distances(total)
        rest = np.maximum(observed - positional, 0.0)
        beyond = np.where(departures > 0, 1 - rest / departures, np.nan)
    share, low, high = _share(squares.sums, squares.counts, parts, level)
    matrix = square(np.sqrt(observed), n_heads)
    return PositionalNull(
        share,
        low,
        high,
        square(np.sqrt(positional), n_heads),
        _with_diagonal(square(beyond, n_heads), 1.0),
        _nearest(matrix, square(np.sqrt(positional), n_heads), square(beyond, n_heads), heads),
    )


@dataclass(frozen=True)
class _Offsets:
    """What of a document's placement is needed here, its groups the same in all documents."""

    clr: np.ndarray
    gram: np.ndarray
    group: np.ndarray
    squares: np.ndarray
    rows: np.ndarray
    zero_cells: np.ndarray


def _aligned(parts: Sequence[PlacementSums]) -> list[_Offsets]:
    """Number the groups so that heads of one group see the same keys in every document."""
    numbers = np.stack([part.group for part in parts])
    distinct, group = np.unique(numbers, axis=1, return_inverse=True)
    return [
        _Offsets(
            part.offset_clr,
            part.offset_gram[distinct[i]],
            group.reshape(-1),
            part.squares,
            part.rows,
            part.zero_cells,
        )
        for i, part in enumerate(parts)
    ]


def _added(parts: Sequence[_Offsets]) -> _Offsets:
    names = ("clr", "gram", "squares", "rows", "zero_cells")
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    return _Offsets(**sums, group=parts[0].group)


def _less(total: _Offsets, part: _Offsets) -> _Offsets:
    names = ("clr", "gram", "squares", "rows", "zero_cells")
    rest = {name: getattr(total, name) - getattr(part, name) for name in names}
    return _Offsets(**rest, group=total.group)


def _profile_distances(sums: _Offsets) -> tuple[np.ndarray, np.ndarray]:
    """Squared distance between mean profiles, and the sum of both departures, condensed.

    NaN for heads that don't see the same keys.
    """
    fitted = np.zeros_like(sums.clr)
    for number, gram in enumerate(sums.gram):
        mine = sums.group == number
        fitted[mine] = sums.clr[mine] @ _inverse_root(gram)
    within = np.maximum(sums.squares - np.einsum("hb,hb->h", fitted, fitted), 0.0)
    first, second = np.triu_indices(len(sums.rows), 1)
    between = pdist(fitted, "sqeuclidean")
    between[sums.group[first] != sums.group[second]] = np.nan
    return between / sums.rows[first], (within[first] + within[second]) / sums.rows[first]


def _inverse_root(gram: np.ndarray) -> np.ndarray:
    """A root of the pseudo-inverse; directions that no row distinguishes are left out."""
    active = np.flatnonzero(np.diagonal(gram) > 0)
    root = np.zeros((len(gram), len(gram)))
    if len(active):
        values, vectors = np.linalg.eigh(gram[np.ix_(active, active)])
        kept = values > _RANK * values[-1]
        root[np.ix_(active, active[: int(kept.sum())])] = vectors[:, kept] / np.sqrt(values[kept])
    return root


def _share(
    sums: np.ndarray, counts: np.ndarray, parts: Sequence[_Offsets], level: float
) -> tuple[float, float, float]:
    """Positional share of all pairs together, by leaving each document out."""
    total = _added(parts)

    def share(sums: _Offsets, observed: np.ndarray) -> float:
        positional, _ = _profile_distances(sums)
        known = np.isfinite(positional) & np.isfinite(observed)
        whole = observed[known].sum()
        return float(positional[known].sum() / whole) if whole > 0 else float("nan")

    whole, n = sums.sum(0), counts.sum(0)
    g = len(parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = share(total, whole / n)
        if g < 2:
            return value, float("nan"), float("nan")
        without = np.array(
            [
                share(_less(total, part), (whole - sums[i]) / (n - counts[i]))
                for i, part in enumerate(parts)
            ]
        )
    error = float(np.sqrt((g - 1) / g * ((without - without.mean()) ** 2).sum()))
    t = float(stats.t.ppf((1 + level) / 2, g - 1))
    return value, value - t * error, value + t * error


def _with_diagonal(matrix: np.ndarray, value: float) -> np.ndarray:
    np.fill_diagonal(matrix, value)
    return matrix


def _nearest(
    distance: np.ndarray, positional: np.ndarray, beyond: np.ndarray, heads: Sequence[HeadId]
) -> pd.DataFrame:
    others = np.where(np.isfinite(distance), distance, np.inf)
    np.fill_diagonal(others, np.inf)
    columns = ["head", "nearest", "distance", "positional", "beyond"]
    if len(heads) < 2:
        return pd.DataFrame(columns=columns)
    nearest = others.argmin(1)
    rows = np.arange(len(heads))
    known = np.isfinite(others[rows, nearest])
    found = {
        "head": [h.label for h in heads],
        "nearest": [heads[int(k)].label for k in nearest],
        "distance": others[rows, nearest],
        "positional": positional[rows, nearest],
        "beyond": beyond[rows, nearest],
    }
    return pd.DataFrame(found)[known].reset_index(drop=True)
