"""Band collapse: how far apart a large sink lets classical measures be, in closed form."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from sinkwise.errors import RowError
from sinkwise.studies.head_matrix import n_pairs

__all__ = ["BANDS_NEED", "BAND_METRICS", "bands", "pair_bounds"]

BAND_METRICS = ("cosine", "euclidean", "js_divergence")

BANDS_NEED = (
    "larger_content_mass",
    "cosine_ceiling",
    "cosine/kept",
    "euclidean/kept",
    "js_divergence/kept",
)
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
