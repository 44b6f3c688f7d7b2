"""Which heads a score removes, and what the set does together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sinkwise.accumulate.head_outputs import HeadOutputs
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_scores.budgets import Scope, budget
from sinkwise.studies.head_scores.evidence import Evidence
from sinkwise.studies.head_scores.score import Score

__all__ = ["SetEnergy", "removed_heads", "set_energy"]


def removed_heads(
    score: Score, evidence: Evidence, sparsity: float, scope: Scope, seed: int | None = None
) -> tuple[HeadId, ...]:
    """Return the heads that a score removes, in the order they go.

    Parameters
    ----------
    score
        From :func:`~sinkwise.studies.head_scores.score_named`.
    evidence
        What it reads.
    sparsity
        Share of the heads to remove (:func:`~sinkwise.studies.head_scores.budget`).
    scope
        ``"model"``: from anywhere; ``"layer"``: the same share of each layer.
    seed
        For a random score; the others take none.

    Raises
    ------
    RowError
        If what the score needs was not measured or has no value for enough heads, or a random
        score comes without a seed.

    Examples
    --------
    >>> from sinkwise.studies.head_scores import score_named
    >>> heads = tuple(HeadId(layer, index) for layer in range(2) for index in range(2))
    >>> outputs = HeadOutputs(heads, np.eye(4), np.eye(4), np.array([4.0, 1.0, 3.0, 2.0]),
    ...                       np.ones(4), np.zeros((4, 1)))
    >>> found = removed_heads(score_named("relative_output_norm"), Evidence(heads, outputs), 0.5,
    ...                       "model")
    >>> [head.label for head in found]
    ['L0H1', 'L1H1']
    """
    if score.kind == "random" and seed is None:
        raise RowError("a random score needs a seed: pass seed=0, and several of them for a band")
    chosen = score.choose(
        evidence, budget(evidence.heads, sparsity, scope), np.random.default_rng(seed or 0)
    )
    return tuple(evidence.heads[number] for number in chosen)


class SetEnergy(NamedTuple):
    """Output energy of a set of heads.

    Attributes
    ----------
    ratio
        Energy of their joint write over the sum of their own: above 1 the losses add up, below
        1 they cancel.  NaN for a set that writes nothing.
    constant_share
        Share of the joint energy that is a constant, the same at every token.
    """

    ratio: float
    constant_share: float


def set_energy(outputs: HeadOutputs, removed: Iterable[HeadId | tuple[int, int]]) -> SetEnergy:
    """Return ``m'Gm / sum of G_jj`` over a set, and ``m'Cm / m'Gm``.

    Parameters
    ----------
    outputs
        With G, the Gram matrix of the writes within each layer, and C, its constant part.
    removed
        The set's heads, or their ``(layer, index)``.

    Raises
    ------
    RowError
        If a head is not among those of `outputs`.

    Examples
    --------
    >>> heads = (HeadId(0, 0), HeadId(0, 1), HeadId(1, 0))
    >>> gram = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> outputs = HeadOutputs(heads, gram, gram / 3, np.ones(3), np.ones(3), np.zeros((3, 1)))
    >>> energy = set_energy(outputs, [(0, 0), (0, 1)])
    >>> energy.ratio, round(energy.constant_share, 6)
    (1.5, 0.333333)
    """
    numbers = {head: number for number, head in enumerate(outputs.heads)}
    chosen: list[int] = []
    for item in removed:
        head = item if isinstance(item, HeadId) else HeadId(*item)
        if head not in numbers:
            raise RowError(
                f"{head.label} is none of the {len(numbers)} heads whose outputs were measured"
            )
        chosen.append(numbers[head])
    own = np.ix_(chosen, chosen)
    joint = float(outputs.gram[own].sum())
    summed = float(np.trace(outputs.gram[own]))
    constant = float(outputs.constant_gram[own].sum())
    return SetEnergy(
        joint / summed if summed > 0 else float("nan"),
        constant / joint if joint > 0 else float("nan"),
    )
