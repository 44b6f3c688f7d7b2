"""A model and its documents as a stream of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sinkwise.capture.documents import Batch, ImageDocuments, open_documents
from sinkwise.capture.forward import model_inputs, refuse_encoder_decoder, without_output_head
from sinkwise.capture.interface import (
    listening,
    loaded_implementations,
    require_transformers_model,
)
from sinkwise.capture.layers import AttentionLayers, describe_layers
from sinkwise.capture.memory import default_budget, require_budget, row_bytes
from sinkwise.capture.queries import (
    check_queries,
    check_sink,
    choose_queries,
    first_usable_query,
)
from sinkwise.capture.recording import DocumentRows, LayoutRecorder, RowRecorder
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId, KeyLabels, RowBlock, make_block
from sinkwise.rowdata.sink_sets import column_mass, found_columns

if TYPE_CHECKING:
    import torch

__all__ = ["ModelRows", "weights_fingerprint"]


class ModelRows:
    """Attention rows of a model on documents: float32 logits, one block a document.

    The model runs under the attention implementation it was loaded with, in evaluation mode,
    without gradients and without its output head, and is left as it was found.  Memory holds one
    batch of documents at a time.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``: decoder, encoder or vision model.
    processor
        The model's tokenizer or image processor; ``None`` for token ids or pixel arrays.
    inputs
        A list of texts (or token id sequences), or of images (or paths).
    sink
        ``"first"``: the first real token, which is the class token in encoders and vision
        models; a token position; a tuple of positions; or ``"found"``: in every document the
        keys that its own rows show to be sinks
        (:func:`~sinkwise.rowdata.sink_sets.found_columns`); or a mapping from the documents'
        numbers to positions, which holds sinks found elsewhere.  Real tokens count from 0 in each
        document.  A learned sink logit joins the sink as a last, virtual column.
    queries
        Query rows a document: a number, drawn one from each of as many equal strata of the
        positions that can see the sink and two content tokens, or ``"all"``.
    max_length
        Longest document in tokens.
    documents
        How many of `inputs` to use.
    seed
        With a document's number it decides its query rows.
    batch_size
        Documents in one forward pass, at most.  Results don't depend on it, save how many rows
        of padding are counted as left out.
    memory_budget
        Bytes that rows may take at once; by default 60 % of the available memory.

    Raises
    ------
    InputTypeError
        If `model` is not a transformers model, or `inputs` is not a list of documents.
    CaptureError
        If the model's rows can't be captured faithfully (also from :attr:`heads` and
        :meth:`blocks`, which run it).
    MemoryBudgetError
        From :meth:`blocks`, before any row is allocated.
    RowError
        If an option is wrong, or no document has three tokens.

    Notes
    -----
    A row costs ``heads * queries * keys * head_dim`` multiplications on top of the forward pass,
    and 4 bytes for each of ``heads * queries * keys`` logits.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> rows = ModelRows(model, None, [[1, 2, 3, 4, 5], [5, 4, 3, 2]], queries=2)
    >>> [head.label for head in rows.heads]
    ['L0H0', 'L0H1', 'L1H0', 'L1H1']
    >>> [block.log_weights.shape for block in rows.blocks()]
    [(4, 2, 5), (4, 2, 4)]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        processor: Any,
        inputs: Sequence[Any],
        *,
        sink: Literal["first", "found"] | int | Sequence[int] | Mapping[int, Sequence[int]] = (
            "first"
        ),
        queries: int | Literal["all"] = 64,
        max_length: int | None = None,
        documents: int | None = None,
        seed: int = 0,
        batch_size: int = 4,
        memory_budget: int | None = None,
    ) -> None:
        require_transformers_model(model)
        refuse_encoder_decoder(model)
        if batch_size < 1:
            raise RowError(f"batch_size={batch_size} arrived, expected a number of at least 1")
        self._named = model
        self._model = without_output_head(model)
        self._held = sink if isinstance(sink, Mapping) else None
        # sinks that were found, here or elsewhere, are looked for from the first token on
        self._sink_rule = "held" if isinstance(sink, Mapping) else sink
        self._sink = check_sink("found" if isinstance(sink, Mapping) else sink)
        self._queries = check_queries(queries)
        self._seed = seed
        self._batch_size = batch_size
        self._memory_budget = memory_budget
        self._processor = processor
        self._documents = open_documents(
            self._model, processor, inputs, max_length=max_length, documents=documents
        )

    @property
    def n_documents(self) -> int:
        """Number of documents, those too short for a row left out."""
        return len(self._documents)

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Query heads in layer-major order, by their original layer numbers."""
        return self.layers.heads

    @cached_property
    def layers(self) -> AttentionLayers:
        """The layers that attend, found by a forward pass over a few tokens."""
        batch = self._documents.probe()
        recorder = LayoutRecorder(batch)
        self._forward(batch, recorder)
        layers = describe_layers(self._model, recorder.calls)
        if isinstance(self._documents, ImageDocuments):
            self._documents.n_tokens = layers.n_tokens
        return layers

    def model_input(self, document: int) -> np.ndarray:
        """Return what the model is given of a document: its token ids, or its pixel values."""
        batch = self._documents.batch((document,), self._documents.length(document))
        return batch.inputs[str(self._model.main_input_name)].numpy()[0]

    def head_number(self, layer: int, index: int) -> int:
        """Return the place of a query head in :attr:`heads`.

        Raises
        ------
        RowError
            If there is no such head; the message states the query heads and the key/value heads.
        """
        return self.layers.head_number(layer, index)

    def blocks(self, skip: frozenset[int] = frozenset()) -> Iterator[RowBlock]:
        """Yield one block a document, in order; documents in `skip` are not run.

        Raises
        ------
        MemoryBudgetError
            If one document's rows exceed the budget.
        CaptureError
            If a row isn't finite, or the model's attention can't be captured faithfully.
        """
        budget = default_budget() if self._memory_budget is None else self._memory_budget
        checked: set[bool] = set()
        for group, width in self._planned():
            wanted = [document for document in group if document not in skip]
            for part in self._within_budget(wanted, budget):
                batch = self._documents.batch(part, width)
                rows = self._run(batch, check=batch.padded not in checked)
                checked.add(batch.padded)
                while rows:
                    yield self._block(rows.pop(0), batch)

    def card(self) -> dict[str, Any]:
        """Return what the convention card says of the model, the documents and the rows."""
        import torch
        import transformers

        layers, config = self.layers, self._named.config
        return {
            "model": _model_name(self._named),
            "model_class": type(self._named).__name__,
            "model_type": config.model_type,
            "revision": getattr(config, "_commit_hash", None),
            "weights_fingerprint": weights_fingerprint(self._model),
            "dtype": str(self._model.dtype).removeprefix("torch."),
            "logits_dtype": "float32",
            "attention_implementation": ", ".join(sorted(set(layers.implementations))),
            "configured_implementations": list(loaded_implementations(self._model)),
            "quantization": _quantization(config),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "n_parameters": int(self._named.num_parameters()),
            "n_layers": layers.n_layers,
            "attention_layers": len(layers.layers),
            "skipped_layers": list(layers.skipped),
            "heads": len(layers.heads),
            "heads_by_layer": _one_or_all(layers.n_heads),
            "kv_heads_by_layer": _one_or_all(layers.n_kv_heads),
            "causal": layers.causal,
            "sink": self._sink_rule if isinstance(self._sink_rule, str) else list(self._sink),
            "virtual_sink": layers.has_virtual_sink,
            "zeros": "none: rows are logits",
            "query_rule": "all positions" if self._queries == "all" else "stratified",
            "queries": self._queries,
            "seed": self._seed,
            **self._documents.card(),
        }

    def _planned(self) -> Iterator[tuple[tuple[int, ...], int]]:
        _ = self.layers  # an image's token count is known after the first pass
        return self._documents.plan(self._batch_size)

    def _within_budget(
        self, documents: Sequence[int], budget: int | None
    ) -> Iterator[tuple[int, ...]]:
        """Cut a batch into parts whose rows fit the budget together."""
        heads, held = len(self.heads), 0
        part: list[int] = []
        for document in documents:
            keys = self._documents.length(document) + self.layers.has_virtual_sink
            queries = keys if self._queries == "all" else min(self._queries, keys)
            need = row_bytes(heads, queries, keys)
            require_budget(need, budget, heads=heads, queries=queries, keys=keys)
            if part and budget is not None and held + need > budget:
                yield tuple(part)
                part, held = [], 0
            part.append(document)
            held += need
        if part:
            yield tuple(part)

    def _run(self, batch: Batch, *, check: bool) -> list[DocumentRows]:
        layers = self.layers
        places = zip(batch.documents, batch.starts, batch.stops, strict=True)
        rows = [self._empty_rows(layers, *place) for place in places]
        recorder = RowRecorder(self._model, layers, batch, dict(enumerate(rows)), check=check)
        self._forward(batch, recorder)
        recorder.finish()
        return rows

    def _empty_rows(
        self, layers: AttentionLayers, document: int, start: int, stop: int
    ) -> DocumentRows:
        length = stop - start
        first = first_usable_query(
            length, self._sink, causal=layers.causal, virtual=layers.has_virtual_sink
        )
        queries = choose_queries(
            length, self._queries, start=first, seed=self._seed, document=document
        )
        shape = (len(layers.heads), len(queries), length + layers.has_virtual_sink)
        # with learned sinks in some layers only, the others leave their last column unwritten
        fill = np.zeros if layers.has_virtual_sink else np.empty
        logits = fill(shape, dtype=np.float32)
        norms = np.zeros((shape[0], shape[2]), dtype=np.float32)
        return DocumentRows(document, logits, norms, queries, start, stop)

    def _block(self, rows: DocumentRows, batch: Batch) -> RowBlock:
        n_keys, length = rows.logits.shape[-1], rows.stop - rows.start
        virtual = self.layers.has_virtual_sink
        support = rows.support(self.layers)
        sink = np.zeros(n_keys, dtype=bool)
        if self._sink_rule == "found":
            mass, seen = column_mass(rows.logits, support)
            sink[:length] = found_columns(mass[:, :length], seen[:length])
        elif self._held is not None:
            sink[self._held_positions(rows.document, length)] = True
        else:
            sink[[position for position in self._sink if position < length]] = True
        positions = np.arange(n_keys)
        if virtual:
            sink[-1], positions[-1] = True, -1
        tokens, bos = self._documents.tokens(rows.document)
        if tokens is not None and virtual:
            tokens, bos = np.append(tokens, "(learned sink)"), np.append(bos, False)
        padding = batch.width - length
        return make_block(
            document=rows.document,
            log_weights=rows.logits,
            support=support,
            sink=sink,
            queries=rows.queries,
            heads=self.heads,
            excluded={"padding": padding} if padding else None,
            virtual=virtual,
            keys=KeyLabels(positions, tokens, bos, rows.value_norms),
        )

    def _held_positions(self, document: int, length: int) -> list[int]:
        held = self._held or {}
        if document not in held or not all(0 <= p < length for p in held[document]):
            raise RowError(
                f"sink= holds {held.get(document)} for document {document} of {length} tokens, "
                "expected positions in it: sinks found on other documents, or on others cut to "
                "another length"
            )
        return [int(position) for position in held[document]]

    def _forward(self, batch: Batch, recorder: LayoutRecorder | RowRecorder) -> None:
        model = self._model
        inputs = model_inputs(model, batch)
        # a config that asks for outputs would make the model install hooks of its own
        for name in ("output_attentions", "output_hidden_states"):
            if getattr(model.config, name, False):
                inputs[name] = False
        with listening(model, recorder):
            model(**inputs)


def _model_name(model: torch.nn.Module) -> str:
    """Hub id, or the last part of a local path: a card doesn't say where a folder lies."""
    name = getattr(model.config, "_name_or_path", "") or type(model).__name__
    quantization = getattr(model.config, "quantization_config", None)
    file = getattr(quantization, "gguf_file", None)
    if file:
        return Path(file).name
    return "/".join(Path(name).resolve().parts[-2:]) if Path(name).is_dir() else name


def weights_fingerprint(model: torch.nn.Module) -> str:
    """Return what tells two sets of weights apart: of their names, shapes and some values."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name}{tuple(weight.shape)}{weight.dtype}".encode())
        some = weight.detach().reshape(-1)[:: max(1, weight.numel() // 16)]
        digest.update(some.float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _quantization(config: Any) -> str | None:
    quantization = getattr(config, "quantization_config", None)
    if quantization is None:
        return None
    settings = quantization if isinstance(quantization, dict) else vars(quantization)
    method = settings.get("quant_method")
    return str(getattr(method, "value", method))


def _one_or_all(numbers: Sequence[int]) -> int | list[int]:
    return numbers[0] if len(set(numbers)) == 1 else list(numbers)
