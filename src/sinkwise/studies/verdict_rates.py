"""Reversal rates between measures, with what halves of the documents say of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.document_halves import (
    TOO_FEW,
    DocumentPairs,
    HalvesInterval,
    halves_interval,
    random_halves,
)
from sinkwise.studies.half_verdicts import flips_within, half_triples, rates_on
from sinkwise.studies.reversal import anchor_ranks, rate_from_ranks

__all__ = ["VerdictRates"]

_FLOOR_HALVES = 20


class VerdictRates:
    """Exact rates between measures, and what halves of the documents say of them.

    Parameters
    ----------
    chosen, matrices
        The measures, as :func:`~sinkwise.studies.document_halves.checked_pairs` returns them.
    halves
        How many random halves of the documents to judge.
    seed
        Of the halves and of the triples they are judged on.
    level
        Two-sided level of the intervals.
    """

    def __init__(
        self,
        chosen: Mapping[str, DocumentPairs],
        matrices: Mapping[str, np.ndarray],
        *,
        halves: int,
        seed: int,
        level: float,
    ) -> None:
        self._place = {name: i for i, name in enumerate(chosen)}
        ranks = on_all_cores(anchor_ranks, matrices.values())
        self._ranks = dict(zip(matrices, ranks, strict=True))
        self._exact: dict[tuple[str, str], float] = {}
        self._level = level
        n_heads = len(next(iter(matrices.values())))
        self.n_documents = n = next(iter(chosen.values())).n_documents
        triples = half_triples(n_heads, seed + 1)  # other draws than the published protocol's
        self._baseline = rates_on(chosen, n_heads, np.ones((1, n), dtype=bool), triples)[0]
        self._on_halves = np.full((2, len(chosen), len(chosen)), np.nan)
        self._flips = np.full(len(chosen), np.nan)
        if n > 1:
            parted = random_halves(n, halves, seed)
            self._on_halves = rates_on(chosen, n_heads, parted, triples)
            self._flips = flips_within(chosen, n_heads, parted[:_FLOOR_HALVES], triples)

    def exact(self, name: str, other: str) -> float:
        """Return the rate over all triples."""
        key = (name, other)
        if key not in self._exact:
            self._exact[key] = rate_from_ranks(self._ranks[name], self._ranks[other])
        return self._exact[key]

    def exact_of(self, pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Return the rates of many pairs of measures, on all cores."""
        pairs = list(pairs)
        return dict(zip(pairs, on_all_cores(lambda pair: self.exact(*pair), pairs), strict=True))

    def floor(self, name: str, other: str) -> float:
        """Return the share of verdicts that disjoint halves flip within one of the two measures.

        The mean of both; a rate below it is drowned in noise.  NaN for a single document.
        """
        return float(self._flips[self._place[name]] + self._flips[self._place[other]]) / 2

    def interval(self, name: str, other: str) -> HalvesInterval:
        """Return the interval of a rate."""
        i, j = self._place[name], self._place[other]
        rate = self.exact(name, other)
        return halves_interval(
            rate,
            self._on_halves[:, i, j],
            self.n_documents,
            level=self._level,
            baseline=float(self._baseline[i, j]),
            drowned=not self.floor(name, other) <= rate,
        )

    def doubt(self, name: str, best: str, runner_up: str) -> str:
        """Return why `best` may not be the nearest of all, or nothing."""
        i, b, r = (self._place[n] for n in (name, best, runner_up))
        found = halves_interval(
            self.exact(name, runner_up) - self.exact(name, best),
            self._on_halves[:, i, r] - self._on_halves[:, i, b],
            self.n_documents,
            level=self._level,
            bounds=(-1.0, 1.0),
            baseline=float(self._baseline[i, r] - self._baseline[i, b]),
        )
        if found.low > 0:
            return ""
        if found.note == TOO_FEW and not np.isfinite(found.half_width):
            return f"{TOO_FEW} to tell it from {runner_up}"
        return f"{runner_up} is within noise"
