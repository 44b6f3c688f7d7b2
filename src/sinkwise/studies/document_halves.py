"""Intervals for what is no smooth mean: verdicts and clusterings, from halves of the documents.

Rates of verdicts are biased by noise, so the jackknife and the bootstrap fail on them.  Many
random halves of the documents show both the bias (a half is noisier than the whole by as much as
the whole is noisier than endlessly many documents) and the spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from sinkwise.accumulate.documents import DocumentSums
from sinkwise.distances.all_pairs import COUNT_OF
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_matrix import as_head_matrix, n_pairs, square

__all__ = [
    "TOO_FEW",
    "DocumentPairs",
    "HalvesInterval",
    "checked_pairs",
    "document_pairs",
    "halves_interval",
    "random_halves",
]

TOO_FEW = "too few documents"
"""The note where no interval is given."""

_FEWEST_DOCUMENTS = 4
_ROUNDING = 1e-12  # of rates and indices near 1, averaged over halves


@dataclass(frozen=True)
class DocumentPairs:
    """One metric between every two heads, kept apart by document.

    Attributes
    ----------
    sums
        ``(documents, pairs)`` float64 sums over each document's rows, pairs in SciPy's condensed
        order.
    counts
        ``(documents, pairs)``, or broadcastable to it: how many rows each sum holds.
    """

    sums: np.ndarray
    counts: np.ndarray

    def __post_init__(self) -> None:
        sums = np.asarray(self.sums, dtype=np.float64)
        if sums.ndim != 2 or sums.shape[0] == 0:
            raise RowError(
                f"sums have shape {sums.shape}, expected (documents, pairs) with a document or more"
            )
        counts = np.asarray(self.counts, dtype=np.float64)
        if counts.ndim == 1:
            counts = counts[:, None]
        try:
            counts = np.broadcast_to(counts, sums.shape)
        except ValueError:
            raise RowError(f"counts {counts.shape} do not fit sums {sums.shape}") from None
        if counts.size and counts.strides[1] and (counts == counts[:, :1]).all():
            counts = np.broadcast_to(counts[:, :1].copy(), sums.shape)  # no memory a pair
        object.__setattr__(self, "sums", sums)
        object.__setattr__(self, "counts", counts)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.sums)

    def distances(self) -> np.ndarray:
        """Return the condensed mean distances over all rows; NaN for a pair without rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.sums.sum(0) / self._counts.sum(0))

    def of(self, chosen: np.ndarray) -> np.ndarray:
        """Return the condensed mean distances over chosen documents, bool ``(..., documents)``."""
        chosen = np.asarray(chosen, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((chosen @ self.sums) / (chosen @ self._counts))

    def at(self, pairs: np.ndarray) -> DocumentPairs:
        """Return the sums and counts of some pairs, by their places in condensed order."""
        counts = self._counts
        return DocumentPairs(self.sums[:, pairs], counts if self._shared else counts[:, pairs])

    def signs(self, first: np.ndarray, second: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return which of two pairs is farther over chosen documents.

        Parameters
        ----------
        first, second
            ``(verdicts,)`` places of pairs in condensed order.
        chosen
            bool ``(subsets, documents)``.

        Returns
        -------
        numpy.ndarray
            ``(subsets, verdicts)``: 1 where the first of the two is farther, -1 where the second
            is, 0 for a tie, NaN where one has no rows.
        """
        if self._shared:  # the sums alone decide
            with_rows = chosen.astype(np.float64) @ self._counts > 0
            gap = chosen.astype(np.float64) @ (self.sums[:, first] - self.sums[:, second])
            return np.where(with_rows, np.sign(gap), np.nan)
        return np.asarray(np.sign(self.at(first).of(chosen) - self.at(second).of(chosen)))

    @property
    def _shared(self) -> bool:
        """Whether all pairs have the same counts, as they do unless heads see different keys."""
        return self.counts.strides[1] == 0

    @property
    def _counts(self) -> np.ndarray:
        """The counts, in one column where all pairs share them."""
        return self.counts[:, :1] if self._shared else self.counts


def document_pairs(
    documents: Mapping[int, DocumentSums], names: Sequence[str]
) -> dict[str, DocumentPairs]:
    """Gather the named pair sums of every document, ready for the studies of this package."""
    if not documents:
        raise RowError("no documents: take document_sums of at least one block of rows first")
    pairs = [d.pairs for d in documents.values()]
    return {
        name: DocumentPairs(
            np.stack([p.sums[name] for p in pairs]),
            np.stack([p.counts[COUNT_OF[name]] for p in pairs]),
        )
        for name in names
    }


def checked_pairs(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    names: Sequence[str] | None,
    heads: Sequence[HeadId] | None,
    *,
    default: Sequence[str],
) -> tuple[dict[str, DocumentPairs], dict[str, np.ndarray]]:
    """Return the chosen metrics and their ``(heads, heads)`` matrices, or say what is wrong."""
    if names is None:
        names = [name for name in default if name in documents]
    missing = [name for name in names if name not in documents]
    if missing:
        raise RowError(
            f"no distances named {missing[0]!r}; there are {', '.join(sorted(documents))}"
        )
    if len(names) < 2:
        raise RowError(f"names are {list(names)}, expected two or more to compare")
    chosen = {name: documents[name] for name in names}
    numbers = {name: d.n_documents for name, d in chosen.items()}
    if len(set(numbers.values())) > 1:
        raise RowError(f"numbers of documents differ: {numbers}; sum all metrics on the same rows")
    for name, d in chosen.items():
        if d.sums.shape[1] != n_pairs(n_heads):
            raise RowError(
                f"{name} has {d.sums.shape[1]} pairs, expected {n_pairs(n_heads)} of {n_heads} "
                "heads: n_heads is the number of heads behind the sums"
            )
    matrices = {
        name: as_head_matrix(square(d.distances(), n_heads), name=name, heads=heads, at_least=3)
        for name, d in chosen.items()
    }
    return chosen, matrices


def random_halves(n_documents: int, halves: int, seed: int) -> np.ndarray:
    """Return random halves of the documents, bool ``(halves, documents)``, half of them each.

    An odd number is rounded down: the complement then holds one document more.
    """
    rng = np.random.default_rng(seed)
    order = rng.permuted(np.tile(np.arange(n_documents), (halves, 1)), axis=1)
    return order < n_documents // 2


@dataclass(frozen=True)
class HalvesInterval:
    """An interval whose target is the value at endlessly many documents.

    Attributes
    ----------
    low, high
        Its ends, NaN where no interval is given.
    bias
        How much noise over documents is estimated to add to the value.
    half_width
        Half the interval's width before it is cut to the possible values.
    note
        Empty, or why there is no interval.
    """

    low: float
    high: float
    bias: float
    half_width: float
    note: str


def halves_interval(
    value: float,
    half_values: np.ndarray,
    n_documents: int,
    *,
    level: float = 0.95,
    bounds: tuple[float, float] = (0.0, 1.0),
    baseline: float | None = None,
    drowned: bool = False,
) -> HalvesInterval:
    """Return the interval of a value from its values on random halves of the documents.

    The bias is the mean over the halves minus `baseline` (the value itself, or the value as the
    halves measure it, where they use a sample); the interval is the value less the bias,
    ± t · sqrt(2) · the standard deviation over the halves, t with documents - 1 degrees of
    freedom.  Where the bias exceeds half of the half-width, with fewer than 4 documents, or where
    the caller says that noise drowns the value, no interval is given: the noise then reaches the
    differences between heads, and what would be printed covers far less than its level.

    Parameters
    ----------
    value
        The value on all documents.
    half_values
        ``(halves,)`` the value on each half.
    n_documents
        Number of documents.
    level
        Two-sided level.
    bounds
        The smallest and largest possible value.
    baseline
        What the halves' mean is compared with; `value` by default.
    drowned
        Give no interval.
    """
    nan = float("nan")
    if n_documents < _FEWEST_DOCUMENTS or not np.isfinite(half_values).all():
        return HalvesInterval(nan, nan, nan, nan, TOO_FEW)
    bias = float(np.mean(half_values)) - (value if baseline is None else baseline)
    t = float(stats.t.ppf((1 + level) / 2, n_documents - 1))
    half_width = t * np.sqrt(2) * float(np.std(half_values, ddof=1))
    if drowned or abs(bias) > half_width / 2 + _ROUNDING:
        return HalvesInterval(nan, nan, bias, half_width, TOO_FEW)
    low, high = np.clip([value - bias - half_width, value - bias + half_width], *bounds)
    return HalvesInterval(float(low), float(high), bias, half_width, "")
