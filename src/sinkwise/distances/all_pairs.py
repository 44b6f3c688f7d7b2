"""Sums over rows of every distance between every two heads, at matrix-product speed.

The driver alone decides which rows and pairs count: rows valid for both heads, and heads whose
supports agree on the row.  Rows are independent; they are shared out over threads, one row at a
time in the cache, and the sums of any split of the rows add up to the sums of the whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sinkwise.distances.pair_classical import (
    BANDS,
    GRAM_MEASURES,
    ZEROED_GRAM_MEASURES,
    bands_of,
    gram_measures_of,
)
from sinkwise.distances.pair_content import CONTENT, ContentSums
from sinkwise.distances.pair_divergence import (
    DIVERGENCES,
    ZEROED_DIVERGENCES,
    divergences_of,
)
from sinkwise.distances.pair_index import HeadGroup, group_of, pair_count
from sinkwise.distances.pair_logratio import LOG_RATIO, angles_defined, log_ratio_of
from sinkwise.distances.pair_memory import require_pair_memory
from sinkwise.distances.pair_row import SharedRow
from sinkwise.distances.pair_weighted import (
    WEIGHTED_COUNT_OF,
    floor_of,
    weighted_of,
    weighted_with_zeros,
)
from sinkwise.distances.pair_zeros import common_support_log_ratios
from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock

__all__ = ["COUNT_OF", "METRICS", "PairSums", "count_of", "pair_sums"]

METRICS: tuple[str, ...] = (*LOG_RATIO, *GRAM_MEASURES, *DIVERGENCES, *BANDS)
"""Names of all sums, plain ones of distances and ``_sq`` ones of their squares."""

_NEEDS_SINK = ("aitchison", "balance", "within_sink")

COUNT_OF: Mapping[str, str] = {
    **{name: "content_rows" for name in LOG_RATIO},
    **{name: "balance_rows" for name in LOG_RATIO if name.removesuffix("_sq") in _NEEDS_SINK},
    "content_angle": "angle_rows",
    **dict.fromkeys((*GRAM_MEASURES, *DIVERGENCES), "rows"),
    **dict.fromkeys(BANDS, "band_rows"),
    **dict.fromkeys((*ZEROED_GRAM_MEASURES, *ZEROED_DIVERGENCES), "rows"),
    **WEIGHTED_COUNT_OF,
}
"""Which count each sum is divided by to give a mean over rows; see also :func:`count_of`."""

_ALWAYS = frozenset(METRICS)


def count_of(name: str) -> str:
    """Return the name of the count that a sum is divided by, floors written in the name included.

    Raises
    ------
    RowError
        On a name that is no metric.

    Examples
    --------
    >>> count_of("content"), count_of("content/floor=0.001")
    ('content_rows', 'rows')
    """
    if name in COUNT_OF:
        return COUNT_OF[name]
    if floor_of(name) is not None:
        return "rows"
    raise RowError(
        f"no metric named {name!r}; choose from {', '.join(COUNT_OF)} or content/floor=0.001 "
        "(any share below 1)"
    )


@dataclass(frozen=True)
class PairSums:
    """Sums over rows for every pair of heads, with how many rows each holds.

    Attributes
    ----------
    n_heads
        Number of heads H.
    sums
        By metric, float64 ``(H (H - 1) / 2,)`` in the order of
        :func:`scipy.spatial.distance.squareform`.  Distances in nats, angles in radians.
    counts
        By the names in :data:`COUNT_OF`, float64 of the same shape.
    """

    n_heads: int
    sums: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray]

    @classmethod
    def zero(cls, n_heads: int, metrics: tuple[str, ...] = METRICS) -> PairSums:
        """Return the sums over no row."""
        n = pair_count(n_heads)
        return cls(
            n_heads,
            {name: np.zeros(n) for name in metrics},
            {name: np.zeros(n) for name in _counts_of(metrics)},
        )

    def merge(self, other: PairSums) -> PairSums:
        """Return the sums over the rows of both; associative and commutative up to rounding."""
        if self.n_heads != other.n_heads or self.sums.keys() != other.sums.keys():
            raise RowError(
                f"sums of {self.n_heads} heads over {sorted(self.sums)} can't be merged with sums "
                f"of {other.n_heads} heads over {sorted(other.sums)}: compute both with the same "
                "heads and metrics"
            )
        return PairSums(
            self.n_heads,
            {name: value + other.sums[name] for name, value in self.sums.items()},
            {name: value + other.counts[name] for name, value in self.counts.items()},
        )

    def mean(self, metric: str) -> np.ndarray:
        """Return the mean over rows, ``(n_pairs,)``; NaN where a pair shares no row."""
        count = self.counts[count_of(metric)]
        out = np.full_like(count, np.nan)
        return np.divide(self.sums[metric], count, out=out, where=count > 0)


def pair_sums(block: RowBlock, *, metrics: tuple[str, ...] = METRICS) -> PairSums:
    """Sum every distance between every two heads over the rows of a block.

    Parameters
    ----------
    block
        Rows of one document, ``(heads, rows, keys)``.
    metrics
        Names out of :data:`METRICS`, or of the forms that no audit takes by itself:
        ``"euclidean/zeroed"``, ``"js_divergence/zeroed"``, and those of
        :mod:`sinkwise.distances.pair_weighted`, ``"content/geometric_weights"``,
        ``"aitchison/geometric_weights"``, ``"aitchison_angle"`` and ``"content/floor=0.001"``
        with any floor.

    Returns
    -------
    PairSums
        Sums and counts; ``.mean(name)`` divides them.

    Raises
    ------
    RowError
        On a name that is no metric.
    MemoryBudgetError
        If sums and temporaries would take more than half of the machine's memory; raised
        before anything is allocated.

    Notes
    -----
    Absent keys contribute nothing.  A row counts for a pair when it is valid for both heads and
    both see the same keys on it.  Heads whose content is all rounding zeros on a row are left
    out of it.  With rounding zeros in a row (``-inf`` inside the support) the log-ratio measures
    take the two heads' common support, if two content parts (and for the balance a sink part)
    are left; the classical ones take the zeros as 0.  A content that is uniform to rounding has
    no direction: direction 0, and the row isn't counted for the angle.  The bands are closed
    forms for one sink key and are not counted on rows with several.

    float32 rows are computed in float32 with the digits kept (moved towards a common point,
    near pairs in float64), float64 rows in float64, save the logarithms of the Jensen-Shannon
    divergence: float32, good to 1e-6 absolute and 1e-4 relative.

    O(heads^2 keys) per row: one matrix product each for the log-ratio measures together and for
    each cosine and Euclidean distance, and one logarithm per pair and key for each divergence.
    Memory O(heads^2 + heads * keys) per thread, whatever the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> logits = np.log([[[0.8, 0.15, 0.05]], [[0.5, 0.1, 0.4]]])
    >>> block = make_block(
    ...     document=0, log_weights=logits, support=np.ones((1, 3), bool),
    ...     sink=np.array([True, False, False]), queries=np.array([2]),
    ...     heads=[HeadId(0, 0), HeadId(0, 1)],
    ... )
    >>> pair_sums(block, metrics=("content",)).mean("content").round(4)
    array([1.7571])
    """
    metrics = tuple(dict.fromkeys(metrics))
    workers = require_pair_memory(
        block.n_heads,
        block.n_keys,
        n_arrays=len(metrics) + len(_counts_of(metrics)),
        workers=_workers(block),
        # weighted forms work in float64 whatever the rows are
        itemsize=block.log_weights.dtype.itemsize if _ALWAYS.issuperset(metrics) else 8,
    )
    groups = _Groups(block)
    if workers == 1:
        return _sums_of_rows(block, groups, metrics, range(block.n_rows))
    shares = [range(start, block.n_rows, workers) for start in range(workers)]
    with _single_threaded_blas(), ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(lambda rows: _sums_of_rows(block, groups, metrics, rows), shares))
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    return total


def _counts_of(metrics: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(count_of(name) for name in metrics))


SMALL = 1 << 22
"""Elements of pairs times keys below which threads cost more than they give."""


def _workers(block: RowBlock) -> int:
    if pair_count(block.n_heads) * block.n_keys * block.n_rows < SMALL:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, block.n_rows))


@cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _single_threaded_blas() -> AbstractContextManager[Any]:
    """Each of our threads multiplies by itself: BLAS threads on top would fight over the cores."""
    try:
        return _blas().limit(limits=1, user_api="blas")
    except ImportError:
        return nullcontext()


class _Groups:
    """Which heads of a block can be compared on a row."""

    def __init__(self, block: RowBlock) -> None:
        self._block = block
        self._valid = block.valid
        self._groups: dict[bytes, HeadGroup] = {}
        every = np.arange(block.n_heads)
        self._groups[every.tobytes()] = group_of(every, block.n_heads)

    def of_row(self, row: int) -> Iterator[tuple[HeadGroup, np.ndarray]]:
        """Yield the groups of two heads or more, each with its support ``(keys,)``."""
        support = self._block.support
        heads = np.flatnonzero(self._valid[:, row])
        if support.ndim == 2:
            if len(heads) > 1:
                yield self.of_heads(heads), support[row]
            return
        packed = np.packbits(support[heads, row], axis=-1)
        _, label = np.unique(packed, axis=0, return_inverse=True)
        label = label.reshape(-1)
        for number in range(label.max(initial=-1) + 1):
            members = heads[label == number]
            if len(members) > 1:
                yield self.of_heads(members), support[members[0], row]

    def of_heads(self, heads: np.ndarray) -> HeadGroup:
        """Return the group of these heads, made once."""
        key = heads.tobytes()
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = group_of(heads, self._block.n_heads)
        return group


class _Totals:
    """Running sums of one thread."""

    def __init__(self, n_heads: int, metrics: tuple[str, ...]) -> None:
        self.sums = PairSums.zero(n_heads, metrics)

    def add(self, group: HeadGroup, values: Mapping[str, np.ndarray]) -> None:
        """Add a row's values; names that weren't asked for are passed over."""
        _add(self.sums.sums, group, values)

    def count(self, group: HeadGroup, counts: Mapping[str, np.ndarray | float]) -> None:
        """Add a row's counts, numbers or one per pair."""
        _add(self.sums.counts, group, counts)


