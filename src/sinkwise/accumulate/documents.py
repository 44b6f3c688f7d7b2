"""Sums of one document, mergeable in any order: the unit of resumption and of uncertainty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sinkwise.accumulate.profile import ProfileSums, profile_sums
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
    excluded
        Query rows left out, by reason.
    profile
        Per-head sums.
    pairs
        Sums for every pair of heads.
    """

    document: int
    n_rows: int
    profile: ProfileSums
    pairs: PairSums
    excluded: Mapping[str, int] = field(default_factory=dict)

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
        return DocumentSums(
            self.document,
            self.n_rows + other.n_rows,
            self.profile.merge(other.profile),
            self.pairs.merge(other.pairs),
            excluded,
        )


def block_sums(block: RowBlock, *, metrics: tuple[str, ...] = METRICS) -> DocumentSums:
    """Return the sums of one block of rows.

    Parameters
    ----------
    block
        Rows of one document.
    metrics
        Which pair sums to take (:data:`sinkwise.distances.all_pairs.METRICS`).
    """
    return DocumentSums(
        block.document,
        block.n_rows,
        profile_sums(block),
        pair_sums(block, metrics=metrics),
        dict(block.excluded),
    )


def document_sums(
    blocks: Iterable[RowBlock], *, metrics: tuple[str, ...] = METRICS
) -> dict[int, DocumentSums]:
    """Return the sums of every document among `blocks`, by document number.

    A document may come as any number of blocks, in any order and mixed with others'.

    Parameters
    ----------
    blocks
        Blocks of rows, read once and not kept.
    metrics
        Which pair sums to take.

    Returns
    -------
    dict
        In the order of the document numbers; empty for no blocks.
    """
    found: dict[int, DocumentSums] = {}
    for block in blocks:
        sums = block_sums(block, metrics=metrics)
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
