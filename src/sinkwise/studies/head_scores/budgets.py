"""How many heads go: in all, and at most from each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId

__all__ = ["Budget", "Scope", "budget", "refuse_no_removal"]

Scope = Literal["model", "layer"]


@dataclass(frozen=True)
class Budget:
    """How many heads to remove.

    Attributes
    ----------
    total
        In all.
    caps
        At most so many from each layer; never all of its heads.
    within_layer
        Whether every layer gives a fixed number, so that only heads of one layer are compared.
    """

    total: int
    caps: Mapping[int, int]
    within_layer: bool = False


def budget(heads: Sequence[HeadId], sparsity: float, scope: Scope) -> Budget:
    """Return how many heads a share of them is.

    Parameters
    ----------
    heads
        All heads of the model; layers may be uneven.
    sparsity
        Share of the heads to remove, at least 0 and below 1.
    scope
        ``"model"``: ``round(sparsity * H)`` heads, from anywhere; ``"layer"``:
        ``round(sparsity * n)`` of the n heads of each layer, at most n - 1.  A half is rounded
        to the even number, as Python's :func:`round` does.

    Raises
    ------
    RowError
        If the sparsity is no such share, the scope is unknown, or so many heads can't go without
        emptying a layer.

    Examples
    --------
    >>> heads = [HeadId(layer, index) for layer in range(2) for index in range(9)]
    >>> budget(heads, 0.3, "model").total, dict(budget(heads, 0.2, "layer").caps)
    (5, {0: 2, 1: 2})
    """
    if not np.isfinite(sparsity) or not 0 <= sparsity < 1:
        raise RowError(
            f"sparsity is {sparsity}, expected a share of the heads, at least 0 and below 1 "
            "(0.1 for 10 %)"
        )
    if scope not in get_args(Scope):
        raise RowError(f"scope is {scope!r}, expected one of {', '.join(get_args(Scope))}")
    sizes = Counter(head.layer for head in heads)
    if scope == "layer":
        caps = {layer: min(round(sparsity * n), n - 1) for layer, n in sizes.items()}
        return Budget(sum(caps.values()), caps, within_layer=True)
    caps = {layer: n - 1 for layer, n in sizes.items()}
    total, most = round(sparsity * len(heads)), sum(caps.values())
    if total > most == 0:
        raise RowError(_one_head_each(len(sizes)))
    if total > most:
        raise RowError(
            f"sparsity {sparsity} of {len(heads)} heads is {total}, but at most {most} can go "
            f"while each of {len(sizes)} layers keeps one head: ask for "
            f"{np.floor(100 * most / len(heads)) / 100:.2f} or less"
        )
    return Budget(total, caps)


def refuse_no_removal(heads: Sequence[HeadId], sparsity: float, scope: Scope) -> None:
    """Refuse a share by which no head goes, or which can't be met.

    Raises
    ------
    RowError
        As :func:`budget`, and where the share comes to no head at all.

    Examples
    --------
    >>> refuse_no_removal([HeadId(0, 0), HeadId(0, 1)], 0.5, "layer")
    """
    if budget(heads, sparsity, scope).total:
        return
    layers = {head.layer for head in heads}
    if len(heads) == len(layers):
        raise RowError(_one_head_each(len(layers)))
    raise RowError(
        f"sparsity={sparsity:g} with scope={scope!r} removes no head at all of {len(heads)}: ask "
        "for more"
    )


def _one_head_each(layers: int) -> str:
    where = "its one layer has" if layers == 1 else f"each of its {layers} layers has"
    return (
        f"this model can't lose a head: {where} one head, and no layer is ever emptied, whatever "
        "the sparsity"
    )
