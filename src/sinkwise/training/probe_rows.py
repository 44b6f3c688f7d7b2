"""One pass over the probe: of every row the four numbers that its entropy depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.capture.faithful import refuse_unfaithful, told_output
from sinkwise.capture.interface import AttentionCall
from sinkwise.capture.layers import AttentionLayers, describe_layers
from sinkwise.capture.logits import (
    Visibility,
    learned_sink,
    visibility,
    visibility_key,
    write_logits,
)
from sinkwise.capture.queries import choose_queries, first_usable_query
from sinkwise.capture.recording import (
    looks_back_only,
    refuse_foreign_call,
)
from sinkwise.channels.entropy import EntropyParts, entropy_parts
from sinkwise.errors import CaptureError
from sinkwise.training.probe import Probe, ProbeDocument
from sinkwise.training.watched import Watched

if TYPE_CHECKING:
    import torch

__all__ = ["ProbeRows", "choose_rows", "read_rows"]


@dataclass(frozen=True)
class ProbeRows:
    """Which rows of the probe are looked at; the same at every record.

    Attributes
    ----------
    layers
        The layers that attend.
    documents
        Where each document stands.
    queries
        For each document its query positions, counted from its first token.
    """

    layers: AttentionLayers
    documents: tuple[ProbeDocument, ...]
    queries: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Heads, and rows of all documents."""
        return len(self.layers.heads), sum(len(queries) for queries in self.queries)


def choose_rows(
    watched: Watched, probe: Probe, *, sink: Sequence[int], queries: Any, seed: int
) -> ProbeRows:
    """Return the rows to look at, found by a pass over the probe's first sequence.

    A document's rows are those that :class:`~sinkwise.ModelRows` takes of it at the same seed.

    Raises
    ------
    CaptureError
        If no attention call is heard, or the model's rows can't be captured.
    """
    calls: list[tuple[AttentionCall, bool]] = []

    def listen(call: AttentionCall) -> None:
        refuse_foreign_call(call, 1, call.query.shape[2])
        calls.append((call, looks_back_only(call)))

    watched.forward({name: tensor[:1] for name, tensor in probe.inputs.items()}, listen)
    layers = describe_layers(watched.model, calls)
    documents = probe.documents_of(layers.n_tokens)
    chosen = []
    for document in documents:
        length = document.stop - document.start
        first = first_usable_query(
            length, sink, causal=layers.causal, virtual=layers.has_virtual_sink
        )
        chosen.append(
            choose_queries(length, queries, start=first, seed=seed, document=document.number)
        )
    return ProbeRows(layers, documents, tuple(chosen))


def read_rows(
    watched: Watched, probe: Probe, rows: ProbeRows, sink: Sequence[int], *, check: bool
) -> tuple[EntropyParts, np.ndarray]:
    """Run the model on the probe.

    Parameters
    ----------
    check
        Whether to hold some rows against the attention's own output.

    Returns
    -------
    EntropyParts
        float64 ``(heads, rows)`` on the CPU; NaN where a logit of the row is not finite.
    numpy.ndarray
        int ``(heads, rows)``: visible content keys; 0 for a row that can't be used, because its
        sink is hidden or its content has fewer than two keys.

    Raises
    ------
    CaptureError
        If the model makes other calls than it did before, or a row isn't the attention's own.
    """
    listener = _PartsListener(watched, probe, rows, sink, check)
    watched.forward(probe.inputs, listener)
    return listener.finish()


