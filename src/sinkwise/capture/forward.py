"""Run a model on one document as it is: evaluation mode, no padding, no cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sinkwise.capture.documents import Batch, Documents

if TYPE_CHECKING:
    import torch

__all__ = ["evaluating", "model_inputs", "whole_document"]


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
