"""Attention rows: the one place where absent keys, rounding zeros and the sink set are decided.

A :class:`RowBlock` holds the rows of one document, every head on the same queries, as
log-weights with their support.  Whatever produced them (arrays, a model, a run on disk), the
rest of the library sees only blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sinkwise.errors import RowError

__all__ = ["HeadId", "KeyLabels", "RowBlock", "RowSource", "make_block"]


@dataclass(frozen=True, order=True)
class HeadId:
    """A head's place in its model: layer number and index within the layer."""

    layer: int
    index: int

    @property
    def label(self) -> str:
        """Short name, for example ``"L3H5"``."""
        return f"L{self.layer}H{self.index}"


@dataclass(frozen=True)
class KeyLabels:
    """What is known of a block's key columns beside their weights.

    Attributes
    ----------
    positions
        int ``(keys,)``: place in the document, real tokens counted from 0; -1 for a virtual sink.
    tokens
        Text of each key, ``(keys,)``; None where there is no text.
    bos
        bool ``(keys,)``: the tokenizer's own beginning token; None where there is no tokenizer.
    value_norms
        float32 ``(heads, keys)``: Euclidean norm of the value vector behind each key, 0 for a
        virtual sink; None for rows that came without a model.
    """

    positions: np.ndarray
    tokens: np.ndarray | None = None
    bos: np.ndarray | None = None
    value_norms: np.ndarray | None = None


@dataclass(frozen=True)
class RowBlock:
    """Rows of one document: every head on the same queries, one composition per row.

    Attributes
    ----------
    document
        Number of the document the rows belong to.
    log_weights
        ``(heads, rows, keys)`` float32 or float64, unnormalised (logits, or log-probabilities).
        Finite inside the support, save ``-inf`` for a rounding zero under ``zeros="exclude"``;
        what stands outside the support is never read.
    support
        The keys each query may see: bool ``(rows, keys)``, or ``(heads, rows, keys)`` where
        heads see different keys.
    sink
        bool ``(rows, keys)``.  A virtual sink is an appended last column marked here.
    queries
        ``(rows,)`` query positions in the document, real tokens counted from 0.
    excluded
        Query rows of this block left out of every statistic, by reason.
    virtual
        Whether the last column is a virtual sink, one that is no token.
    keys
        Positions, tokens and value norms of the key columns; columns count from 0 without it.
    """

    document: int
    log_weights: np.ndarray
    support: np.ndarray
    sink: np.ndarray
    queries: np.ndarray
    excluded: Mapping[str, int] = field(default_factory=dict)
    virtual: bool = False
    keys: KeyLabels | None = None

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return self.log_weights.shape[0]

    @property
    def n_rows(self) -> int:
        """Number of query rows."""
        return self.log_weights.shape[1]

    @property
    def n_keys(self) -> int:
        """Number of key columns, a virtual sink's among them."""
        return self.log_weights.shape[2]

    @property
    def key_positions(self) -> np.ndarray:
        """int ``(keys,)`` positions of the key columns in the document; -1 for a virtual sink."""
        if self.keys is not None:
            return self.keys.positions
        positions = np.arange(self.n_keys)
        if self.virtual:
            positions[-1] = -1
        return positions

    @property
    def valid(self) -> np.ndarray:
        """bool ``(heads, rows)``: the sink is visible and the content has two parts or more."""
        why = _invalid(self.support, self.sink)
        valid = ~(why["no_visible_key"] | why["sink_not_visible"] | why["few_content_parts"])
        return np.broadcast_to(valid, (self.n_heads, self.n_rows))


class RowSource(Protocol):
    """What an audit streams from: arrays and models alike."""

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """The heads in layer-major order."""

    @property
    def n_documents(self) -> int:
        """How many documents :meth:`blocks` yields when nothing is skipped."""

    def blocks(self, skip: frozenset[int] = frozenset()) -> Iterator[RowBlock]:
        """Yield the blocks in the order of their documents, leaving out those in `skip`."""

    def card(self) -> dict[str, Any]:
        """Return what of the convention card is known to the source."""


