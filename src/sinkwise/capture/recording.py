"""Collect one batch's logits, document by document, while the model runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.capture.faithful import (
    cause_of_non_finite,
    refuse_unfaithful,
    told_output,
    working_dtype,
)
from sinkwise.capture.interface import AttentionCall
from sinkwise.capture.logits import (
    Visibility,
    learned_sink,
    visibility,
    visibility_key,
    write_logits,
)
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

    from sinkwise.capture.documents import Batch
    from sinkwise.capture.layers import AttentionLayers

__all__ = [
    "DocumentRows",
    "LayoutRecorder",
    "RowRecorder",
    "looks_back_only",
    "refuse_foreign_call",
]

_CHECKED_ROWS = 8


@dataclass
class DocumentRows:
    """Rows of one document while its layers arrive.

    Attributes
    ----------
    logits
        float32 ``(heads, rows, keys)``; with a learned sink anywhere, one column more.
    value_norms
        float32 ``(heads, keys)``: norms of the value vectors, 0 for a learned sink.
    queries
        ``(rows,)`` positions in the document.
    supports
        bool ``(rows, keys)`` or ``(heads, rows, keys)`` of each call, shared where calls agree.
    """

    document: int
    logits: np.ndarray
    value_norms: np.ndarray
    queries: np.ndarray
    start: int
    stop: int
    supports: list[np.ndarray] = field(default_factory=list)

    def support(self, layers: AttentionLayers) -> np.ndarray:
        """Support of all heads, ``(rows, keys)`` where they agree, the learned sink's column in."""
        first = self.supports[0]
        same = all(s is first or np.array_equal(s, first) for s in self.supports)
        alike = len(set(layers.learned_sinks)) == 1
        if same and first.ndim == 2 and alike:
            return self._with_column(first, layers.learned_sinks[0])
        n_heads, n_rows, n_keys = self.logits.shape
        whole = np.zeros((n_heads, n_rows, n_keys), dtype=bool)
        for support, offset, heads, learned in zip(
            self.supports, layers.offsets(), layers.n_heads, layers.learned_sinks, strict=True
        ):
            whole[offset : offset + heads, :, : self.stop - self.start] = support
            if learned:
                whole[offset : offset + heads, :, -1] = True
        return whole

    def _with_column(self, support: np.ndarray, learned: bool) -> np.ndarray:
        if self.logits.shape[-1] == support.shape[-1]:
            return support
        return np.concatenate([support, np.full((len(support), 1), learned)], axis=1)


