"""Damage by document, score and cell of a pruning study: what its comparisons are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sinkwise.accumulate.intervals import Interval
from sinkwise.errors import RowError
from sinkwise.studies.document_damage import Documents
from sinkwise.studies.prune_intervals import finite_damage_sums, jackknife, pooled_and_without

__all__ = ["PLACES", "Cell", "Damages"]

PLACES = {"model": "anywhere", "layer": "of each layer"}
"""Scopes in words."""


class Cell(NamedTuple):
    """Where scores are compared: how heads go, from where, and how many.

    Attributes
    ----------
    operation
        ``"zero"``, ``"mean"`` or ``"remove"``.
    scope
        ``"model"`` or ``"layer"``.
    sparsity
        Share of the heads.
    """

    operation: str
    scope: str
    sparsity: float

    @property
    def words(self) -> str:
        """The cell in words.

        Examples
        --------
        >>> Cell("zero", "model", 0.1).words
        '10 % anywhere, zero'
        """
        place = PLACES.get(self.scope, self.scope)
        return f"{100 * self.sparsity:.4g} % {place}, {self.operation}"


@dataclass(frozen=True)
class Damages:
    """Damage of every score in every cell.

    Attributes
    ----------
    scores
        Their names; a random score stands for the mean over its seeds.
    cells
        In the order of the points.
    sums
        ``(documents, scores, cells)``: damage summed over a document's tokens; NaN where a score
        has no point, infinite where the model was ruined.
    tokens
        ``(documents,)``.
    level
        Two-sided level of all intervals.
    """

    scores: tuple[str, ...]
    cells: tuple[Cell, ...]
    sums: np.ndarray
    tokens: np.ndarray
    level: float = 0.95

    @classmethod
    def of_points(
        cls,
        points: Iterable[Mapping[str, Any]],
        dense: Documents,
        metric: str,
        *,
        level: float = 0.95,
    ) -> Damages:
        """Return the damages of points as ``prune.json`` holds them.

        Raises
        ------
        RowError
            If a point was measured on other documents than the dense model.
        """
        found: dict[tuple[str, Cell], list[np.ndarray]] = {}
        tokens = np.array([document["tokens"] for document in dense], dtype=np.float64)
        for point in points:
            cell = Cell(point["operation"], point["scope"], float(point["sparsity"]))
            sums, _ = finite_damage_sums(point["documents"], dense, metric)
            found.setdefault((point["score"], cell), []).append(sums)
        scores = tuple(dict.fromkeys(score for score, _ in found))
        cells = tuple(dict.fromkeys(cell for _, cell in found))
        kept = tokens > 0  # a document of one token predicts nothing
        array = np.full((int(kept.sum()), len(scores), len(cells)), np.nan)
        for (score, cell), drawn in found.items():
            mean = np.mean(drawn, axis=0)
            array[:, scores.index(score), cells.index(cell)] = mean[kept]
        return cls(scores, cells, array, tokens[kept], level)

    @cached_property
    def value(self) -> np.ndarray:
        """``(scores, cells)``: damage over all tokens; NaN where there is no point."""
        return self._pooled[0]

    @cached_property
    def without(self) -> np.ndarray:
        """``(documents, scores, cells)``: damage with each document left out."""
        return self._pooled[1]

    @cached_property
    def interval(self) -> Interval:
        """Damage with its interval, ``(scores, cells)`` each."""
        return jackknife(self.value, self.without, self.level)

    def place(self, score: str) -> int:
        """Return the number of a score.

        Raises
        ------
        RowError
            If it has no point.
        """
        if score not in self.scores:
            raise RowError(
                f"no point is of the score {score!r}; there are {', '.join(self.scores) or 'none'}"
            )
        return self.scores.index(score)

    def difference(self, first: int, second: int) -> Interval:
        """Return damage of one score minus that of another, ``(cells,)``, paired by document.

        Where one of the two is ruined the difference is infinite, where both are it is NaN.
        """
        value = _minus(self.value[first], self.value[second])
        return jackknife(value, _minus(self.without[:, first], self.without[:, second]), self.level)

    def mean_log(self, score: int, cells: Sequence[int]) -> tuple[float, np.ndarray]:
        """Return the mean log damage over cells, and with each document left out.

        NaN where a damage is not positive.
        """
        value = float(_log(self.value[score, cells]).mean())
        return value, _log(self.without[:, score][:, cells]).mean(-1)

    @cached_property
    def _pooled(self) -> tuple[np.ndarray, np.ndarray]:
        return pooled_and_without(self.sums, self.tokens)


def _log(damage: np.ndarray) -> np.ndarray:
    """Logarithm where there is one, NaN elsewhere; infinite for a ruined model."""
    return np.log(np.where(damage > 0, damage, np.nan))


def _minus(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    both = np.isinf(first) & np.isinf(second)
    return np.where(both, np.nan, np.where(both, 0.0, first) - np.where(both, 0.0, second))