def _add(
    into: Mapping[str, np.ndarray], group: HeadGroup, values: Mapping[str, np.ndarray | float]
) -> None:
    for name, value in values.items():
        if name in into:
            target = into[name]
            if group.slots is None:
                target += value
            else:
                target[group.slots] += value


def _sums_of_rows(
    block: RowBlock, groups: _Groups, metrics: tuple[str, ...], rows: range
) -> PairSums:
    totals = _Totals(block.n_heads, metrics)
    wanted = frozenset(metrics)
    content_alone = _content_sums(block, totals) if wanted <= CONTENT else None
    for row in rows:
        for group, support in groups.of_row(row):
            sink = block.sink[row]
            if content_alone is not None and group.slots is None:
                columns = np.flatnonzero(support & ~sink)
                if content_alone.add(row, group, columns):
                    totals.count(group, {"content_rows": 1.0})
                    continue
            content = _columns(block.log_weights, row, group, support & ~sink)
            sinks = _columns(block.log_weights, row, group, support & sink)
            if np.isneginf(sinks).any() or np.isneginf(content.min()):
                _add_row_with_zeros(totals, groups, group, content, sinks, wanted)
            else:
                _add_row(totals, group, SharedRow(content, sinks), wanted)
    return totals.sums


def _content_sums(block: RowBlock, totals: _Totals) -> ContentSums:
    sums = totals.sums.sums
    spare = np.zeros(pair_count(block.n_heads))
    x = np.ascontiguousarray(block.log_weights)
    return ContentSums(x, sums.get("content", spare), sums.get("content_sq", spare))


