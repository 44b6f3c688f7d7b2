"""Where reversals happen: between which layers, and between which sink masses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.anchors import Anchor
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.head_matrix import as_two_head_matrices
from sinkwise.studies.reversal import anchor_ranks

__all__ = ["EXACT_UP_TO", "REVERSAL_PLACES_COLUMNS", "pair_reversal_shares", "reversal_places"]

REVERSAL_PLACES_COLUMNS = ("by", "low", "high", "pairs", "rate")
"""Columns of the table, there also when it is empty."""

EXACT_UP_TO = 1_000
"""Heads up to which every verdict is looked at; beyond, those of so many seeded anchors."""

_TILE_ELEMENTS = 1 << 17  # verdicts of one anchor that are looked at in one go


def pair_reversal_shares(
    d1: np.ndarray,
    d2: np.ndarray,
    *,
    heads: Sequence[HeadId] | None = None,
    exact_up_to: int = EXACT_UP_TO,
    seed: int = 0,
) -> np.ndarray:
    """Return, for every two heads, the share of the verdicts on their distance that reverse.

    A verdict compares two distances from its anchor, d(a, b) with d(a, c), and counts for both
    pairs of heads, {a, b} and {a, c}: 2 (heads - 2) verdicts a pair.  So the mean over all pairs
    is the reversal rate.  A tie in one matrix alone counts 1/2.

    Parameters
    ----------
    d1, d2
        ``(heads, heads)`` symmetric distances, or condensed ``(pairs,)``; units don't matter.
    heads
        Names for messages.
    exact_up_to
        Heads up to which every verdict is looked at; beyond, the verdicts of so many seeded
        anchors, each with all others.
    seed
        Of that draw.

    Returns
    -------
    numpy.ndarray
        ``(heads, heads)`` symmetric, in [0, 1]; NaN on the diagonal, and for pairs of which
        neither head was drawn.

    Raises
    ------
    RowError
        As in :func:`~sinkwise.studies.reversal.reversal_rate`.

    Notes
    -----
    O(anchors · heads^2) comparisons of ranks on all cores, O(heads^2) memory.

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> pair_reversal_shares(d1, d2)[0]  # only head 0 changes its mind on heads 1 and 2
    array([nan, 0.5, 0.5])
    """
    first, second = as_two_head_matrices(d1, d2, heads)
    n_heads = len(first)
    every = np.arange(n_heads)
    drawn = every
    if n_heads > exact_up_to:
        rng = np.random.default_rng(seed)
        drawn = np.sort(rng.choice(n_heads, exact_up_to, replace=False))
    ranks = anchor_ranks(first), anchor_ranks(second)
    anchors = [Anchor(int(a), np.delete(every, a)) for a in drawn]
    share = np.full((n_heads, n_heads), np.nan)
    found = on_all_cores(lambda a: _flips(ranks[0][a.head], ranks[1][a.head]), anchors)
    for anchor, flips in zip(anchors, found, strict=True):
        share[anchor.head, anchor.others] = flips / (n_heads - 2)
    # seen from both of its heads where both are anchors
    known = np.isfinite(share)
    times = known.astype(np.int8) + known.T
    filled = np.where(known, share, 0.0)
    filled += filled.T.copy()
    return np.divide(filled, times, out=np.full_like(share, np.nan), where=times > 0)


def reversal_places(
    d1: np.ndarray,
    d2: np.ndarray,
    heads: Sequence[HeadId],
    sink_mass: np.ndarray,
    *,
    bins: int = 10,
    exact_up_to: int = EXACT_UP_TO,
    seed: int = 0,
) -> pd.DataFrame:
    """Return how the share of reversed verdicts depends on layer distance and sink-mass gap.

    Parameters
    ----------
    d1, d2
        ``(heads, heads)`` symmetric distances, or condensed ``(pairs,)``.
    heads
        The heads: their layers count.
    sink_mass
        ``(heads,)`` mean sink mass of each; pairs with a NaN come in a row of their own.
    bins
        Quantile bins of the gap in sink mass, fewer where its values repeat or are few.
    exact_up_to, seed
        As in :func:`pair_reversal_shares`.

    Returns
    -------
    pandas.DataFrame
        One row per bin of pairs of heads: ``by`` (``"layer_distance"`` or ``"sink_mass_gap"``),
        ``low`` and ``high`` (edges, both inside for the first bin, the upper one inside for the
        others; NaN for pairs without a sink mass), ``pairs`` (of heads) and ``rate``, the mean of
        :func:`pair_reversal_shares` over them.  The pairs' mean over all rows of either kind is
        the reversal rate.

    Raises
    ------
    RowError
        As in :func:`~sinkwise.studies.reversal.reversal_rate`; or if there is not one sink mass
        a head.

    Notes
    -----
    Pairs that share a head share verdicts, so the rows are not independent and no interval is
    given; that of the whole rate is in :func:`~sinkwise.studies.reversal_table.reversal_table`.

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> heads = [HeadId(0, 0), HeadId(0, 1), HeadId(1, 0)]
    >>> found = reversal_places(d1, d2, heads, np.array([0.1, 0.2, 0.9]))
    >>> found[found.by == "layer_distance"][["low", "pairs", "rate"]].values.tolist()
    [[0.0, 1.0, 0.5], [1.0, 2.0, 0.25]]
    """
    sink_mass = np.asarray(sink_mass, dtype=np.float64)
    if sink_mass.shape != (len(heads),):
        raise RowError(
            f"sink_mass has shape {sink_mass.shape}, expected ({len(heads)},): the mean sink mass "
            "of each head, for example audit.profile.sink_mass"
        )
    if bins < 1:
        raise RowError(f"bins is {bins}, expected at least 1")
    share = pair_reversal_shares(d1, d2, heads=heads, exact_up_to=exact_up_to, seed=seed)
    upper = np.triu_indices(len(heads), 1)
    share = share[upper]
    layer = np.array([h.layer for h in heads])
    distance = np.abs(layer[upper[0]] - layer[upper[1]])
    gap = np.abs(sink_mass[upper[0]] - sink_mass[upper[1]])
    seen = np.isfinite(share)
    share, distance, gap = share[seen], distance[seen], gap[seen]

    rows = [("layer_distance", float(d), float(d), distance == d) for d in np.unique(distance)]
    known = np.isfinite(gap)
    if known.any():
        upper_edges = np.unique(np.quantile(gap[known], np.linspace(0, 1, bins + 1)[1:]))
        place = np.searchsorted(upper_edges, gap)
        lower_edges = [gap[known].min(), *upper_edges[:-1]]
        rows += [
            ("sink_mass_gap", float(low), float(high), known & (place == i))
            for i, (low, high) in enumerate(zip(lower_edges, upper_edges, strict=True))
            if (known & (place == i)).any()
        ]
    if not known.all():
        rows.append(("sink_mass_gap", float("nan"), float("nan"), ~known))
    return pd.DataFrame(
        [(by, low, high, int(of.sum()), float(share[of].mean())) for by, low, high, of in rows],
        columns=REVERSAL_PLACES_COLUMNS,
    )


def _flips(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Verdicts of one anchor that reverse, by the other head that they are about.

    `first` and `second` are ``(others,)`` ranks.
    """
    doubled = np.zeros(len(first), dtype=np.int64)
    step = max(1, _TILE_ELEMENTS // len(first))
    for start in range(0, len(first), step):
        some = slice(start, start + step)
        # |sign - sign| is 1 for every "farther" said by one alone, and for every "nearer", which
        # is "farther" with the two the other way round
        apart = (first[some, None] > first) ^ (second[some, None] > second)
        doubled[some] += np.count_nonzero(apart, axis=1)
        doubled += np.count_nonzero(apart, axis=0)
    return doubled / 2
