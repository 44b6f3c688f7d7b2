"""What a collapse study keeps of the rows: four numbers a row at each checkpoint, not the row.

Which rows these are (documents, queries, visible keys, sink) is the same at all checkpoints; it is
kept once, with a digest by which a checkpoint that was measured on other rows is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sinkwise.channels.entropy import EntropyParts, entropy_parts
from sinkwise.rowdata import RowBlock

__all__ = [
    "CollapseStore",
    "MemoryCollapseStore",
    "RowLayout",
    "joined_layout",
    "joined_parts",
    "row_layout",
    "row_parts",
]


@dataclass(frozen=True)
class RowLayout:
    """Which rows of a document are measured, the same at every checkpoint.

    Attributes
    ----------
    document
        Its number.
    queries
        int ``(rows,)``: query positions.
    content_keys
        int ``(heads, rows)``: visible keys outside the sink, the m of ``log m``.
    valid
        bool ``(heads, rows)``: the sink is visible and the content has two parts or more.
    sink
        int ``(keys,)``: key positions of the sink; -1 for a virtual one.
    input_digest
        Of the document as the model is given it; empty for rows that came without a model.
    rows_digest
        Of queries, visible keys and sink.
    excluded
        Query rows left out, by reason.
    """

    document: int
    queries: np.ndarray
    content_keys: np.ndarray
    valid: np.ndarray
    sink: np.ndarray
    input_digest: str
    rows_digest: str
    excluded: Mapping[str, int] = field(default_factory=dict)


class CollapseStore(Protocol):
    """The rows of every checkpoint as parts, one document at a time."""

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents, ascending."""

    def layout(self, document: int) -> RowLayout:
        """Which rows of a document were measured."""

    def parts(self, checkpoint: str, document: int) -> EntropyParts:
        """Parts of a document's rows at a checkpoint, float64 ``(heads, rows)`` each."""


class MemoryCollapseStore:
    """The store of a study that was given no folder."""

    def __init__(self) -> None:
        self._layouts: dict[int, RowLayout] = {}
        self._parts: dict[tuple[str, int], EntropyParts] = {}

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents, ascending."""
        return tuple(sorted(self._layouts))

    def layout(self, document: int) -> RowLayout:
        """Which rows of a document were measured."""
        return self._layouts[document]

    def parts(self, checkpoint: str, document: int) -> EntropyParts:
        """Parts of a document's rows at a checkpoint."""
        return self._parts[checkpoint, document]

    def done(self, checkpoint: str) -> frozenset[int]:
        """Documents that are kept of a checkpoint."""
        return frozenset(d for name, d in self._parts if name == checkpoint)

    def keep_layout(self, layout: RowLayout) -> None:
        """Keep which rows a document has."""
        self._layouts[layout.document] = layout

    def keep_parts(self, checkpoint: str, document: int, parts: EntropyParts) -> None:
        """Keep a document's rows at a checkpoint."""
        self._parts[checkpoint, document] = parts


def row_layout(block: RowBlock, model_input: np.ndarray | None = None) -> RowLayout:
    """Return which rows a block holds.

    Parameters
    ----------
    block
        Rows of one document.
    model_input
        Token ids or pixel values, where there is a model.

    Examples
    --------
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> block = make_block(document=0, log_weights=np.log([[[0.8, 0.1, 0.06, 0.04]]]),
    ...                    support=np.ones((1, 4), bool), sink=np.arange(4) == 0,
    ...                    queries=np.array([3]), heads=[HeadId(0, 0)])
    >>> layout = row_layout(block)
    >>> layout.content_keys.tolist(), layout.sink.tolist()
    ([[3]], [0])
    """
    shape = (block.n_heads, block.n_rows)
    content = (block.support & ~block.sink).sum(-1)
    return RowLayout(
        document=block.document,
        queries=np.asarray(block.queries),
        content_keys=np.array(np.broadcast_to(content, shape), dtype=np.int64),
        valid=np.array(block.valid),
        sink=block.key_positions[block.sink.any(0)],
        input_digest="" if model_input is None else _digest(model_input),
        rows_digest=_digest(block.queries, np.packbits(block.support), np.packbits(block.sink)),
        excluded=dict(block.excluded),
    )


def row_parts(block: RowBlock) -> EntropyParts:
    """Return what the entropies of a block's rows depend on, float64 ``(heads, rows)`` each.

    NaN for a row that a head can't use, and ``content_entropy`` NaN for a row without a content
    part above zero.

    Notes
    -----
    From log-weights in float64, a head at a time: nothing is lost at sink mass 1.  O(heads · rows
    · keys).

    Examples
    --------
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> block = make_block(document=0, log_weights=np.array([[[60.0, 0.0, 0.0]]], np.float32),
    ...                    support=np.ones((1, 3), bool), sink=np.arange(3) == 0,
    ...                    queries=np.array([2]), heads=[HeadId(0, 0)])
    >>> parts = row_parts(block)  # s is 1 to the last digit, its content still two equal parts
    >>> float(parts.sink_mass[0, 0]), float(parts.content_entropy[0, 0].round(4))
    (1.0, 0.6931)
    """
    valid = block.valid
    kept = np.full((len(EntropyParts._fields), block.n_heads, block.n_rows), np.nan)
    for head in range(block.n_heads):
        rows = valid[head]
        if not rows.any():
            continue
        support = block.support[head] if block.support.ndim == 3 else block.support
        found = entropy_parts(
            block.log_weights[head, rows].astype(np.float64),
            sink=block.sink[rows],
            where=support[rows],
            logits=True,
            check=False,
        )
        kept[:, head, rows] = np.stack(found)
    return EntropyParts(*kept)


def joined_layout(pieces: Sequence[RowLayout]) -> RowLayout:
    """Return the layout of a document whose rows came in several blocks, such as of a decoder."""
    if len(pieces) == 1:
        return pieces[0]
    excluded: dict[str, int] = {}
    for piece in pieces:
        for reason, number in piece.excluded.items():
            excluded[reason] = excluded.get(reason, 0) + number
    return RowLayout(
        document=pieces[0].document,
        queries=np.concatenate([piece.queries for piece in pieces]),
        content_keys=np.concatenate([piece.content_keys for piece in pieces], axis=-1),
        valid=np.concatenate([piece.valid for piece in pieces], axis=-1),
        sink=np.unique(np.concatenate([piece.sink for piece in pieces])),
        input_digest=pieces[0].input_digest,
        rows_digest=_digest(*(np.array(piece.rows_digest) for piece in pieces)),
        excluded=excluded,
    )


def joined_parts(pieces: Sequence[EntropyParts]) -> EntropyParts:
    """Return the parts of a document whose rows came in several blocks."""
    return EntropyParts(*(np.concatenate(found, axis=-1) for found in zip(*pieces, strict=True)))


def _digest(*arrays: np.ndarray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]
