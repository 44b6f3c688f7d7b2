"""Content distances alone, in three calls a row: what remains is the matrix product.

The general path keeps every measure of a row and pays for it in passes and in turns at the
interpreter lock.  Where only content distances are asked for, compiled loops go from the
log-weights to the sums; pairs that need more digits go the general way.
"""

from __future__ import annotations

import numpy as np

from sinkwise.distances.pair_gram import NEAR
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_kernels import kernels
from sinkwise.distances.pair_logratio import log_ratio_of
from sinkwise.distances.pair_row import SharedRow, flat_norm

__all__ = ["CONTENT", "ContentSums"]

CONTENT = frozenset({"content", "content_sq"})


class ContentSums:
    """Sums of content distances over rows that every head of a block shares.

    Parameters
    ----------
    log_weights
        ``(heads, rows, keys)``.
    content, content_sq
        Running sums ``(n_pairs,)`` to add to.
    """

    def __init__(
        self, log_weights: np.ndarray, content: np.ndarray, content_sq: np.ndarray
    ) -> None:
        self._log_weights = log_weights
        self._content, self._content_sq = content, content_sq
        heads = log_weights.shape[0]
        self._size = np.empty(heads)
        self._gram = np.empty((heads, heads), log_weights.dtype)
        self._left = np.empty(len(content), np.intp)

    def add(self, row: int, group: HeadGroup, columns: np.ndarray) -> bool:
        """Add one row's distances; False, and nothing added, if this row isn't for this path.

        `columns` are the content's, ascending; rows with gaps among them or with rounding zeros
        go the general way.
        """
        loops, n = kernels(), len(columns)
        if loops.content is None or columns[-1] - columns[0] + 1 != n:
            return False
        x = self._log_weights
        unit = np.empty((group.n_heads, n), x.dtype)
        flat = flat_norm(n, x.dtype)
        if not loops.content.directions(x, row, int(columns[0]), flat, self._size, unit):
            return False
        np.matmul(unit, unit.T, out=self._gram)
        count = loops.content.add(
            self._gram, self._size, flat, x.dtype.type(NEAR),
            self._content, self._content_sq, self._left,
        )  # fmt: skip
        if count:
            self._add_exactly(row, group, columns, self._left[:count])
        return True

    def _add_exactly(
        self, row: int, group: HeadGroup, columns: np.ndarray, pairs: np.ndarray
    ) -> None:
        content = np.ascontiguousarray(self._log_weights[:, row, columns])
        shared = SharedRow(content, content[:, :1])  # the sink plays no part in what is asked
        found = log_ratio_of(shared, group, CONTENT)
        self._content[pairs] += found["content"][pairs]
        self._content_sq[pairs] += found["content_sq"][pairs]