class _PartsListener:
    def __init__(
        self, watched: Watched, probe: Probe, rows: ProbeRows, sink: Sequence[int], check: bool
    ) -> None:
        self._watched = watched
        self._n_items = probe.n_items
        self._rows = rows
        self._sink = sink
        self._check = check
        self._offsets = rows.layers.offsets()
        self._found: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._seen: dict[Any, tuple[Any, Visibility]] = {}

    def __call__(self, call: AttentionCall) -> None:
        import torch

        layers, number = self._rows.layers, len(self._found)
        refuse_foreign_call(call, self._n_items, call.query.shape[2])
        if number >= len(layers.layers) or call.query.shape[1] != layers.n_heads[number]:
            raise self._changed(number + 1)
        parts, keys = [], []
        for document, queries in zip(self._rows.documents, self._rows.queries, strict=True):
            place = torch.from_numpy(queries + document.start).to(call.query.device)
            some_parts, some_keys = self._document(call, number, document, place)
            parts.append(some_parts)
            keys.append(some_keys)
        # what lies on the accelerator is fetched at the end, in one go
        self._found.append((torch.cat(parts, -1), torch.cat(keys, -1)))

    def finish(self) -> tuple[EntropyParts, np.ndarray]:
        layers = self._rows.layers
        if len(self._found) != len(layers.layers):
            raise self._changed(len(self._found))
        parts = np.empty((len(EntropyParts._fields), *self._rows.shape))
        keys = np.empty(self._rows.shape, dtype=np.int64)
        for (found, counted), offset, heads in zip(
            self._found, self._offsets, layers.n_heads, strict=True
        ):
            parts[:, offset : offset + heads] = found.cpu().numpy()
            keys[offset : offset + heads] = counted.cpu().numpy()
        return EntropyParts(*parts), keys

    def _document(
        self, call: AttentionCall, number: int, document: ProbeDocument, place: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Parts ``(4, heads, rows)`` and content keys ``(heads, rows)`` of one document."""
        import torch

        item, start, stop = document.item, document.start, document.stop
        seen = self._visibility(call, document, place)
        heads = call.query.shape[1]
        logits = torch.empty(
            (heads, len(place), stop - start), dtype=torch.float32, device=call.query.device
        )
        write_logits(call, item, place, start, stop, seen, logits)
        learned = learned_sink(call)
        if self._check and document.number == 0:
            self._refuse_unfaithful(call, number, document, place, seen, logits)
        sink = torch.zeros(stop - start, dtype=torch.bool, device=logits.device)
        sink[[position for position in self._sink if position < stop - start]] = True
        visible = seen.visible.expand(logits.shape)
        keys = (visible & ~sink).sum(-1)
        usable = keys >= 2
        if learned is None:
            usable &= (visible & sink).any(-1)
        broken = ((~torch.isfinite(logits)) & visible).any(-1)
        if logits.device.type == "mps":  # it has no float64
            logits, visible, sink, broken = (t.cpu() for t in (logits, visible, sink, broken))
        exact = logits.double()
        if learned is not None:
            learned = learned.to(exact)[:, None].expand(exact.shape[:-1])
        found = torch.stack(
            entropy_parts(
                exact, sink=sink, where=visible, logits=True, sink_logit=learned, check=False
            )
        )
        found[:, broken] = torch.nan
        return found, torch.where(usable, keys, 0)

    def _visibility(
        self, call: AttentionCall, document: ProbeDocument, place: torch.Tensor
    ) -> Visibility:
        """What the queries see; layers that share a mask share the answer."""
        key = (visibility_key(call), document.number)
        if key not in self._seen:
            item, start, stop = document.item, document.start, document.stop
            if self._check:
                self._refuse_other_documents(call, document, place)
            # the mask is kept so that its id can't be taken by another
            self._seen[key] = (call.mask, visibility(call, item, place, start, stop))
        return self._seen[key][1]

    def _refuse_other_documents(
        self, call: AttentionCall, document: ProbeDocument, place: torch.Tensor
    ) -> None:
        width = call.key.shape[2]
        visible = visibility(call, document.item, place, 0, width).visible
        outside = visible[..., : document.start].any() | visible[..., document.stop :].any()
        if bool(outside):
            raise CaptureError(
                f"{type(call.module).__name__} lets tokens {document.start} to "
                f"{document.stop - 1} of sequence {document.item} see tokens outside them, where "
                "position_ids begin a new document or attention_mask says padding: such rows "
                "belong to no single document. Pass a probe with one document a sequence"
            )

    def _refuse_unfaithful(
        self,
        call: AttentionCall,
        number: int,
        document: ProbeDocument,
        place: torch.Tensor,
        seen: Visibility,
        logits: torch.Tensor,
    ) -> None:
        """Hold a document's rows against the output the model really used."""
        import torch

        start, stop = document.start, document.stop
        output = call.output[document.item, place].float().cpu()
        told = told_output(call, document.item, place, start, stop, seen, logits)
        lit = seen.visible.any(-1).cpu()
        # a row that is not finite is counted, not refused
        sound = torch.isfinite(told).all(-1).all(-1) & torch.isfinite(output).all(-1).all(-1)
        sound &= lit if lit.ndim == 1 else lit.all(0)
        if bool(sound.any()):
            value = call.value[document.item, :, start:stop]
            value = value[torch.isfinite(value)]
            layer = self._rows.layers.layers[number]
            refuse_unfaithful(call, layer, told[sound], output[sound], value)

    def _changed(self, heard: int) -> CaptureError:
        return CaptureError(
            f"{type(self._watched.model).__name__} made {heard} attention calls where its first "
            f"pass made {len(self._rows.layers.layers)}: a model whose layers change while it "
            "trains can't be monitored; make a new Monitor after changing it"
        )
