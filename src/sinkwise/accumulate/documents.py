"""Sums of one document, mergeable in any order: the unit of resumption and of uncertainty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from sinkwise.accumulate.example import ExampleRow, example_row
from sinkwise.accumulate.placement import PlacementSums, placement_sums
from sinkwise.accumulate.profile import ProfileSums, profile_sums
from sinkwise.accumulate.sink_sets import SinkSetSums, sink_set_sums
from sinkwise.distances.all_pairs import METRICS, PairSums, pair_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock

__all__ = ["DocumentSums", "block_sums", "document_sums", "merge_documents"]


@dataclass(frozen=True)
class DocumentSums:
    """Everything an audit keeps of one document.

    Attributes
    ----------
    document
        The document's number.
    n_rows
        Query positions used (not times heads).
    profile
        Per-head sums.
    pairs
        Sums for every pair of heads.
    placement
        Where each head's attention goes: by key and by offset.
    excluded
        Query rows left out, by reason.
    sink_sets
        Sums under other sink sets, by name; a set that the document has not is left out.
    example
        One row of every head, kept whole; None where it would be too large.
    tokens
        Text of the document's tokens, ``(tokens,)``; None where there is none.
    """

    document: int
    n_rows: int
    profile: ProfileSums
    pairs: PairSums
    placement: PlacementSums
    excluded: Mapping[str, int] = field(default_factory=dict)
    sink_sets: Mapping[str, SinkSetSums] = field(default_factory=dict)
    example: ExampleRow | None = None
    tokens: np.ndarray | None = None

    def merge(self, other: DocumentSums) -> DocumentSums:
        """Return the sums over the rows of both parts of the same document.

        Raises
        ------
        RowError
            If the two belong to different documents: those stay apart, since the spread over
            documents is what intervals come from.
        """
        if self.document != other.document:
            raise RowError(
                f"sums of document {self.document} met sums of document {other.document}: "
                "documents stay apart; use merge_documents for mappings of several documents"
            )
        excluded = dict(self.excluded)
        for reason, number in other.excluded.items():
            excluded[reason] = excluded.get(reason, 0) + number
        sets = {
            name: mine.merge(other.sink_sets[name]) if name in other.sink_sets else mine
            for name, mine in self.sink_sets.items()
        }
        examples = [e for e in (self.example, other.example) if e is not None]
        return DocumentSums(
            self.document,
            self.n_rows + other.n_rows,
            self.profile.merge(other.profile),
            self.pairs.merge(other.pairs),
            self.placement.merge(other.placement),
            excluded,
            {**other.sink_sets, **sets},
            max(examples, key=lambda e: e.query, default=None),
            max((t for t in (self.tokens, other.tokens) if t is not None), key=len, default=None),
        )


def block_sums(
    block: RowBlock, *, metrics: tuple[str, ...] = METRICS, sink_sets: Sequence[str] = ()
) -> DocumentSums:
    """Return the sums of one block of rows.

    Parameters
    ----------
    block
        Rows of one document.
    metrics
        Which pair sums to take (:data:`sinkwise.distances.all_pairs.METRICS`).
    sink_sets
        Other sink sets to sum the same rows under
        (:data:`sinkwise.rowdata.sink_sets.SINK_SETS`).
    """
    pairs = pair_sums(block, metrics=metrics)
    found = {name: sink_set_sums(block, name, pairs) for name in sink_sets}
    return DocumentSums(
        block.document,
        block.n_rows,
        profile_sums(block),
        pairs,
        placement_sums(block),
        dict(block.excluded),
        {name: sums for name, sums in found.items() if sums is not None},
        example_row(block),
        _tokens(block),
    )


def document_sums(
    blocks: Iterable[RowBlock],
    *,
    metrics: tuple[str, ...] = METRICS,
    sink_sets: Sequence[str] = (),
) -> dict[int, DocumentSums]:
    """Return the sums of every document among `blocks`, by document number.

    A document may come as any number of blocks, in any order and mixed with others'.

    Parameters
    ----------
    blocks
        Blocks of rows, read once and not kept.
    metrics, sink_sets
        As in :func:`block_sums`.

    Returns
    -------
    dict
        In the order of the document numbers; empty for no blocks.
    """
    found: dict[int, DocumentSums] = {}
    for block in blocks:
        sums = block_sums(block, metrics=metrics, sink_sets=sink_sets)
        before = found.get(block.document)
        found[block.document] = sums if before is None else before.merge(sums)
    return dict(sorted(found.items()))


def merge_documents(
    first: Mapping[int, DocumentSums], second: Mapping[int, DocumentSums]
) -> dict[int, DocumentSums]:
    """Return the documents of both shards, adding up those that are split between them.

    Merging is associative and commutative up to float64 addition, and ``{}`` changes nothing.
    """
    merged = dict(first)
    for number, sums in second.items():
        before = merged.get(number)
        merged[number] = sums if before is None else before.merge(sums)
    return dict(sorted(merged.items()))


def _tokens(block: RowBlock) -> np.ndarray | None:
    if block.keys is None or block.keys.tokens is None:
        return None
    return block.keys.tokens[block.keys.positions >= 0]
