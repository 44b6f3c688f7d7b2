"""Run a model on one document as it is: evaluation mode, no padding, no cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sinkwise.capture.documents import Batch, Documents
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = [
    "evaluating",
    "model_inputs",
    "refuse_encoder_decoder",
    "whole_document",
    "without_output_head",
]


def whole_document(documents: Documents, number: int) -> Batch:
    """Return one document as a batch of its own, without padding."""
    return documents.batch((number,), documents.length(number))


def model_inputs(model: torch.nn.Module, batch: Batch) -> dict[str, Any]:
    """Return a batch as the keywords of the model's forward, on its device."""
    inputs = {name: tensor.to(model.device) for name, tensor in batch.inputs.items()}
    if "pixel_values" in inputs:
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs["use_cache"] = False
    return inputs


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Dropout off; each module gets back its own mode, which need not be its parent's."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def without_output_head(model: torch.nn.Module) -> torch.nn.Module:
    """The part that attends: a language model's head costs as much as several layers."""
    base: torch.nn.Module = model.base_model
    # some vision models call their encoder the base, which reads embeddings, not pixels
    reads = inspect.signature(base.forward).parameters
    return base if model.main_input_name in reads else model


def refuse_encoder_decoder(model: torch.nn.Module) -> None:
    """Raise for a model whose attention calls are of two stacks.

    Raises
    ------
    CaptureError
        If it is an encoder-decoder.
    """
    if getattr(model.config, "is_encoder_decoder", False):
        raise CaptureError(
            f"{type(model).__name__} is an encoder-decoder: its cross-attention rows and its two "
            "stacks can't be captured together yet. Pass its encoder, model.get_encoder(), if it "
            "is a transformers model of its own"
        )
