"""Attention arrays from any framework as a stream of row blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.namespace import to_numpy
from sinkwise.rowdata.block import HeadId, KeyLabels, RowBlock, make_block
from sinkwise.rowdata.masks import DocumentMask, document_masks
from sinkwise.rowdata.reading import Piece, read_pieces
from sinkwise.rowdata.sink_sets import column_mass, found_columns
from sinkwise.rowdata.values import Place, apply_zero_rule, checked_log_weights

__all__ = ["Rows", "rows"]

_TILE_BYTES = 256 * 2**20


def rows(
    weights: Any,
    *,
    sink: Any,
    causal: bool = False,
    where: Any = None,
    segments: Any = None,
    logits: bool = False,
    sink_logit: Any = None,
    zeros: Literal["error", "exclude"] | float = "error",
) -> Rows:
    """Read attention rows from arrays, and check every one of them.

    Parameters
    ----------
    weights
        ``[..., heads, queries, keys]`` of NumPy, PyTorch, JAX or CuPy, leading axes counting
        documents; or ``outputs.attentions`` (one such array a layer, the heads then in
        layer-major order); the outputs themselves; generate()'s nested tuples (each row keeps
        its own number of keys); or a TransformerLens cache.  Maps may be rectangular.
    sink
        ``"first"`` (the first real key of each document), an index or a tuple of indices
        among the document's real keys, a boolean mask ``(keys,)``, ``(..., keys)`` or
        ``(..., queries, keys)``, or ``"virtual"``: rows that sum to less than 1, the rest
        is the sink (a tuple may hold it too); or ``"found"``: in every document the keys that
        its own rows show to be sinks (:func:`~sinkwise.rowdata.sink_sets.found_columns`).
    causal
        Query i of a square map sees keys up to i; with fewer queries than keys the queries
        are the last ones.  Mass on later keys is then an error.
    where
        Support: ``(..., keys)`` for padding (an attention mask will do), or
        ``(..., queries, keys)``.  Mass on absent keys is an error.
    segments
        ``(..., keys)`` whole numbers: which packed document a key belongs to, -1 for padding.
        Each becomes a document with a sink of its own; mass across documents is reported in
        the card, and the row re-closed within its document.
    logits
        `weights` holds log-weights, normalised or not.
    sink_logit
        With ``logits=True``: log-weights of a virtual sink, ``(heads,)`` for all layers
        together or ``[..., heads, queries]``.
    zeros
        What a weight of exactly 0 inside the support means for log-ratios: ``"error"``,
        ``"exclude"`` (compare on the two rows' common support) or a share δ to replace it by,
        multiplicatively.

    Returns
    -------
    Rows
        A stream of blocks, read again from the arrays on every pass: nothing is copied up
        front, and at most 256 MB at a time.

    Raises
    ------
    RowError
        On rows that are no attention (negative, NaN, not summing to 1, rank), on mass at absent
        keys and on zeros without a rule: the message names layer, head, query and value.
    InputTypeError
        On an object that holds no maps.

    Examples
    --------
    >>> import numpy as np
    >>> z = np.random.default_rng(0).normal(size=(2, 4, 6, 6))
    >>> p = np.exp(z) * np.tril(np.ones((6, 6)))
    >>> found = rows(p / p.sum(-1, keepdims=True), sink="first", causal=True)
    >>> found.n_documents, len(found.heads), found.n_rows
    (2, 4, 8)
    """
    if sink is None or isinstance(sink, bool):
        raise RowError('say what the sink is: sink="first", an index, a tuple or a mask')
    if sink_logit is not None and not logits:
        raise RowError("sink_logit= belongs to log-weights: pass logits=True with it")
    if not isinstance(zeros, str | float | int) or isinstance(zeros, bool):
        raise RowError(f'zeros={zeros!r}: expected "error", "exclude" or a share')
    if not isinstance(zeros, str) and not 0 < zeros < 1:
        raise RowError(f"zeros={zeros!r}: a zero is replaced by a share between 0 and 1")
    if isinstance(zeros, str) and zeros not in ("error", "exclude"):
        raise RowError(f'zeros={zeros!r}: expected "error", "exclude" or a share')
    pieces, skipped = read_pieces(weights)
    names = {tuple(h) for h in (_heads(piece) for piece in pieces)}
    if len(names) != 1:
        raise RowError("the steps differ in their layers or heads")
    if segments is not None and len(pieces) > 1:
        raise RowError("segments= is for packed maps, not for generate()'s steps")
    masks = []
    for piece in pieces:
        *lead, queries, keys = piece.shape
        # a mask of generate() covers the final length: every step sees its beginning
        given = where
        if given is not None and len(pieces) > 1:
            given = to_numpy(given)[..., :keys]
        masks.append(
            document_masks(
                tuple(lead),
                queries,
                keys,
                sink=sink,
                causal=causal,
                where=given,
                segments=segments,
            )
        )
    items = sink if isinstance(sink, tuple | list) else (sink,)
    virtual = any(isinstance(i, str) and i == "virtual" for i in items) or sink_logit is not None
    if virtual and logits and sink_logit is None:
        raise RowError('sink="virtual" with logits=True needs the column: pass sink_logit=')
    found = Rows(
        pieces=tuple(pieces),
        masks=tuple(masks),
        heads=names.pop(),
        sink=sink,
        causal=causal,
        zeros=zeros,
        logits=logits,
        virtual=virtual,
        sink_logit=sink_logit,
        segmented=segments is not None,
        skipped_layers=skipped,
    )
    found.check()
    return found


@dataclass(frozen=True, eq=False)
class Rows:
    """Checked attention rows of arrays; a :class:`~sinkwise.rowdata.block.RowSource`.

    Made by :func:`rows`.
    """

    pieces: tuple[Piece, ...]
    masks: tuple[list[list[DocumentMask]], ...]
    heads: tuple[HeadId, ...]
    sink: Any
    causal: bool
    zeros: Literal["error", "exclude"] | float
    logits: bool
    virtual: bool
    sink_logit: Any
    segmented: bool
    skipped_layers: tuple[int, ...]

    @property
    def n_documents(self) -> int:
        """Number of documents: maps of the leading axes, or packed segments."""
        return sum(len(documents) for documents in self.masks[0])

    @cached_property
    def n_rows(self) -> int:
        """Query rows that every statistic uses, over all documents (not times heads)."""
        return self._tally["rows"]

    @cached_property
    def excluded(self) -> dict[str, int]:
        """Query rows left out, by reason."""
        return self._tally["excluded"]

    @cached_property
    def _tally(self) -> dict[str, Any]:
        total: dict[str, int] = {}
        n_rows = 0
        for block in self.blocks():
            n_rows += block.n_rows
            for reason, number in block.excluded.items():
                total[reason] = total.get(reason, 0) + number
        return {"rows": n_rows, "excluded": total}

    def with_zeros(self, zeros: Literal["error", "exclude"] | float) -> Rows:
        """Return the same rows under another zero rule."""
        return replace(self, zeros=zeros)

    def card(self) -> dict[str, Any]:
        """Return what of the convention card arrays can tell."""
        first = self.pieces[0].maps[0]
        sink: Any = self.sink
        if not isinstance(sink, str | int | np.integer):
            sink = list(sink) if isinstance(sink, tuple | list) else "mask"
        card: dict[str, Any] = {
            "source": "arrays",
            "library": type(first).__module__.split(".")[0],
            "dtype": str(first.dtype).rsplit(".", maxsplit=1)[-1],
            "form": "log-weights" if self.logits else "weights",
            "sink": sink,
            "virtual_sink": self.virtual,
            "zeros": self.zeros if isinstance(self.zeros, str) else f"replace={self.zeros:g}",
            "causal": self.causal,
            "steps": len(self.pieces),
            "skipped_layers": list(self.skipped_layers),
        }
        if self.segmented:
            card["cross_document_mass"] = self.cross_document_mass
        return card

    @cached_property
    def cross_document_mass(self) -> float:
        """Mean share of a row that lies on another packed document, over heads and rows."""
        total, count = 0.0, 0
        for at, documents in enumerate(self.masks[0]):
            for document in documents:
                foreign = ~document.own
                for _, values in self._layers(self.pieces[0], at):
                    values = values[:, document.queries]
                    shares = _softmax(values) if self.logits else values
                    total += float(shares[..., foreign].sum(dtype=np.float64))
                    count += shares.shape[0] * shares.shape[1]
        return total / max(count, 1)

    def blocks(self, skip: frozenset[int] = frozenset()) -> Iterator[RowBlock]:
        """Yield the rows of each document, in tiles of at most 256 MB.

        Parameters
        ----------
        skip
            Documents to leave out.
        """
        numbers = self._numbers()
        for number in range(self.n_documents):
            if number in skip:
                continue
            at, inner = numbers[number]
            for piece, masks in zip(self.pieces, self.masks, strict=True):
                yield from self._tiles(number, piece, at, masks[at][inner])

    def check(self) -> None:
        """Look at every row once.

        Raises
        ------
        RowError
            Naming the first row that is no attention, by layer, head and query; or when no row
            is left to use.
        """
        if self.n_rows == 0:
            why = ", ".join(f"{n} {reason}" for reason, n in self.excluded.items()) or "none given"
            raise RowError(
                f"no row is left to use ({why}). A row needs its sink and two content keys in "
                'sight; with left padding name the first real key by sink="first"'
            )

    def _numbers(self) -> list[tuple[int, int]]:
        return [(at, inner) for at, docs in enumerate(self.masks[0]) for inner in range(len(docs))]

    def _layers(self, piece: Piece, at: int) -> Iterator[tuple[int, np.ndarray]]:
        lead = piece.shape[:-2]
        index = tuple(int(i) for i in np.unravel_index(at, lead)) if lead else ()
        for layer, array in zip(piece.layers, piece.maps, strict=True):
            one = to_numpy(array[index] if lead else array)
            yield layer, one if one.dtype.kind == "f" else one.astype(np.float64)

    def _tiles(
        self, number: int, piece: Piece, at: int, document: DocumentMask
    ) -> Iterator[RowBlock]:
        excluded = {"padding": document.padding} if document.padding else {}
        bytes_per_row = len(self.heads) * (piece.shape[-1] + self.virtual) * 8
        tile = max(1, _TILE_BYTES // bytes_per_row)
        for start in range(0, max(len(document.queries), 1), tile):
            yield self._block(number, piece, at, document, slice(start, start + tile), excluded)
            excluded = {}

    def _block(
        self,
        number: int,
        piece: Piece,
        at: int,
        document: DocumentMask,
        part: slice,
        excluded: dict[str, int],
    ) -> RowBlock:
        queries, support = document.queries[part], document.support[part]
        # keys that no row sees are not carried along: a static cache's empty slots, the future
        columns = np.flatnonzero(support.any(0))
        dtype = str(piece.maps[0].dtype).rsplit(".", maxsplit=1)[-1]
        found = []
        for layer, values in self._layers(piece, at):
            x = checked_log_weights(
                values[:, queries],
                support,
                elsewhere=~document.own if self.segmented else None,
                logits=self.logits,
                virtual=self.virtual and not self.logits,
                dtype=dtype,
                place=Place(number, layer, queries),
            )
            rest = np.arange(support.shape[1], x.shape[-1])  # the virtual sink's column, if any
            found.append(x[..., np.append(columns, rest)])
        log_weights = np.concatenate(found)
        support, sink = support[:, columns], document.sink[part][:, columns]
        positions = np.cumsum(document.own)[columns] - 1
        if self.virtual:
            if self.logits:
                column = self._sink_column(at, queries, log_weights.dtype)
                log_weights = np.concatenate([log_weights, column[..., None]], -1)
            seen = support.any(-1, keepdims=True)
            support = np.concatenate([support, seen], -1)
            sink = np.concatenate([sink, np.ones((len(sink), 1), bool)], -1)
            positions = np.append(positions, -1)
        if isinstance(self.sink, str) and self.sink == "found":
            mass, seen_by = column_mass(log_weights, support)
            real = positions >= 0
            sink = np.array(sink)
            sink[:, real] = found_columns(mass[:, real], seen_by[real])

        def name(head: int, row: int) -> str:
            place = Place(number, self.heads[head].layer, queries)
            return place.name(self.heads[head].index, row)

        return make_block(
            document=number,
            log_weights=apply_zero_rule(
                log_weights, support, self.zeros, causal=self.causal, name=name
            ),
            support=support,
            sink=sink,
            queries=document.positions[part],
            heads=self.heads,
            excluded=excluded,
            virtual=self.virtual,
            keys=KeyLabels(positions),
        )

    def _sink_column(self, at: int, queries: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
        given = to_numpy(self.sink_logit).astype(dtype)
        n_heads, n_queries = len(self.heads), self.pieces[0].shape[-2]
        if given.ndim and n_heads not in given.shape:
            raise RowError(
                f"sink_logit has shape {given.shape}, expected ({n_heads},) for {n_heads} heads, "
                "or [..., heads, queries]"
            )
        if given.ndim <= 1:
            given = np.broadcast_to(given[..., None], (n_heads, n_queries))
        else:
            maps = int(np.prod(self.pieces[0].shape[:-2], dtype=int))
            given = np.broadcast_to(given, (*given.shape[:-2], n_heads, n_queries))
            given = given.reshape(-1, n_heads, n_queries)
            given = given[at if len(given) == maps else 0]
        return given[:, queries]


def _heads(piece: Piece) -> Iterator[HeadId]:
    for layer, array in zip(piece.layers, piece.maps, strict=True):
        for index in range(array.shape[-3]):
            yield HeadId(layer, index)


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
