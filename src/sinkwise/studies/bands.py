"""Band collapse: how far apart a large sink lets classical measures be, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from sinkwise.errors import RowError
from sinkwise.studies.head_matrix import n_pairs

__all__ = [
    "BANDS_NEED",
    "BAND_METRICS",
    "BAND_RANKING_COLUMNS",
    "BAND_THRESHOLDS",
    "band_ranking",
    "bands",
    "pair_bounds",
]

BAND_METRICS = ("cosine", "euclidean", "js_divergence")

BANDS_NEED = (
    "larger_content_mass",
    "cosine_ceiling",
    "cosine/kept",
    "euclidean/kept",
    "js_divergence/kept",
)
BAND_THRESHOLDS = (0.0, 0.3, 0.5, 0.8)
"""Smaller sink masses at which the ranking is looked at; 0 is every pair, to compare with."""

BAND_RANKING_COLUMNS = (
    "metric",
    "threshold",
    "pairs",
    "share",
    "ceiling",
    "value_low",
    "value_high",
    "ceiling_used",
    "spearman_ceiling",
    "kendall_ceiling",
    "spearman_dropped",
    "kendall_dropped",
)
"""Columns of the table, there also when it is empty."""

_FEWEST_PAIRS = 10
_KENDALL_PAIRS = 50_000
_ROUNDING = 1e-6  # float32 rows: values stand within this of an exactly attained bound


def pair_bounds(sink_mass: np.ndarray) -> dict[str, np.ndarray]:
    """Return the largest possible distances of two rows whose smaller sink mass is given.

    With one sink key and m the smaller sink mass: cosine distance at most ``1 - m^2 / (m^2 +
    (1-m)^2)``, Euclidean distance at most ``sqrt(2) (1-m)``, Jensen-Shannon divergence at most
    ``(1-m) log 2`` nats.

    Parameters
    ----------
    sink_mass
        m, ``(...)`` in [0, 1]; NaN where two heads share no row, and then so are the bounds.

    Returns
    -------
    dict
        ``(...)`` bounds by metric.

    Notes
    -----
    The bounds hold row by row.  Of mean distances the *mean of the bounds* is a bound; the bound
    at the heads' mean sink masses is not: the smaller of two means can exceed the mean of the
    smaller, and cosine's bound is not concave in m.

    Examples
    --------
    >>> float(1 - pair_bounds(0.8)["cosine"].round(4))  # cosine similarity at sink mass 0.8
    0.9412
    """
    m = np.asarray(sink_mass, dtype=np.float64)
    if ((m < 0) | (m > 1)).any():
        raise RowError(f"a sink mass of {np.nanmin(m)} or {np.nanmax(m)} lies outside [0, 1]")
    rest = 1 - m
    return {
        "cosine": 1 - m**2 / (m**2 + rest**2),
        "euclidean": np.sqrt(2) * rest,
        "js_divergence": rest * np.log(2),
    }


def bands(means: Mapping[str, np.ndarray], n_heads: int) -> xr.Dataset:
    """Return, for every pair of heads, its mean distances beside the largest their sinks allow.

    Parameters
    ----------
    means
        Condensed ``(pairs,)`` means over rows of ``larger_content_mass`` (1 minus the smaller sink
        mass of the two rows), ``cosine_ceiling`` (the cosine bound of each row pair),
        ``cosine/kept``, ``euclidean/kept`` and ``js_divergence/kept``.
    n_heads
        Number of heads.

    Returns
    -------
    xarray.Dataset
        Over ``pair`` with coordinates ``first`` and ``second`` (head numbers):
        ``larger_content_mass``; over (``metric``, ``pair``): ``value`` and ``bound``, the mean
        over rows of each row pair's bound; over ``metric``: ``share_within``, the share of pairs
        whose value is within its bound (1 up to rounding, by theorem), and ``share_of_range``,
        the median over pairs of the bound as a share of what the metric could be without a sink.
        NaN for pairs without rows; those count nowhere.

    Raises
    ------
    RowError
        If a mean is missing, as with sinks of several keys, for which the bounds do not hold.

    Notes
    -----
    O(heads^2).

    Examples
    --------
    >>> import numpy as np
    >>> found = bands({"larger_content_mass": np.array([0.2]), "cosine_ceiling": np.array([0.0588]),
    ...                "cosine/kept": np.array([0.01]), "euclidean/kept": np.array([0.1]),
    ...                "js_divergence/kept": np.array([0.05])}, n_heads=2)
    >>> [round(float(b), 4) for b in found.bound.sel(pair=0)]
    [0.0588, 0.2828, 0.1386]
    """
    missing = [name for name in BANDS_NEED if name not in means]
    if missing:
        raise RowError(
            f"bands need the mean {missing[0]!r}; it is summed for rows with a single sink key. "
            "For sinks of several keys the closed forms do not hold"
        )
    values = {name: np.asarray(means[name], dtype=np.float64) for name in BANDS_NEED}
    for name, array in values.items():
        if array.shape != (n_pairs(n_heads),):
            raise RowError(
                f"{name} has shape {array.shape}, expected ({n_pairs(n_heads)},): one value per "
                f"pair of {n_heads} heads"
            )
    mass = values["larger_content_mass"]
    value = np.stack([values[f"{metric}/kept"] for metric in BAND_METRICS])
    bound = np.stack([values["cosine_ceiling"], np.sqrt(2) * mass, np.log(2) * mass])
    largest = np.array([1.0, np.sqrt(2), np.log(2)])[:, None]
    present = np.isfinite(value) & np.isfinite(bound)
    within = present & (value <= bound * (1 + _ROUNDING) + _ROUNDING * largest)
    first, second = np.triu_indices(n_heads, 1)
    counted = present.sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share_within = within.sum(1) / counted
    relative = np.where(present, bound / largest, np.nan)
    share_of_range = [
        np.nanmedian(r) if n else np.nan for r, n in zip(relative, counted, strict=True)
    ]
    return xr.Dataset(
        {
            "larger_content_mass": ("pair", mass),
            "value": (("metric", "pair"), value),
            "bound": (("metric", "pair"), bound),
            "share_within": ("metric", share_within),
            "share_of_range": ("metric", np.array(share_of_range)),
        },
        coords={
            "metric": list(BAND_METRICS),
            "pair": np.arange(len(mass)),
            "first": ("pair", first),
            "second": ("pair", second),
        },
    )


def band_ranking(
    means: Mapping[str, np.ndarray],
    n_heads: int,
    *,
    thresholds: Sequence[float] = BAND_THRESHOLDS,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how much of the ranking of head pairs is left where both sinks are large.

    Parameters
    ----------
    means
        As in :func:`bands`, and ``cosine/dropped``, ``euclidean/dropped``,
        ``js_divergence/dropped``.
    n_heads
        Number of heads.
    thresholds
        A pair of heads counts where the mean over rows of the smaller of its two sink masses is at
        least this; at 0 every pair does.
    seed
        Of the draw of pairs for Kendall's tau, where there are more than 50,000.

    Returns
    -------
    pandas.DataFrame
        One row per metric and threshold: ``metric``, ``threshold``; ``pairs`` over it, and their
        ``share`` of the model's pairs of heads with distances; ``ceiling``, the median of their
        closed-form ceilings; ``value_low`` and ``value_high``, the 5 and 95 % quantiles of their
        kept distances; ``ceiling_used``, the median of distance over ceiling;
        ``spearman_ceiling`` and ``kendall_ceiling``, the rank correlation of the kept distance
        with its own ceiling, which is what the sinks alone explain of its ranking;
        ``spearman_dropped`` and ``kendall_dropped``, that of the kept with the dropped distance,
        which is what the content alone does.  NaN with fewer than 10 pairs, or where one side is
        constant.

    Raises
    ------
    RowError
        As in :func:`bands`; or if a threshold lies outside [0, 1].

    Notes
    -----
    Kendall's is tau-b.  Pairs that share a head are not independent, so no interval is given.
    O(heads^2 log heads).

    Examples
    --------
    >>> import numpy as np
    >>> sink = np.linspace(0.5, 0.95, 10)  # of the 10 pairs of 5 heads
    >>> values = {"larger_content_mass": 1 - sink, "cosine_ceiling": pair_bounds(sink)["cosine"]}
    >>> values |= {f"{m}/kept": 0.5 * pair_bounds(sink)[m] for m in BAND_METRICS}
    >>> values |= {f"{m}/dropped": sink for m in BAND_METRICS}
    >>> found = band_ranking(values, 5, thresholds=[0.0, 0.8])
    >>> found[["ceiling_used", "kendall_ceiling", "kendall_dropped"]].round(6).values.tolist()[0]
    [0.5, 1.0, -1.0]
    >>> int(found.pairs[1]), bool(np.isnan(found.kendall_ceiling[1]))  # too few
    (4, True)
    """
    outside = [t for t in thresholds if not 0 <= t <= 1]
    if outside:
        raise RowError(f"a threshold of {outside[0]} lies outside [0, 1]")
    found = bands(means, n_heads)
    missing = [m for m in BAND_METRICS if f"{m}/dropped" not in means]
    if missing:
        raise RowError(f"the ranking within the bands needs the mean '{missing[0]}/dropped'")
    smaller_sink = 1 - found.larger_content_mass.to_numpy()
    rows = []
    for metric in BAND_METRICS:
        value = found.value.sel(metric=metric).to_numpy()
        bound = found.bound.sel(metric=metric).to_numpy()
        dropped = np.asarray(means[f"{metric}/dropped"], dtype=np.float64)
        present = np.isfinite(value) & np.isfinite(bound)
        for threshold in thresholds:
            # at 0.8 a mean of 0.8 counts that came out as 1 - 0.2
            inside = present & (smaller_sink >= threshold - _ROUNDING)
            rows.append(
                {
                    "metric": metric,
                    "threshold": float(threshold),
                    "pairs": int(inside.sum()),
                    "share": float(inside.sum() / present.sum()) if present.any() else np.nan,
                    **_within(value[inside], bound[inside], dropped[inside], seed),
                }
            )
    return pd.DataFrame(rows, columns=BAND_RANKING_COLUMNS)


