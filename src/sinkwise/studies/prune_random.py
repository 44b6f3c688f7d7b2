"""The band of random sets, and warnings where a score is no better than one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from sinkwise.studies.prune_cells import PLACES

__all__ = ["BAND_COLUMNS", "band_warnings", "cells_words", "random_band", "side_of_band"]

CELL = ["operation", "scope", "sparsity"]

BAND_COLUMNS = (
    *CELL,
    "seeds",
    "least",
    "median",
    "most",
    "value_least",
    "value_median",
    "value_most",
)
"""Columns of :func:`random_band`."""


def random_band(points: pd.DataFrame) -> pd.DataFrame:
    """Return what random sets did: least, median and most over the seeds of each cell.

    Parameters
    ----------
    points
        Points of random scores.

    Returns
    -------
    pandas.DataFrame
        ``operation``, ``scope``, ``sparsity``, ``seeds``; ``least``, ``median``, ``most`` (damage)
        and ``value_least``, ``value_median``, ``value_most``.

    Examples
    --------
    >>> drawn = pd.DataFrame({"operation": "zero", "scope": "model", "sparsity": 0.1,
    ...                       "damage": [0.5, 0.3, 0.9], "value": [3.0, 2.0, 4.0]})
    >>> random_band(drawn)[["seeds", "least", "median", "most"]].values.tolist()
    [[3.0, 0.3, 0.5, 0.9]]
    """
    rows = []
    for key, group in points.groupby(CELL, sort=False):
        ends = [
            number
            for name in ("damage", "value")
            for number in np.quantile(group[name].to_numpy(), [0, 0.5, 1], method="inverted_cdf")
        ]
        rows.append((*key, len(group), *ends))
    return pd.DataFrame(rows, columns=BAND_COLUMNS)


def side_of_band(damage: float, least: float, most: float) -> str:
    """Return ``"below"``, ``"inside"`` or ``"above"``; empty without a band.

    A ruined model (infinite damage) is above every band.

    Examples
    --------
    >>> side_of_band(0.2, 0.3, 0.5), side_of_band(0.5, 0.3, 0.5), side_of_band(0.2, np.nan, np.nan)
    ('below', 'inside', '')
    """
    if np.isnan(least) or np.isnan(damage):
        return ""
    if damage < least:
        return "below"
    return "above" if damage > most or np.isinf(damage) else "inside"


def band_warnings(curves: pd.DataFrame, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each score that some random set matched or beat, in words.

    Parameters
    ----------
    curves
        As :meth:`~sinkwise.studies.prune_study.PruneStudy.curves` returns them.
    titles
        Words for each score.

    Examples
    --------
    >>> curves = pd.DataFrame({"score": "content", "operation": "zero", "scope": "model",
    ...                        "sparsity": [0.1, 0.2], "against_random": ["below", "inside"]})
    >>> list(band_warnings(curves, {"content": "closest pairs"}))
    ['content (closest pairs): no better than some random set in 1 of 2 cells: 20 % anywhere, zero']
    """
    for score, group in curves.groupby("score", sort=False):
        judged = group[group.against_random != ""]
        poor = judged[judged.against_random != "below"]
        if not len(poor):
            continue
        above = int((poor.against_random == "above").sum())
        worse = f" (worse than every random set in {above})" if above else ""
        where = f"{len(poor)} of {len(judged)} cells{worse}: {cells_words(poor)}"
        if len(poor) == len(judged):
            where = (f"all {len(judged)} cells" if len(judged) > 1 else "the only cell") + worse
        yield (
            f"{score} ({titles.get(str(score), score)}): no better than some random set in {where}"
        )


def cells_words(cells: pd.DataFrame) -> str:
    """Return cells in words, those of one operation and scope together.

    Examples
    --------
    >>> cells_words(pd.DataFrame({"operation": "zero", "scope": "layer", "sparsity": [0.1, 0.2]}))
    '10 and 20 % of each layer, zero'
    """
    found = []
    for (operation, scope), group in cells.groupby(["operation", "scope"], sort=False):
        shares = [f"{100 * share:.4g}" for share in group.sparsity]
        listed = " and ".join([", ".join(shares[:-1]), shares[-1]] if shares[1:] else shares)
        found.append(f"{listed} % {PLACES.get(scope, scope)}, {operation}")
    return "; ".join(found)
