"""What a distance, and a clustering, says about the damage of exchanging two heads' patterns.

Pairs are exchanged one at a time.  How much a borrower matters differs by far more between heads
than between donors, so the donors of one borrower are compared with each other first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from sinkwise.errors import RowError

__all__ = [
    "CLUSTER_DAMAGE_COLUMNS",
    "CORRELATION_COLUMNS",
    "cluster_damage",
    "damage_correlations",
]

CORRELATION_COLUMNS = (
    "mode",
    "metric",
    "within",
    "within_low",
    "within_high",
    "pooled",
    "pooled_low",
    "pooled_high",
    "pairs",
    "borrowers",
    "note",
)
"""Columns of :func:`damage_correlations`."""

CLUSTER_DAMAGE_COLUMNS = (
    "mode",
    "metric",
    "method",
    "same_cluster",
    "other_cluster",
    "superiority",
    "low",
    "high",
    "pairs_same",
    "pairs_other",
    "comparisons",
    "note",
)
"""Columns of :func:`cluster_damage`."""

_Statistic = Callable[[np.ndarray, np.ndarray], float]


def damage_correlations(
    damages: np.ndarray,
    tokens: np.ndarray,
    borrowers: Sequence[int],
    distances: Mapping[str, Sequence[float]],
    *,
    mode: str,
    level: float = 0.95,
) -> pd.DataFrame:
    """Correlate each distance with the damage of exchanging single pairs, by ranks.

    Parameters
    ----------
    damages
        ``(documents, pairs)``: summed damage of each pair on each document.
    tokens
        ``(documents,)`` behind the sums.
    borrowers
        ``(pairs,)``: number of the borrowing head.
    distances
        ``(pairs,)`` by metric.
    mode
        ``"whole"`` or ``"split"``, for the table.
    level
        Two-sided level of the intervals.

    Returns
    -------
    pandas.DataFrame
        A row per metric: ``within`` (Spearman's rank correlation over the donors of one borrower,
        averaged over borrowers: does a nearer donor do less damage?), ``pooled`` (over all pairs
        at once, the borrowers' own importance included), each with ``_low`` and ``_high``;
        ``pairs``, ``borrowers``; ``note`` where no interval is given.

    Notes
    -----
    The variance is the sum of two delete-one jackknives: over documents (damages measured anew
    from the rest) and over borrowers with all of their pairs.  Adding them counts what is random
    in both twice, so intervals are wide rather than narrow; t quantiles with one less than the
    smaller number, ends cut at -1 and 1.  The distances are those of the calibration documents,
    whose own noise is not in the interval.  With fewer than 3 documents or borrowers there is
    none.  Pairs whose damage isn't finite on some document (overflow) are left out.

    Examples
    --------
    >>> damages = np.array([[1.0, 2.0, 4.0, 3.0, 5.0, 9.0]]).repeat(3, 0)
    >>> table = damage_correlations(
    ...     damages, np.full(3, 10), [5, 5, 5, 8, 8, 8], {"content": [1, 2, 3, 1, 2, 3]},
    ...     mode="split")
    >>> table[["within", "pooled"]].round(2).values.tolist()
    [[1.0, 0.72]]
    """
    sums, counts, groups, finite = _finite(damages, tokens, borrowers)
    rows = []
    for metric, values in distances.items():
        near = np.asarray(values, dtype=np.float64)[finite]

        def within(damage: np.ndarray, kept: np.ndarray, near: np.ndarray = near) -> float:
            found = [
                _spearman(near[kept & (groups == g)], damage[kept & (groups == g)])
                for g in np.unique(groups[kept])
            ]
            return _mean(found)

        def pooled(damage: np.ndarray, kept: np.ndarray, near: np.ndarray = near) -> float:
            return _spearman(near[kept], damage[kept])

        row: dict[str, Any] = {"mode": mode, "metric": metric}
        for name, statistic in (("within", within), ("pooled", pooled)):
            value, low, high, note = _interval(statistic, sums, counts, groups, level, (-1.0, 1.0))
            row |= {name: value, f"{name}_low": low, f"{name}_high": high}
            row["note"] = row.get("note") or note
        rows.append(row | {"pairs": len(groups), "borrowers": len(np.unique(groups))})
    return pd.DataFrame(rows, columns=CORRELATION_COLUMNS)


def cluster_damage(
    damages: np.ndarray,
    tokens: np.ndarray,
    pairs: Sequence[tuple[int, int]],
    clusters: Mapping[tuple[str, str], Sequence[int]],
    *,
    mode: str,
    level: float = 0.95,
) -> pd.DataFrame:
    """Compare exchanges within a cluster of heads with those between clusters.

    Parameters
    ----------
    damages, tokens, mode, level
        As in :func:`damage_correlations`.
    pairs
        Numbers of borrower and donor.
    clusters
        ``(heads,)`` cluster numbers by metric and clustering method.

    Returns
    -------
    pandas.DataFrame
        A row per clustering: ``same_cluster`` and ``other_cluster`` (mean damage a token of the
        pairs within a cluster and of those between two); ``superiority`` with ``low`` and
        ``high``: the probability that, of two donors of one borrower, the one from another
        cluster does more damage than the one from the borrower's own, ties counting half; 0.5
        says that the clusters know nothing of what exchanging does.  ``pairs_same``,
        ``pairs_other``, ``comparisons`` (donor pairs behind the probability), ``note``.

    Notes
    -----
    Intervals as in :func:`damage_correlations`.

    Examples
    --------
    >>> damages = np.array([[1.0, 2.0, 4.0, 3.0, 5.0, 9.0]]).repeat(3, 0)
    >>> pairs = [(5, 0), (5, 1), (5, 2), (8, 0), (8, 1), (8, 2)]
    >>> labels = {("content", "k-medoids"): [0, 0, 1, 0, 0, 0, 0, 0, 0]}
    >>> table = cluster_damage(damages, np.full(3, 10), pairs, labels, mode="split")
    >>> table[["superiority", "pairs_other", "comparisons"]].values.tolist()
    [[1.0, 2.0, 4.0]]
    """
    sums, counts, groups, finite = _finite(damages, tokens, [borrower for borrower, _ in pairs])
    first, second = np.asarray(pairs, dtype=int)[finite].T
    rows = []
    for (metric, method), labels in clusters.items():
        found = np.asarray(labels)
        same = found[first] == found[second]

        def superiority(damage: np.ndarray, kept: np.ndarray, same: np.ndarray = same) -> float:
            won, compared = _won(damage[kept], same[kept], groups[kept])
            return won / compared if compared else float("nan")

        value, low, high, note = _interval(superiority, sums, counts, groups, level, (0.0, 1.0))
        damage = sums.sum(0) / counts.sum()
        compared = _won(damage, same, groups)[1]
        rows.append(
            {
                "mode": mode,
                "metric": metric,
                "method": method,
                "same_cluster": _mean(damage[same]),
                "other_cluster": _mean(damage[~same]),
                "superiority": value,
                "low": low,
                "high": high,
                "pairs_same": int(same.sum()),
                "pairs_other": int((~same).sum()),
                "comparisons": compared,
                "note": note if compared else "no donors on both sides",
            }
        )
    return pd.DataFrame(rows, columns=CLUSTER_DAMAGE_COLUMNS)


def _finite(
    damages: np.ndarray, tokens: np.ndarray, borrowers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The pairs with finite damages, tokens, their borrowers, and which pairs they are."""
    sums = np.asarray(damages, dtype=np.float64)
    counts, groups = np.asarray(tokens, dtype=np.float64), np.asarray(borrowers, dtype=int)
    if sums.ndim != 2 or counts.shape != sums.shape[:1] or groups.shape != sums.shape[1:]:
        raise RowError(
            f"damages of shape {sums.shape} arrived with {counts.shape} tokens and {groups.shape} "
            "borrowers, expected (documents, pairs), (documents,) and (pairs,)"
        )
    finite = np.asarray(np.isfinite(sums).all(0))
    return sums[:, finite], counts, groups[finite], finite


def _interval(
    statistic: _Statistic,
    sums: np.ndarray,
    counts: np.ndarray,
    groups: np.ndarray,
    level: float,
    bounds: tuple[float, float],
) -> tuple[float, float, float, str]:
    """A value with the interval of two jackknives, over documents and over borrowers."""
    everything = np.ones(len(groups), dtype=bool)
    whole = sums.sum(0) / counts.sum()
    value, nan = statistic(whole, everything), float("nan")
    names = np.unique(groups)
    if min(len(sums), len(names)) < 3:
        return value, nan, nan, "too few documents or borrowers for an interval"
    total, tokens = sums.sum(0), counts.sum()
    without_document = [
        statistic((total - sums[d]) / (tokens - counts[d]), everything) for d in range(len(sums))
    ]
    without_borrower = [statistic(whole, groups != name) for name in names]
    variance = _jackknife(without_document) + _jackknife(without_borrower)
    if not np.isfinite(variance):
        return value, nan, nan, "not defined without some document or borrower"
    t = float(stats.t.ppf((1 + level) / 2, min(len(sums), len(names)) - 1))
    reach = t * float(np.sqrt(variance))
    return value, max(bounds[0], value - reach), min(bounds[1], value + reach), ""


def _jackknife(values: Sequence[float]) -> float:
    found = np.asarray(values)
    return float((len(found) - 1) / len(found) * ((found - found.mean()) ** 2).sum())


def _spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's correlation of ranks; NaN where either is constant."""
    a, b = stats.rankdata(first), stats.rankdata(second)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])


def _won(damage: np.ndarray, same: np.ndarray, groups: np.ndarray) -> tuple[float, int]:
    """How often the donor of another cluster does more damage, over donors of one borrower."""
    won, compared = 0.0, 0
    for group in np.unique(groups):
        mine = groups == group
        near, far = damage[mine & same], damage[mine & ~same]
        gap = np.subtract.outer(far, near)
        won += float((gap > 0).sum() + 0.5 * (gap == 0).sum())
        compared += gap.size
    return won, compared


def _mean(values: Any) -> float:
    """Mean of what is there, NaN left out; NaN where nothing is."""
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found)]
    return float(found.mean()) if len(found) else float("nan")