def _within(
    value: np.ndarray, bound: np.ndarray, dropped: np.ndarray, seed: int
) -> dict[str, float]:
    """What is left of the distances of some pairs beside their ceilings."""
    nan = float("nan")
    if len(value) == 0:
        return dict.fromkeys(BAND_RANKING_COLUMNS[4:], nan)
    low, high = np.quantile(value, [0.05, 0.95])
    used = value[bound > 0] / bound[bound > 0]
    both = np.isfinite(dropped)
    return {
        "ceiling": float(np.median(bound)),
        "value_low": float(low),
        "value_high": float(high),
        "ceiling_used": float(np.median(used)) if len(used) else nan,
        **_rank_correlations("ceiling", value, bound, seed),
        **_rank_correlations("dropped", value[both], dropped[both], seed),
    }


def _rank_correlations(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> dict[str, float]:
    names = f"spearman_{name}", f"kendall_{name}"
    if len(x) < _FEWEST_PAIRS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return dict.fromkeys(names, float("nan"))
    spearman = np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]
    if len(x) > _KENDALL_PAIRS:
        drawn = np.random.default_rng(seed).choice(len(x), _KENDALL_PAIRS, replace=False)
        x, y = x[drawn], y[drawn]
    return dict(zip(names, (float(spearman), float(stats.kendalltau(x, y)[0])), strict=True))
