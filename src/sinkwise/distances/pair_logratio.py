"""Log-ratio measures of all pairs of heads on one row, the exact split among them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sinkwise.distances.pair_gram import NEAR, centred, in_chunks, square_gaps
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_kernels import kernels
from sinkwise.distances.pair_row import SharedRow

__all__ = ["LOG_RATIO", "angles_defined", "log_ratio_of"]

LOG_RATIO = (
    "content",
    "content_angle",
    "aitchison",
    "dispersion",
    "direction",
    "balance",
    "within_sink",
    "content_sq",
    "aitchison_sq",
    "dispersion_sq",
    "direction_sq",
    "balance_sq",
    "within_sink_sq",
)

_FROM_DIRECTIONS = frozenset(
    {
        "content",
        "content_angle",
        "aitchison",
        "direction",
        "content_sq",
        "aitchison_sq",
        "direction_sq",
    }
)


def log_ratio_of(
    row: SharedRow, group: HeadGroup, wanted: frozenset[str]
) -> Mapping[str, np.ndarray]:
    """Return the log-ratio measures in `wanted` (or what leads to them), each ``(n_pairs,)``.

    Notes
    -----
    With unit vectors u, v of the contents' clr vectors a, b, ``direction^2 = |a||b||u - v|^2``
    and ``content^2 = (|a| - |b|)^2 + direction^2``: sums of squares without cancellation, so
    both exact splits hold to rounding and one matrix product serves content, direction and
    angle.  The angle is ``2 atan2(|u - v|, |u + v|)`` with ``|u + v|^2 = 4 - |u - v|^2``, save
    for nearly opposite directions, where ``|u + v|`` is computed itself.  It is 0 for a pair
    without a defined angle (:func:`angles_defined`), which is not to be counted.
    """
    out: dict[str, np.ndarray] = {}
    i, j = group.first, group.second
    size = row.dispersion
    if wanted & _FROM_DIRECTIONS:
        chord_sq = square_gaps(row.unit, group, lambda heads: row.exact(heads).unit)
        np.clip(chord_sq, 0, 4, out=chord_sq)
        if (flat := row.uniform).any():
            chord_sq[flat[i] | flat[j]] = 0
        squares = kernels().split_squares(chord_sq, size, group)
        _sharpen(*squares, chord_sq, row, group)
        out["content_sq"], out["dispersion_sq"], out["direction_sq"] = squares
        if "content" in wanted:
            out["content"] = np.sqrt(out["content_sq"])
        if "direction" in wanted:
            out["direction"] = np.sqrt(out["direction_sq"])
        if "dispersion" in wanted:
            out["dispersion"] = np.sqrt(out["dispersion_sq"])
        if "content_angle" in wanted:
            out["content_angle"] = _angle(chord_sq, row, group)
    elif wanted & {"dispersion", "dispersion_sq"}:
        out["dispersion"] = np.abs(size[i] - size[j])
        out["dispersion_sq"] = np.square(out["dispersion"])
    if wanted & {"balance", "balance_sq", "aitchison", "aitchison_sq"}:
        gap = row.balance[i] - row.balance[j]
        out["balance"] = np.abs(gap)
        out["balance_sq"] = gap * gap
    if wanted & {"within_sink", "within_sink_sq", "aitchison", "aitchison_sq"}:
        out["within_sink_sq"] = _within_sink_sq(row, group)
        out["within_sink"] = np.sqrt(out["within_sink_sq"])
    if wanted & {"aitchison", "aitchison_sq"}:
        out["aitchison_sq"] = out["content_sq"] + out["balance_sq"] + out["within_sink_sq"]
        out["aitchison"] = np.sqrt(out["aitchison_sq"])
    return out


def angles_defined(row: SharedRow, group: HeadGroup) -> np.ndarray | None:
    """bool ``(n_pairs,)``: neither content is uniform; ``None`` when that holds for all."""
    flat = row.uniform
    return ~(flat[group.first] | flat[group.second]) if flat.any() else None


def _sharpen(
    content_sq: np.ndarray,
    dispersion_sq: np.ndarray,
    direction_sq: np.ndarray,
    chord_sq: np.ndarray,
    row: SharedRow,
    group: HeadGroup,
) -> None:
    """Give the dispersion gaps that decide a small distance the digits of float64."""
    if row.content.dtype == np.float64 or chord_sq.min(initial=4) >= NEAR:
        return
    near = np.flatnonzero(chord_sq < NEAR)
    heads, first, second = group.among(near)
    size = row.exact(heads).dispersion
    dispersion_sq[near] = np.square(size[first] - size[second])
    content_sq[near] = dispersion_sq[near] + direction_sq[near]


def _angle(chord_sq: np.ndarray, row: SharedRow, group: HeadGroup) -> np.ndarray:
    other_sq = 4 - chord_sq
    opposite = np.flatnonzero(other_sq < 4 * NEAR)
    if opposite.size:
        heads, first, second = group.among(opposite)
        u = row.content[heads].astype(np.float64)
        u -= u.mean(axis=1, keepdims=True)
        u /= np.sqrt(np.square(u).sum(axis=1, keepdims=True))
        other_sq[opposite] = in_chunks(
            lambda i, j: np.square(u[i] + u[j]).sum(axis=1), first, second, u.shape[1]
        )
    return 2 * np.arctan2(np.sqrt(chord_sq), np.sqrt(other_sq))


def _within_sink_sq(row: SharedRow, group: HeadGroup) -> np.ndarray:
    if row.n_sinks == 1:
        return np.zeros(len(group.first))
    clr = row.sink_clr
    return np.maximum(square_gaps(centred(clr), group, lambda heads: clr[heads]), 0)