def _columns(log_weights: np.ndarray, row: int, group: HeadGroup, mask: np.ndarray) -> np.ndarray:
    """The row's columns of a mask, contiguous."""
    x = log_weights[:, row] if group.heads is None else log_weights[group.heads, row]
    where = np.flatnonzero(mask)
    if where[-1] - where[0] + 1 == len(where):
        return np.ascontiguousarray(x[:, where[0] : where[-1] + 1])
    return x[:, where]


def _add_row(totals: _Totals, group: HeadGroup, row: SharedRow, wanted: frozenset[str]) -> None:
    counts: dict[str, np.ndarray | float] = dict.fromkeys(
        ("rows", "content_rows", "balance_rows", "angle_rows"), 1.0
    )
    if wanted.intersection(LOG_RATIO):
        totals.add(group, log_ratio_of(row, group, wanted))
        if (defined := angles_defined(row, group)) is not None:
            counts["angle_rows"] = defined
    if not _ALWAYS.issuperset(wanted):
        values, more = weighted_of(row, group, wanted)
        totals.add(group, values)
        counts |= more
    _add_classical(totals, group, row, wanted)
    totals.count(group, counts)


def _add_classical(
    totals: _Totals, group: HeadGroup, row: SharedRow, wanted: frozenset[str]
) -> None:
    totals.add(group, gram_measures_of(row, group, wanted))
    totals.add(group, divergences_of(row, group, wanted))
    if row.n_sinks == 1 and wanted.intersection(BANDS):
        totals.add(group, bands_of(row, group))
        totals.count(group, {"band_rows": 1.0})


def _add_row_with_zeros(
    totals: _Totals,
    groups: _Groups,
    group: HeadGroup,
    content: np.ndarray,
    sinks: np.ndarray,
    wanted: frozenset[str],
) -> None:
    has_content = np.isfinite(content).any(axis=1)
    if not has_content.all():
        heads = np.arange(len(has_content)) if group.heads is None else group.heads
        if has_content.sum() < 2:
            return
        group = groups.of_heads(heads[has_content])
        content, sinks = content[has_content], sinks[has_content]
    if wanted.intersection(LOG_RATIO) or not _ALWAYS.issuperset(wanted):
        eps = float(np.finfo(content.dtype).eps)
        found = common_support_log_ratios(content, sinks, group, eps=eps)
        totals.add(group, found.values)
        totals.count(
            group,
            {
                "content_rows": found.content,
                "balance_rows": found.balance,
                "angle_rows": found.angle,
            },
        )
        values, counts = weighted_with_zeros(content, sinks, group, wanted, found, eps=eps)
        totals.add(group, values)
        totals.count(group, counts)
    row = SharedRow(content.astype(np.float64), sinks.astype(np.float64))
    _add_classical(totals, group, row, wanted)
    totals.count(group, {"rows": 1.0})
