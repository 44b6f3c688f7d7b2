"""The batch a monitor looks at again and again, and which of its tokens belong together."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.capture.documents import open_documents
from sinkwise.errors import InputTypeError, RowError

if TYPE_CHECKING:
    import torch

__all__ = ["FEWEST_TOKENS", "Probe", "ProbeDocument", "batch_probe", "text_probe"]

FEWEST_TOKENS = 3
"""A row needs the sink and two content tokens."""


@dataclass(frozen=True)
class ProbeDocument:
    """Tokens ``start`` to ``stop`` of batch element ``item``."""

    number: int
    item: int
    start: int
    stop: int


@dataclass(frozen=True)
class Probe:
    """A batch held fixed.

    Attributes
    ----------
    inputs
        Keywords of the model's forward; copies, without labels.
    documents
        Where each document stands; ``None`` for images, all of whose tokens are one document.
    """

    inputs: Mapping[str, torch.Tensor]
    documents: tuple[ProbeDocument, ...] | None

    @property
    def n_items(self) -> int:
        """Elements of the batch."""
        return next(iter(self.inputs.values())).shape[0]

    def documents_of(self, width: int) -> tuple[ProbeDocument, ...]:
        """Return the documents, for images `width` tokens each."""
        if self.documents is not None:
            return self.documents
        return tuple(ProbeDocument(i, i, 0, width) for i in range(self.n_items))


def text_probe(
    model: torch.nn.Module, tokenizer: Any, texts: Sequence[Any], max_length: int | None
) -> Probe:
    """Return texts, or sequences of token ids, as a probe; tokenised and padded as in an audit.

    Raises
    ------
    InputTypeError
        If `texts` is a single text, or strings came without a tokenizer.
    RowError
        If no text has three tokens.
    """
    documents = open_documents(model, tokenizer, texts, max_length=max_length, documents=None)
    numbers = range(len(documents))
    batch = documents.batch(numbers, max(documents.length(n) for n in numbers))
    places = enumerate(zip(batch.starts, batch.stops, strict=True))
    images = "pixel_values" in batch.inputs
    found = tuple(ProbeDocument(i, i, start, stop) for i, (start, stop) in places)
    return Probe(dict(batch.inputs), None if images else found)


def batch_probe(model: torch.nn.Module, batch: Any) -> Probe:
    """Return a copy of a training batch as a probe.

    Parameters
    ----------
    model
        The transformers model; what its forward doesn't name is left out, and labels too.
    batch
        A mapping of tensors ``(batch, ...)`` with ``input_ids`` or ``pixel_values``; padding as
        its two-dimensional ``attention_mask`` says, packed documents as its ``position_ids`` say,
        which begin anew with each.

    Raises
    ------
    InputTypeError
        If `batch` is no such mapping.
    RowError
        If a mask has holes, or no document has three tokens.
    """
    import torch

    main = getattr(model, "main_input_name", "input_ids")
    if not isinstance(batch, Mapping) or not isinstance(batch.get(main), torch.Tensor):
        raise InputTypeError(
            f"a batch of class {type(batch).__name__} arrived, expected a mapping with a tensor "
            f'{main!r}: type Monitor(model, probe={{"{main}": ...}}), or probe=[text, ...] with '
            "tokenizer=tokenizer"
        )
    n_items = batch[main].shape[0]
    named = set(inspect.signature(model.forward).parameters) - {"labels"}
    inputs = {
        name: value.detach().clone()
        for name, value in batch.items()
        if name in named and isinstance(value, torch.Tensor) and value.shape[:1] == (n_items,)
    }
    if main not in inputs:
        raise InputTypeError(
            f"{type(model).__name__} reads {main}, which its forward doesn't name: pass the part "
            "of the model that does"
        )
    if main == "pixel_values":
        return Probe(inputs, None)
    return Probe(inputs, _documents(inputs))


def _documents(inputs: Mapping[str, torch.Tensor]) -> tuple[ProbeDocument, ...]:
    n_items, width = inputs["input_ids"].shape[:2]
    mask, positions = inputs.get("attention_mask"), inputs.get("position_ids")
    found: list[ProbeDocument] = []
    for item in range(n_items):
        start, stop = 0, width
        if mask is not None and mask.ndim == 2:
            start, stop = _real(mask[item], item)
        begins = [start]
        if positions is not None and positions.shape == (n_items, width):
            steps = positions[item, start:stop].diff()
            begins += [start + int(i) + 1 for i in (steps != 1).nonzero()[:, 0]]
        for begin, end in zip(begins, [*begins[1:], stop], strict=True):
            if end - begin >= FEWEST_TOKENS:
                found.append(ProbeDocument(len(found), item, begin, end))
    if not found:
        raise RowError(
            f"the probe holds {n_items} sequences of {width} tokens and no document of "
            f"{FEWEST_TOKENS} or more: a row needs the sink and two content tokens, so pass "
            "longer ones"
        )
    return tuple(found)


def _real(mask: torch.Tensor, item: int) -> tuple[int, int]:
    """First and last column of the real tokens."""
    real = (mask != 0).nonzero()[:, 0]
    if not len(real):
        return 0, 0
    start, stop = int(real[0]), int(real[-1]) + 1
    if stop - start != len(real):
        raise RowError(
            f"attention_mask of sequence {item} has holes: {len(real)} real tokens from column "
            f"{start} to {stop - 1}. Expected padding before or after a document: pass a probe of "
            "whole documents"
        )
    return start, stop
