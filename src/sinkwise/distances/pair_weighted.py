"""Log-ratio distances that faint keys and scale don't decide: weights, floors, whole rows' angle.

An unweighted log-ratio distance counts a key of share 1e-9 as much as one of share 0.5, and grows
with how sharp the rows are.  Three forms that don't, for all pairs of heads on one row:

- *geometric-mean weights*: with ``l_j = log(p_j / q_j)`` and ``w_j = sqrt(p_j q_j) / sum_i
  sqrt(p_i q_i)``, ``d^2 = sum_j w_j (l_j - sum_i w_i l_i)^2``;
- *floor delta*: shares below delta are raised to it, the row is re-closed, and the rows are
  compared by Aitchison distance;
- *angle of the whole rows' clr*: the content angle with the sink as one more part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from sinkwise.distances.pair_gram import centred, in_chunks, square_gaps
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_logratio import angles_defined, log_ratio_of
from sinkwise.distances.pair_row import SharedRow
from sinkwise.distances.pair_zeros import CommonSupportValues, common_support_log_ratios

__all__ = ["WEIGHTED_COUNT_OF", "floor_of", "weighted_of", "weighted_with_zeros"]

WEIGHTED_COUNT_OF: Mapping[str, str] = {
    "content/geometric_weights": "content_rows",
    "aitchison/geometric_weights": "balance_rows",
    "aitchison_angle": "whole_angle_rows",
}
"""The forms without a parameter, and which count each sum is divided by.

A floored distance is named ``content/floor=DELTA`` (:func:`floor_of`) and counts all ``rows``.
"""

_FLOORED = "content/floor="

NEAR = 1e-5
"""Weighted distances below this share of the terms they are the difference of are done directly:
the products' rounding is some 1e-14 of those terms."""

FAINT = 1e-100
"""Pairs whose overlap ``sum_j sqrt(p_j q_j)`` is smaller are done directly, in logarithms."""


@cache
def floor_of(name: str) -> float | None:
    """Return the floor that a distance's name holds; ``None`` for any other name.

    Examples
    --------
    >>> floor_of("content/floor=0.001"), floor_of("content"), floor_of("content/floor=2")
    (0.001, None, None)
    """
    if not name.startswith(_FLOORED):
        return None
    try:
        share = float(name.removeprefix(_FLOORED))
    except ValueError:
        return None
    return share if 0 < share < 1 else None


def weighted_of(
    row: SharedRow, group: HeadGroup, wanted: frozenset[str]
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray | float]]:
    """Return the forms in `wanted`, each float64 ``(n_pairs,)``, and ``whole_angle_rows``.

    Notes
    -----
    The geometric weights cost three matrix products of O(heads^2 keys) in float64, a floor one,
    the angle one in the dtype of the row.
    """
    out = _floored(row.content, group, wanted)
    content = row.content.astype(np.float64)
    whole = np.concatenate([row.sinks.astype(np.float64), content], axis=1)
    if "content/geometric_weights" in wanted:
        out["content/geometric_weights"] = _geometric(content, group)
    if "aitchison/geometric_weights" in wanted:
        out["aitchison/geometric_weights"] = _geometric(whole, group)
    counts: dict[str, np.ndarray | float] = {}
    if "aitchison_angle" in wanted:
        joined = SharedRow(np.concatenate([row.sinks, row.content], axis=1), row.sinks)
        asked = frozenset({"content_angle"})
        out["aitchison_angle"] = log_ratio_of(joined, group, asked)["content_angle"]
        defined = angles_defined(joined, group)
        counts["whole_angle_rows"] = 1.0 if defined is None else defined
    return out, counts