def looks_back_only(call: AttentionCall) -> bool:
    """Whether no query of the first batch element sees a later key; some of its rows decide."""
    import torch

    n_keys = call.key.shape[2]
    rows = torch.arange(0, n_keys, max(1, n_keys // 16), device=call.query.device)
    seen = visibility(call, 0, rows, 0, n_keys).visible
    behind = torch.arange(n_keys, device=rows.device)[None] <= rows[:, None]
    return not bool((seen & ~behind).any())


class LayoutRecorder:
    """Listener of a short pass: keeps the calls and whether they look ahead."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self.calls: list[tuple[AttentionCall, bool]] = []

    def __call__(self, call: AttentionCall) -> None:

        width = self._batch.width or call.query.shape[2]  # an image's tokens aren't known yet
        refuse_foreign_call(call, len(self._batch.documents), width)
        self.calls.append((call, looks_back_only(call)))


class RowRecorder:
    """Listener of a real pass: writes each call's logits into its documents' rows.

    Parameters
    ----------
    documents
        The documents to record, by their place in the batch.
    check
        Whether to hold the recorded rows against the attention's own output.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layers: AttentionLayers,
        batch: Batch,
        documents: Mapping[int, DocumentRows],
        *,
        check: bool,
    ) -> None:
        self._model = model
        self._layers = layers
        self._width = batch.width
        self._n_items = len(batch.documents)
        self._documents = documents
        self._check = check
        self._offsets = layers.offsets()
        self._seen: dict[Any, tuple[Any, Visibility, np.ndarray]] = {}
        self._number = 0

    def __call__(self, call: AttentionCall) -> None:
        import torch

        number = self._number
        self._number += 1
        refuse_foreign_call(call, self._n_items, self._width)
        if (
            number >= len(self._layers.layers)
            or call.query.shape[1] != self._layers.n_heads[number]
        ):
            raise CaptureError(
                f"{type(self._model).__name__} made attention call {number} that its first pass "
                f"didn't make ({len(self._layers.layers)} calls): a model whose layers change "
                "from one input to the next can't be captured"
            )
        sink = learned_sink(call)
        heads = slice(self._offsets[number], self._offsets[number] + call.query.shape[1])
        for place, (item, rows) in enumerate(self._documents.items()):
            queries = torch.from_numpy(rows.queries + rows.start).to(call.query.device)
            seen, support = self._visibility(call, item, rows, queries)
            rows.supports.append(support)
            n_keys = rows.stop - rows.start
            out = torch.from_numpy(rows.logits)[heads]
            write_logits(call, item, queries, rows.start, rows.stop, seen, out[:, :, :n_keys])
            if sink is not None:
                out[:, :, -1] = sink[:, None]
            norms = call.value[item, :, rows.start : rows.stop].float().norm(dim=-1)
            groups = call.query.shape[1] // norms.shape[0]
            rows.value_norms[heads, :n_keys] = norms.repeat_interleave(groups, 0).cpu().numpy()
            output = call.output[item, queries].float().cpu()
            self._refuse_non_finite(call, number, rows, out[:, :, :n_keys], support, output)
            if self._check and place == 0:
                self._refuse_unfaithful(call, number, item, rows, seen, out, output)

    def finish(self) -> None:
        """Check that every layer was heard.

        Raises
        ------
        CaptureError
            If calls are missing.
        """
        if self._number != len(self._layers.layers):
            raise CaptureError(
                f"{type(self._model).__name__} made {self._number} attention calls where its first "
                f"pass made {len(self._layers.layers)}: rows of some layers would be missing"
            )

    def _visibility(
        self, call: AttentionCall, item: int, rows: DocumentRows, queries: torch.Tensor
    ) -> tuple[Visibility, np.ndarray]:
        """What the queries see; layers that share a mask share the answer."""
        key = (visibility_key(call), item)
        if key not in self._seen:
            seen = visibility(call, item, queries, rows.start, rows.stop)
            # the mask is kept so that its id can't be taken by another
            self._seen[key] = (call.mask, seen, seen.visible.cpu().numpy())
        _, seen, support = self._seen[key]
        return seen, support

    def _refuse_non_finite(
        self,
        call: AttentionCall,
        number: int,
        rows: DocumentRows,
        logits: torch.Tensor,
        support: np.ndarray,
        output: torch.Tensor,
    ) -> None:
        import torch

        visible = torch.from_numpy(support)
        has_key = visible.any(-1)
        # two numbers first: a NaN anywhere is a NaN in both
        if not all(bool(torch.isfinite(end)) for end in torch.aminmax(logits)):
            bad = ~torch.isfinite(logits) & visible
            if bool(bad.any()):
                head, row, key = (int(i) for i in bad.nonzero()[0])
                value = f"the logit of key {key} is {float(logits[head, row, key])}"
                raise self._not_finite(call, number, head, rows, row, value)
        # (rows, heads, head_dim) against rows that see something
        seen = has_key[:, None] if has_key.ndim == 1 else has_key.T
        bad_output = ~torch.isfinite(output).all(-1) & seen
        if bool(bad_output.any()):
            row, head = (int(i) for i in bad_output.nonzero()[0])
            raise self._not_finite(
                call, number, head, rows, row, "the attention's output is not finite"
            )

    def _not_finite(
        self,
        call: AttentionCall,
        number: int,
        head: int,
        rows: DocumentRows,
        row: int,
        what: str,
    ) -> CaptureError:
        return CaptureError(
            f"layer {self._layers.layers[number]}, head {head}, query {int(rows.queries[row])} of "
            f"document {rows.document}: {what}, expected finite numbers; it is the first layer to "
            f"fail. {cause_of_non_finite(self._model, working_dtype(call))}"
        )

    def _refuse_unfaithful(
        self,
        call: AttentionCall,
        number: int,
        item: int,
        rows: DocumentRows,
        seen: Visibility,
        out: torch.Tensor,
        output: torch.Tensor,
    ) -> None:
        """Hold some rows against the output the model really used."""
        import torch

        some = torch.linspace(0, len(rows.queries) - 1, min(_CHECKED_ROWS, len(rows.queries)))
        some = some.round().long()
        visible = seen.visible.cpu()[..., some, :]
        lit = visible.any(-1) if visible.ndim == 2 else visible.any(-1).all(0)
        some = some[lit]
        if not len(some):
            return
        places = torch.from_numpy(rows.queries)[some].to(call.query.device) + rows.start
        looks = visibility(call, item, places, rows.start, rows.stop)
        logits = out[:, some, : rows.stop - rows.start]
        told = told_output(call, item, places, rows.start, rows.stop, looks, logits)
        value = call.value[item, :, rows.start : rows.stop]
        refuse_unfaithful(call, self._layers.layers[number], told, output[some], value)


def refuse_foreign_call(call: AttentionCall, n_items: int, width: int) -> None:
    """Attention that isn't one composition of the document's own tokens a query."""
    kind = type(call.module).__name__
    n_queries, n_keys = call.query.shape[2], call.key.shape[2]
    if n_queries != n_keys:
        raise CaptureError(
            f"{kind} attends from {n_queries} queries to {n_keys} keys: cross-attention and "
            "compressed keys can't be captured; use a decoder-only, encoder-only or vision model"
        )
    if call.query.shape[0] != n_items or n_queries != width:
        raise CaptureError(
            f"{kind} attends in {call.query.shape[0]} pieces of {n_queries} tokens where {n_items} "
            f"documents of {width} arrived: attention over windows or pieces of a document has no "
            "row over its keys, so this model can't be captured"
        )
    heads, kv_heads = call.query.shape[1], call.key.shape[1]
    if heads % kv_heads:
        raise CaptureError(
            f"{kind} has {heads} query heads over {kv_heads} key/value heads, expected a multiple"
        )
