"""Are two heads alike, or do both only look at recent keys?  A null from position alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sinkwise.accumulate.placement import PlacementSums
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.head_matrix import n_pairs, square

__all__ = ["PositionalNull", "positional_null"]


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

    Every cell of a row (a content key) has an offset, its distance from the query.  Let ``m_h``
    be head h's mean centred log-ratio in each bin of offsets, and ``v_h`` the mean squared
    departure of its rows from it.  Projecting a row's difference onto functions of the offset
    splits the mean squared content distance exactly,

        D²(h, k) = P²(h, k) + R²(h, k),   P² = Σ_bins cells · (m_h - m_k)² / rows,

    and heads that share nothing but their profiles have ``R² = v_h + v_k``.  So ``beyond = 1 -
    R² / (v_h + v_k)`` is 0 under the null that only position makes them alike.

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
    Bins are two to an octave.  With few rows a profile takes up some noise, and the share is a
    little too large: a bin's profile has the noise of its cells.  O(heads² · bins + documents ·
    pairs) time, O(heads²) memory.
    """
    n_heads = len(heads)
    squares = store.pairs("content_sq")
    parts = [store.placement(d) for d in store.documents]
    total = PlacementSums.zero(n_heads)
    for part in parts:
        total = total.merge(_without_columns(part))
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = squares.distances()
        positional, rest_of = _profile_distances(total)
        rest = np.maximum(observed - positional, 0.0)
        beyond = np.where(rest_of > 0, 1 - rest / rest_of, np.nan)
    if (observed < positional * (1 - 1e-6) - 1e-9).any():
        raise RowError(
            "rows hold rounding zeros that were left out of log-ratios, pair by pair: what "
            "position explains cannot be split off. Use log-weights, or replace the zeros"
        )
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


def _without_columns(sums: PlacementSums) -> PlacementSums:
    """The same sums without the columns, which are not needed here and differ in length."""
    empty = np.zeros((sums.n_heads, 0))
    return PlacementSums(empty, empty, *list(vars(sums).values())[2:])


def _profile_distances(sums: PlacementSums) -> tuple[np.ndarray, np.ndarray]:
    """Squared distance between mean profiles, and the sum of both departures, condensed.

    NaN for heads that don't see the same keys.
    """
    upper = np.triu_indices(sums.n_heads, 1)
    cells = sums.offset_cells
    profile = np.divide(sums.offset_clr, cells, out=np.zeros_like(cells), where=cells > 0)
    scaled = profile * np.sqrt(cells)
    within = sums.squares - (scaled**2).sum(1)
    out = np.empty(n_pairs(sums.n_heads))
    start = 0
    for h in range(sums.n_heads - 1):
        gap = scaled[h + 1 :] - scaled[h]
        out[start : start + len(gap)] = np.einsum("kb,kb->k", gap, gap)
        same = (cells[h + 1 :] == cells[h]).all(1)
        out[start : start + len(gap)][~same] = np.nan
        start += len(gap)
    rows = sums.rows[upper[0]]
    departures = np.maximum(within[upper[0]] + within[upper[1]], 0.0)
    return out / rows, departures / rows


def _share(
    sums: np.ndarray, counts: np.ndarray, parts: Sequence[PlacementSums], level: float
) -> tuple[float, float, float]:
    """Positional share of all pairs together, by leaving each document out."""
    from scipy import stats

    total = PlacementSums.zero(parts[0].n_heads)
    for part in parts:
        total = total.merge(_without_columns(part))

    def share(left_out: PlacementSums | None, observed: np.ndarray) -> float:
        if left_out is not None:
            found = [
                a - b for a, b in zip(vars(total).values(), vars(left_out).values(), strict=True)
            ]
            positional, _ = _profile_distances(PlacementSums(*found))
        else:
            positional, _ = _profile_distances(total)
        known = np.isfinite(positional) & np.isfinite(observed)
        whole = observed[known].sum()
        return float(positional[known].sum() / whole) if whole > 0 else float("nan")

    with np.errstate(invalid="ignore", divide="ignore"):
        value = share(None, sums.sum(0) / counts.sum(0))
        if len(parts) < 2:
            return value, float("nan"), float("nan")
        without = np.array(
            [
                share(_without_columns(part), (sums.sum(0) - sums[i]) / (counts.sum(0) - counts[i]))
                for i, part in enumerate(parts)
            ]
        )
    g = len(parts)
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
