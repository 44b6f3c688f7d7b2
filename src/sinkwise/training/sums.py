"""Sums over the rows of a probe, by head: what is added up across processes, and their means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sinkwise.channels.entropy import EntropyParts, change_of_parts, split_of_parts

__all__ = ["CHANGES", "LEVELS", "HeadSums", "filled", "probe_sums"]

LEVELS = (
    "sink_mass",
    "content_entropy",
    "content_evenness",
    "entropy",
    "entropy_sink",
    "entropy_content",
    "entropy_within_sink",
)
"""Values of a row: ``content_evenness`` is H(π)/log m with m content keys; the last three add up
to ``entropy``."""

CHANGES = ("total", "sink", "content", "within_sink", "sink_mass", "content_entropy")
"""Changes of a row: the channels add up to ``total``, the change of its entropy."""


@dataclass(frozen=True)
class HeadSums:
    """Float64 sums ``(heads,)`` by name; a mean is a sum over the count its name goes with.

    Counts are sums like any other: ``rows``; ``rows_since_last`` and ``rows_since_first`` for
    the changes; ``nan_rows``, which no other sum holds.
    """

    sums: Mapping[str, np.ndarray]

    def __add__(self, other: HeadSums) -> HeadSums:
        return HeadSums({name: self.sums[name] + other.sums[name] for name in self.sums})

    @property
    def vector(self) -> np.ndarray:
        """All sums end to end, ``(names * heads,)``."""
        return np.concatenate(list(self.sums.values()))

    def with_vector(self, vector: np.ndarray) -> HeadSums:
        """Return these sums with other values."""
        return HeadSums(dict(zip(self.sums, np.split(vector, len(self.sums)), strict=True)))

    def by_head(self, name: str) -> np.ndarray:
        """Mean of each head, ``(heads,)``; NaN where it has no row."""
        sums, rows = self.sums[name], self.sums[_count_of(name)]
        return np.divide(sums, rows, out=np.full(sums.shape, np.nan), where=rows > 0)

    def mean(self, name: str, heads: np.ndarray | slice = slice(None)) -> float:
        """Mean over the rows of some heads, each row counting once; NaN without a row."""
        rows = float(self.sums[_count_of(name)][heads].sum())
        return float(self.sums[name][heads].sum()) / rows if rows else float("nan")


def probe_sums(
    now: EntropyParts, last: EntropyParts, first: EntropyParts, keys: np.ndarray
) -> HeadSums:
    """Sum values and changes over rows.

    Parameters
    ----------
    now, last, first
        float64 ``(heads, rows)``: the rows now and at two earlier records.
    keys
        int ``(heads, rows)``: content keys of each row; 0 for one that can't be used.

    Notes
    -----
    A row whose numbers are NaN now is counted in ``nan_rows`` and is in no other sum.
    """
    usable = keys > 0
    sound = usable & np.isfinite(now.content_entropy)
    split = split_of_parts(now)
    with np.errstate(divide="ignore", invalid="ignore"):
        evenness = now.content_entropy / np.log(keys)
    values = {
        "sink_mass": now.sink_mass,
        "content_entropy": now.content_entropy,
        "content_evenness": evenness,
        "entropy": split.total,
        "entropy_sink": split.sink,
        "entropy_content": split.content,
        "entropy_within_sink": split.within_sink,
    }
    sums = {name: _summed(value, sound) for name, value in values.items()}
    sums["rows"] = _summed(np.ones(keys.shape), sound)
    sums["nan_rows"] = _summed(np.ones(keys.shape), usable & ~sound)
    for since, before in (("since_last", last), ("since_first", first)):
        both = sound & np.isfinite(before.content_entropy)
        changes = {
            **change_of_parts(before, now)._asdict(),
            "sink_mass": now.sink_mass - before.sink_mass,
            "content_entropy": now.content_entropy - before.content_entropy,
            "content_entropy_before": before.content_entropy,
        }
        for name, value in changes.items():
            sums[f"{since}/{name}"] = _summed(value, both)
        sums[f"rows_{since}"] = _summed(np.ones(keys.shape), both)
    return HeadSums(sums)


def filled(parts: EntropyParts, other: EntropyParts) -> EntropyParts:
    """Return `parts`, with the rows of `other` where a row of `parts` is NaN."""
    broken = np.isnan(parts.content_entropy)
    return EntropyParts(*(np.where(broken, b, a) for a, b in zip(parts, other, strict=True)))


def _count_of(name: str) -> str:
    since, _, rest = name.partition("/")
    return f"rows_{since}" if rest else "rows"


def _summed(value: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.where(rows, value, 0.0).sum(-1)
