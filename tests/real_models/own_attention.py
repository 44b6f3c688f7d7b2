"""A pretrained model's own attention, by its eager path: what captured rows are held against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def attending(model: Any, implementation: str) -> Iterator[None]:
    """Run `model` under another attention implementation, then put its own back."""
    before = model.config._attn_implementation
    model.set_attn_implementation(implementation)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def eager_weights(model: Any, inputs: Any) -> np.ndarray:
    """``output_attentions`` of one document: ``(heads, queries, keys)``, heads layer by layer."""
    import torch

    with attending(model, "eager"), torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    return torch.cat([layer[0] for layer in attentions]).numpy()
