"""How often two distance matrices disagree about which of two heads is nearer to a third."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_matrix import as_two_head_matrices

__all__ = [
    "anchor_ranks",
    "rate_from_ranks",
    "reversal_rate",
    "sample_triples",
    "sampled_reversal_rate",
]

_TILE_ELEMENTS = 1 << 20  # anchors are ranked and counted this many distances at a time
_RUN = 16  # elements in which looking at all pairs is quicker than merging


def reversal_rate(
    d1: np.ndarray, d2: np.ndarray, *, heads: Sequence[HeadId] | None = None
) -> float:
    """Return the exact reversal rate between two distance matrices, over all triples.

    For an anchor and two other heads, each matrix says which of the two is nearer.  Opposite
    verdicts count 1, a tie in one matrix alone counts 1/2, a tie in both counts 0; the rate is
    the mean over all triples, 0 for a matrix against itself.  Ties are exact float64 equality.

    Parameters
    ----------
    d1, d2
        ``(heads, heads)`` symmetric distances, or condensed ``(pairs,)``.  The units don't
        matter, only the order of the distances from each head.
    heads
        Names for messages.

    Returns
    -------
    float
        In [0, 1]; 1/2 for unrelated matrices.

    Raises
    ------
    RowError
        If a matrix is not square and symmetric with a zero diagonal, holds NaN (the message
        names the heads), or has fewer than 3 heads.

    Notes
    -----
    The mean over anchors a of ``(1 - tau_a) / 2 - T / (2N)``: tau_a is Kendall's tau-a between
    the distances from a, N the pairs of other heads and T those tied in both.  Discordant pairs
    are counted as inversions by merging, all anchors at once, in O(H^2 log H) element steps of
    sorting and O(H^2) memory.

    References
    ----------
    Knight (1966), A computer method for calculating Kendall's tau with ungrouped data.

    Examples
    --------
    >>> import numpy as np
    >>> d1 = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0.0]])
    >>> d2 = np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0.0]])
    >>> round(reversal_rate(d1, d2), 4), reversal_rate(d1, d1)
    (0.3333, 0.0)
    """
    first, second = as_two_head_matrices(d1, d2, heads)
    return rate_from_ranks(anchor_ranks(first), anchor_ranks(second))


def sampled_reversal_rate(
    d1: np.ndarray,
    d2: np.ndarray,
    samples: int = 50_000,
    seed: int = 0,
    *,
    heads: Sequence[HeadId] | None = None,
) -> float:
    """Return the reversal rate over randomly drawn triples, as the published protocol does.

    Parameters
    ----------
    d1, d2, heads
        As in :func:`reversal_rate`.
    samples
        Number of triples, drawn with replacement: the anchor evenly, then two different others.
    seed
        Seed of the draw.

    Returns
    -------
    float
        Off the exact rate by a standard error of at most ``0.5 / sqrt(samples)``.

    Examples
    --------
    >>> import numpy as np
    >>> d = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    >>> sampled_reversal_rate(d, d, samples=1000)
    0.0
    """
    if samples < 1:
        raise RowError(f"samples is {samples}, expected at least 1 triple")
    first, second = as_two_head_matrices(d1, d2, heads)
    a, b, c = sample_triples(len(first), samples, seed)
    s1 = np.sign(first[a, b] - first[a, c])
    s2 = np.sign(second[a, b] - second[a, c])
    return float(np.abs(s1 - s2).mean() / 2)


def sample_triples(
    n_heads: int, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw anchors and two different others each, evenly over all triples."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_heads, samples)
    b = (a + rng.integers(1, n_heads, samples)) % n_heads
    c = rng.integers(0, n_heads - 2, samples)
    low, high = np.minimum(a, b), np.maximum(a, b)
    c += c >= low  # step over the two that are taken
    c += c >= high
    return a, b, c


def anchor_ranks(matrix: np.ndarray) -> np.ndarray:
    """Return dense ranks of every head's distances to the others, ties sharing one.

    Parameters
    ----------
    matrix
        ``(heads, heads)`` as :func:`~sinkwise.studies.head_matrix.as_head_matrix` returns it.

    Returns
    -------
    numpy.ndarray
        int32 ``(heads, heads - 1)``, from 0; the anchor itself is left out.
    """
    n = len(matrix)
    others = ~np.eye(n, dtype=bool)
    ranks = np.empty((n, n - 1), dtype=np.int32)
    for rows in _anchor_tiles(n):
        d = matrix[rows][others[rows]].reshape(-1, n - 1)
        order = np.argsort(d, axis=1)
        ordered = np.take_along_axis(d, order, 1)
        dense = np.zeros(d.shape, dtype=np.int32)
        np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=dense[:, 1:])
        np.put_along_axis(ranks[rows], order, dense, 1)
    return ranks


def rate_from_ranks(first: np.ndarray, second: np.ndarray) -> float:
    """Return the exact reversal rate of two matrices from their :func:`anchor_ranks`."""
    n = len(first)
    halves = 0  # twice the summed score, an integer
    for rows in _anchor_tiles(n):
        halves += _doubled_score(first[rows], second[rows])
    return halves / (n * (n - 1) * (n - 2))


def _doubled_score(a: np.ndarray, b: np.ndarray) -> int:
    """2 x (pairs in opposite order) + pairs tied in one alone, summed over the rows."""
    width = a.shape[1]
    joint_type = np.int32 if width * width < 2**31 else np.int64
    # by a, then by b: what stands out of order in b is then exactly the discordant pairs
    joint = np.sort(a.astype(joint_type) * width + b, axis=1)
    tied_a, tied_b = _tied_pairs(a), _tied_pairs(b)
    tied_both = _tied_pairs(_dense(joint)) if tied_a and tied_b else 0
    return 2 * _inversions((joint % width).astype(np.int32)) + tied_a + tied_b - 2 * tied_both


def _dense(ordered: np.ndarray) -> np.ndarray:
    ranks = np.zeros_like(ordered)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=ranks[:, 1:])
    return ranks


def _tied_pairs(ranks: np.ndarray) -> int:
    """Pairs of equal dense ranks within each row, summed over the rows."""
    rows, width = ranks.shape
    if (ranks.max(1) == width - 1).all():  # as many ranks as elements
        return 0
    cells = (ranks + width * np.arange(rows)[:, None]).ravel()
    runs = np.bincount(cells, minlength=rows * width)
    return int((runs * (runs - 1) // 2).sum())


def _inversions(sequence: np.ndarray) -> int:
    """Pairs within each row where a larger value stands before a smaller, summed over the rows.

    Within short runs all pairs are looked at.  Then sorted runs merge: an element of the right run
    ends up behind those of the left one that are not larger, so the places of the right run's
    elements tell how many are larger.
    """
    rows, width = sequence.shape
    size = _RUN << max(0, (-(-width // _RUN) - 1).bit_length())
    values = np.full((rows, size), width, dtype=np.int32)  # the filling is out of order with none
    values[:, :width] = sequence
    runs = values.reshape(-1, _RUN)
    found = _inversions_by_pairs(runs)
    values = np.sort(runs, axis=1)
    half = _RUN
    while half < size:
        # the lowest bit tells the runs apart, and puts the left one first among equals
        merged = values.reshape(-1, 2, half) * 2 + np.array([0, 1], dtype=np.int32)[:, None]
        merged = np.sort(merged.reshape(-1, 2 * half), axis=1)
        place_of_right = int((merged & 1).sum(0, dtype=np.int64) @ np.arange(2 * half))
        # with nothing out of order the right run's places are half, half + 1, ...
        found += len(merged) * (half * half + half * (half - 1) // 2) - place_of_right
        values = merged >> 1
        half *= 2
    return found


def _inversions_by_pairs(runs: np.ndarray) -> int:
    by_place = np.ascontiguousarray(runs.T)
    return sum(
        int(np.count_nonzero(by_place[:-apart] > by_place[apart:]))
        for apart in range(1, len(by_place))
    )


def _anchor_tiles(n_heads: int) -> Iterator[slice]:
    step = max(1, _TILE_ELEMENTS // n_heads)
    for start in range(0, n_heads, step):
        yield slice(start, start + step)