def weighted_with_zeros(
    content: np.ndarray,
    sinks: np.ndarray,
    group: HeadGroup,
    wanted: frozenset[str],
    common: CommonSupportValues,
    *,
    eps: float,
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Return the same on a row with rounding zeros (``-inf``), those of the pairs that have them.

    A key that is 0 for either head has weight 0, so the geometric weights look at the common
    support by themselves, and are continuous in a share that goes to 0.  They and the angle are
    counted where the unweighted distance is (`common`).  A floor is a zero rule of its own.
    """
    out = _floored(content, group, wanted)
    content = content.astype(np.float64)
    whole = np.concatenate([sinks.astype(np.float64), content], axis=1)
    if "content/geometric_weights" in wanted:
        out["content/geometric_weights"] = _geometric(content, group)  # 0 below two common keys
    if "aitchison/geometric_weights" in wanted:
        values = _geometric(whole, group)
        out["aitchison/geometric_weights"] = np.where(common.balance, values, 0.0)
    counts = {}
    if "aitchison_angle" in wanted:
        joined = common_support_log_ratios(whole, whole[:, :1], group, eps=eps)
        defined = common.balance & joined.angle
        out["aitchison_angle"] = np.where(defined, joined.values["content_angle"], 0.0)
        counts["whole_angle_rows"] = defined
    return out, counts


def _floored(
    content: np.ndarray, group: HeadGroup, wanted: frozenset[str]
) -> dict[str, np.ndarray]:
    floors = {name: share for name in wanted if (share := floor_of(name)) is not None}
    if not floors:
        return {}
    shares = _log_shares(content.astype(np.float64))
    out = {}
    for name, share in floors.items():
        clr = np.maximum(shares, np.log(share))
        clr -= clr.mean(axis=1, keepdims=True)
        gaps = square_gaps(centred(clr), group, clr.__getitem__)
        out[name] = np.sqrt(np.maximum(gaps, 0))
    return out


def _log_shares(x: np.ndarray) -> np.ndarray:
    """Log-shares ``(heads, n)`` of log-weights; ``-inf`` stays."""
    x = x - x.max(axis=1, keepdims=True)
    shares: np.ndarray = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    return shares


def _geometric(x: np.ndarray, group: HeadGroup) -> np.ndarray:
    """Distance under geometric-mean weights of all pairs, from float64 log-weights ``(heads, n)``.

    With ``s = sqrt(p)`` the overlap and both moments of l under the weights are products of
    ``s``, ``s log p`` and ``s log^2 p``, all of them bounded.  What the heads share in log p goes
    first: no difference sees it, and the products keep its digits.
    """
    log_p = _log_shares(x)
    root = np.exp(log_p / 2)
    log_p = np.where(root > 0, log_p, 0.0)  # weight 0: nothing of it is ever looked at
    weight = root.sum(axis=0)
    shared = np.divide(
        (root * log_p).sum(axis=0), weight, out=np.zeros_like(weight), where=weight > 0
    )
    log_p -= shared
    log_p -= (np.square(root) * log_p).sum(axis=1, keepdims=True)
    first = root * log_p
    overlap = root @ root.T
    sums = first @ root.T
    squares = (first * log_p) @ root.T
    squares += squares.T.copy()
    safe = np.maximum(overlap, FAINT)
    mean = (sums - sums.T) / safe
    gaps = (squares - 2 * (first @ first.T)) / safe - np.square(mean)
    direct = (gaps <= NEAR * squares / safe) | (overlap < FAINT)
    out: np.ndarray = np.maximum(gaps, 0).ravel()[group.flat]
    near = np.flatnonzero(direct.ravel()[group.flat])
    if near.size:
        heads, i, j = group.among(near)
        own = x[heads]
        out[near] = in_chunks(lambda i, j: _geometric_directly(own[i], own[j]), i, j, x.shape[1])
    return np.sqrt(out)


def _geometric_directly(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squares of the same for pairs of rows ``(pairs, n)``; 0 without a common key."""
    both = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(both, x, 0.0), np.where(both, y, 0.0)
    middle = np.where(both, (x + y) / 2, -np.inf)
    top = middle.max(axis=1, keepdims=True)
    weight = np.exp(middle - np.where(np.isfinite(top), top, 0.0))
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    gap = x - y
    # equal rows of unequal offsets: an offset taken off first leaves an exact 0
    gap -= np.take_along_axis(gap, middle.argmax(axis=1)[:, None], axis=1)
    gap -= (weight * gap).sum(axis=1, keepdims=True)
    squares: np.ndarray = (weight * np.square(gap)).sum(axis=1)
    return squares
