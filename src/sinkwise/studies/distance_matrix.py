"""One matrix of mean distances between every two heads, streamed from rows."""

from __future__ import annotations

import numpy as np

from sinkwise.distances.all_pairs import COUNT_OF, PairSums, pair_sums
from sinkwise.errors import InputTypeError, MemoryBudgetError, RowError
from sinkwise.rowdata import RowSource
from sinkwise.studies.head_matrix import n_pairs, square

__all__ = ["CLASSICAL", "CONVENTIONS", "LOG_RATIO", "head_distances"]

LOG_RATIO = (
    "content",
    "content_angle",
    "aitchison",
    "dispersion",
    "direction",
    "balance",
    "within_sink",
)
"""Metrics that need no convention: they say themselves what becomes of the sink."""

ROOT_MEAN_SQUARE = tuple(f"{name}_rms" for name in LOG_RATIO if name != "content_angle")
"""Root-mean-square forms, in which the exact splits survive the mean over rows."""

CLASSICAL = ("cosine", "js_divergence", "euclidean")
"""Metrics that answer a different question under each convention."""

CONVENTIONS = ("kept", "dropped")


def head_distances(
    rows: RowSource,
    *,
    metric: str,
    convention: str | None = None,
    max_bytes: int = 8 * 2**30,
) -> np.ndarray:
    """Return the mean distance between every two heads over the rows they share.

    Parameters
    ----------
    rows
        What :func:`sinkwise.rows` makes of arrays, or any other source of row blocks.
    metric
        ``"content"``, ``"content_angle"`` (radians), ``"aitchison"``, ``"dispersion"``,
        ``"direction"``, ``"balance"`` and ``"within_sink"`` (mean distances or absolute gaps of
        log-ratios), any but the angle with ``_rms`` for the root of the mean square; or
        ``"cosine"``, ``"js_divergence"`` (nats) and ``"euclidean"``.
    convention
        ``"kept"`` (full rows) or ``"dropped"`` (sink removed, rest re-closed): required for the
        classical metrics, refused for the others.
    max_bytes
        Refuse to start where the sums and the matrix would need more memory than this.

    Returns
    -------
    numpy.ndarray
        float64 ``(heads, heads)``, exactly symmetric with a diagonal of exactly 0.  NaN for two
        heads with no row in common (different supports) or, for the angle, with no row in which
        both contents have a direction.

    Raises
    ------
    RowError
        For an unknown metric, a missing or needless convention, or blocks that do not hold the
        source's heads.
    InputTypeError
        If `rows` is not a source of row blocks.
    MemoryBudgetError
        Before anything is allocated, with the number of bytes.

    Notes
    -----
    Every row counts once, whatever its document.  O(rows · heads^2 · keys) arithmetic, as matrix
    products for all but ``js_divergence``; memory O(heads^2) beside one block.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> class OneBlock:
    ...     heads, n_documents = (HeadId(0, 0), HeadId(0, 1)), 1
    ...     def blocks(self, skip=frozenset()):
    ...         p = np.array([[[0.8, 0.1, 0.06, 0.04]], [[0.5, 0.2, 0.2, 0.1]]])
    ...         yield make_block(document=0, log_weights=np.log(p), support=np.ones((1, 4), bool),
    ...                          sink=np.arange(4) == 0, queries=np.array([3]), heads=self.heads)
    >>> float(head_distances(OneBlock(), metric="content")[0, 1].round(6))
    0.362168
    """
    if not hasattr(rows, "blocks") or not hasattr(rows, "heads"):
        raise InputTypeError(
            f"rows is a {type(rows).__name__}, expected a source of row blocks: make one with "
            "sinkwise.rows(weights, sink=...)"
        )
    name, squared = _sum_name(metric, convention)
    n_heads = len(rows.heads)
    _refuse_beyond(n_heads, max_bytes)
    total = PairSums.zero(n_heads, (name,))
    for block in rows.blocks():
        if block.n_heads != n_heads:
            raise RowError(
                f"a block of document {block.document} holds {block.n_heads} heads but the source "
                f"names {n_heads}: heads are compared on the same rows, so every block must hold "
                "all of them; take layers of unequal documents apart"
            )
        if block.n_rows:
            total = total.merge(pair_sums(block, metrics=(name,)))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total.sums[name] / total.counts[COUNT_OF[name]]
    return square(np.sqrt(mean) if squared else mean, n_heads)


def _sum_name(metric: str, convention: str | None) -> tuple[str, bool]:
    """Name of the pair sum behind a metric, and whether it sums squares."""
    if metric in CLASSICAL:
        if convention is None:
            raise RowError(
                f"{metric} answers a different question with and without the sink: pass "
                'convention="kept" (full rows) or convention="dropped" (sink removed, rest '
                "re-closed)"
            )
        if convention not in CONVENTIONS:
            raise RowError(
                f"convention is {convention!r}, expected one of {', '.join(CONVENTIONS)}"
                + (
                    "; sinkwise takes zeroed rows one pair at a time (sinkwise.cosine_distance)"
                    if convention == "zeroed"
                    else ""
                )
            )
        return f"{metric}/{convention}", False
    if metric not in LOG_RATIO and metric not in ROOT_MEAN_SQUARE:
        known = ", ".join((*LOG_RATIO, *ROOT_MEAN_SQUARE, *CLASSICAL))
        raise RowError(f"unknown metric {metric!r}; there are {known}")
    if convention is not None:
        raise RowError(
            f"{metric} takes no convention (got {convention!r}): log-ratios of the content are "
            "the same with the sink kept and dropped; leave convention out"
        )
    if metric in LOG_RATIO:
        return metric, False
    return f"{metric.removesuffix('_rms')}_sq", True


def _refuse_beyond(n_heads: int, max_bytes: int) -> None:
    """Refuse before allocation: the matrix, and sums and counts being merged beside it."""
    matrix = n_heads * n_heads * 8
    needed = matrix + 6 * n_pairs(n_heads) * 8
    if needed > max_bytes:
        raise MemoryBudgetError(
            f"distances between {n_heads:,} heads need {needed / 2**30:.1f} GiB "
            f"({matrix / 2**30:.1f} GiB for the matrix itself), more than the "
            f"{max_bytes / 2**30:.1f} GiB allowed: compare fewer heads at a time, or pass "
            f"max_bytes={needed}"
        )