def make_block(
    *,
    document: int,
    log_weights: np.ndarray,
    support: np.ndarray,
    sink: np.ndarray,
    queries: np.ndarray,
    heads: Sequence[HeadId],
    excluded: Mapping[str, int] | None = None,
    virtual: bool = False,
    keys: KeyLabels | None = None,
) -> RowBlock:
    """Return the block of the rows that every statistic can use, counting those it leaves out.

    A query row goes when no head can use it: no key visible (``no_visible_key``), the sink not
    among the visible keys (``sink_not_visible``), or fewer than two content parts
    (``few_content_parts``).  A row that only some heads can use stays, is counted under
    ``"<reason>_in_some_heads"``, and :attr:`RowBlock.valid` says for which heads it counts.

    Parameters
    ----------
    log_weights, support, sink, queries
        As in :class:`RowBlock`; `sink` may also be ``(keys,)``.
    heads
        Names for messages, one per head.
    excluded
        Rows already left out by the caller, by reason.
    virtual
        Whether the last column is a virtual sink.
    keys
        Labels of the key columns.

    Raises
    ------
    RowError
        If a log-weight inside the support is NaN or ``+inf``: the message names layer, head
        and query.
    """
    n_heads, n_rows, n_keys = log_weights.shape
    if len(heads) != n_heads:
        raise RowError(f"{n_heads} heads of rows arrived with {len(heads)} head names")
    sink = np.broadcast_to(np.asarray(sink, dtype=bool), (n_rows, n_keys))
    why = _invalid(support, sink)
    counts = dict(excluded or {})
    taken = np.zeros(why["no_visible_key"].shape, dtype=bool)
    for reason, bad in why.items():
        bad = bad & ~taken
        taken |= bad
        whole, some = (bad.all(0), bad.any(0)) if bad.ndim == 2 else (bad, bad)
        _count(counts, reason, int(whole.sum()))
        _count(counts, f"{reason}_in_some_heads", int((some & ~whole).sum()))
    keep = ~(taken.all(0) if taken.ndim == 2 else taken)
    if taken.ndim == 2 and (mixed := int((~keep).sum())):
        listed = sum(counts.get(r, 0) for r in why) - sum((excluded or {}).get(r, 0) for r in why)
        _count(counts, "differs_by_head", mixed - listed)
    if not keep.all():
        log_weights = log_weights[:, keep]
        support, sink, queries = support[..., keep, :], sink[keep], queries[keep]
    block = RowBlock(
        document, log_weights, support, sink, np.asarray(queries), counts, virtual, keys
    )
    _refuse_non_finite(block, heads)
    return block


def _count(counts: dict[str, int], reason: str, number: int) -> None:
    if number:
        counts[reason] = counts.get(reason, 0) + number


def _invalid(support: np.ndarray, sink: np.ndarray) -> dict[str, np.ndarray]:
    """Why a row can't be used, by reason: bool ``(rows,)`` or ``(heads, rows)``."""
    return {
        "no_visible_key": ~support.any(-1),
        "sink_not_visible": ~(support & sink).any(-1),
        "few_content_parts": (support & ~sink).sum(-1) < 2,
    }


def _refuse_non_finite(block: RowBlock, heads: Sequence[HeadId]) -> None:
    x = block.log_weights
    # one pass without temporaries first: a NaN or +inf anywhere makes the maximum NaN or +inf
    if x.size == 0 or np.isfinite(x.max()):
        return
    bad = (np.isnan(x) | np.isposinf(x)) & block.support
    if not bad.any():
        return
    head, row, key = (int(i) for i in np.argwhere(bad)[0])
    raise RowError(
        f"layer {heads[head].layer}, head {heads[head].index}, query {int(block.queries[row])} of "
        f"document {block.document}: the log-weight of key {key} is {x[head, row, key]}, expected "
        "a finite number. A NaN or +inf logit usually means that float16 overflowed: load the "
        'model with dtype="float32" or "bfloat16" and capture again.'
    )
