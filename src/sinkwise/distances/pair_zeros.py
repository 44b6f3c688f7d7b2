"""All pairs of heads on a row with rounding zeros left out: log-ratios on common supports.

Every pair has a support of its own, the parts that are non-zero for both.  Sums over it are
matrix products with the heads' masks, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sinkwise.distances.pair_gram import in_chunks
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_row import UNIFORM_ULPS

__all__ = ["CommonSupportValues", "common_support_log_ratios"]

NEAR = 1e-6
"""Squared distances below this share of the squared norms are computed directly: the products'
rounding is some 1e-15 of the norms."""


@dataclass(frozen=True)
class CommonSupportValues:
    """Log-ratio measures on common supports and the pairs for which each is defined."""

    values: Mapping[str, np.ndarray]
    content: np.ndarray
    """bool ``(n_pairs,)``: two common content parts or more."""
    balance: np.ndarray
    """bool ``(n_pairs,)``: a common sink part as well."""
    angle: np.ndarray
    """bool ``(n_pairs,)``: neither content is uniform on the common parts."""


def common_support_log_ratios(
    content: np.ndarray, sinks: np.ndarray, group: HeadGroup, *, eps: float
) -> CommonSupportValues:
    """Return every log-ratio measure of all pairs on the parts that are non-zero for both.

    Parameters
    ----------
    content, sinks
        Log-weights ``(heads, n)`` and ``(heads, r)``, ``-inf`` at rounding zeros.
    group
        The heads' pairs.
    eps
        Machine epsilon of the log-weights as they arrived, for what counts as uniform.

    Notes
    -----
    Values where a measure isn't defined are 0 and not to be counted.  Six matrix products of
    O(heads^2 n) in float64.
    """
    inside = _Centred(content, group)
    among = _Centred(sinks, group)
    n, r = inside.common, among.common
    ok = n >= 2
    ok_balance = ok & (r >= 1)
    first, second = inside.square_norms()
    size_i, size_j = np.sqrt(first), np.sqrt(second)
    uniform = np.minimum(first, second) <= n * (UNIFORM_ULPS * eps) ** 2
    content_sq = inside.square_gaps()
    gap = size_i - size_j
    # the direction is what the norms leave of the whole; 0 where one side has none
    direction_sq = np.where(uniform, 0.0, np.maximum(content_sq - gap * gap, 0.0))
    content_sq = gap * gap + direction_sq
    lengths = np.where(uniform, 1.0, size_i * size_j)
    chord_sq = np.clip(direction_sq / lengths, 0.0, 4.0)
    scale = np.sqrt(r * n / np.maximum(r + n, 1))
    balance = scale * (among.mean_gaps() - inside.mean_gaps())
    within_sq = among.square_gaps()
    aitchison_sq = content_sq + balance**2 + within_sq
    squares = {
        "content": content_sq,
        "aitchison": aitchison_sq,
        "dispersion": gap * gap,
        "direction": direction_sq,
        "balance": balance**2,
        "within_sink": within_sq,
    }
    values = {name: np.sqrt(square) for name, square in squares.items()}
    values |= {f"{name}_sq": square for name, square in squares.items()}
    values["content_angle"] = 2 * np.arctan2(np.sqrt(chord_sq), np.sqrt(4 - chord_sq))
    needs_sink = {"balance", "within_sink", "aitchison"}
    for name, value in values.items():
        where = ok_balance if name.removesuffix("_sq") in needs_sink else ok
        values[name] = np.where(where, value, 0.0)
    angle = ok & ~uniform
    values["content_angle"] = np.where(angle, values["content_angle"], 0.0)
    return CommonSupportValues(values, ok, ok_balance, angle)


class _Centred:
    """Log-weights with zeros masked out, and their moments over each pair's common parts."""

    def __init__(self, x: np.ndarray, group: HeadGroup) -> None:
        seen = np.isfinite(x)
        self.group = group
        self.mask = seen.astype(np.float64)
        x = np.where(seen, x.astype(np.float64), 0.0)
        # each head about its own mean: keeps the moments small, and no distance sees it
        self.offset = x.sum(axis=1) / np.maximum(self.mask.sum(axis=1), 1)
        self.x = np.where(seen, x - self.offset[:, None], 0.0)
        self.common = self._of_pairs(self.mask @ self.mask.T)
        sums = self.x @ self.mask.T
        self._sum_first, self._sum_second = self._of_pairs(sums), self._of_pairs(sums.T)
        squares = np.square(self.x) @ self.mask.T
        self._square_first, self._square_second = self._of_pairs(squares), self._of_pairs(squares.T)

    def _of_pairs(self, square: np.ndarray) -> np.ndarray:
        return square[self.group.first, self.group.second]

    @property
    def _parts(self) -> np.ndarray:
        return np.maximum(self.common, 1)

    def mean_gaps(self) -> np.ndarray:
        """Mean log-weight over the common parts, first minus second."""
        offset = self.offset[self.group.first] - self.offset[self.group.second]
        return offset + (self._sum_first - self._sum_second) / self._parts

    def square_norms(self) -> tuple[np.ndarray, np.ndarray]:
        """Squared norms of both clr vectors over the common parts."""
        first = self._square_first - self._sum_first**2 / self._parts
        second = self._square_second - self._sum_second**2 / self._parts
        return np.maximum(first, 0), np.maximum(second, 0)

    def square_gaps(self) -> np.ndarray:
        """Squared norm of the difference of the clr vectors over the common parts."""
        inner = self._of_pairs(self.x @ self.x.T)
        norms = self._square_first + self._square_second
        gaps = norms - 2 * inner - (self._sum_first - self._sum_second) ** 2 / self._parts
        near = np.flatnonzero(gaps <= NEAR * norms)
        if near.size:
            gaps[near] = in_chunks(
                self._direct, self.group.first[near], self.group.second[near], self.x.shape[1]
            )
        return np.maximum(gaps, 0)

    def _direct(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        both = self.mask[first] * self.mask[second]
        gap = (self.x[first] - self.x[second]) * both
        gap -= both * (gap.sum(axis=1) / np.maximum(both.sum(axis=1), 1))[:, None]
        return np.einsum("pk,pk->p", gap, gap)
