"""Tiny models of each family, built offline with random weights, and what they are held against."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(
    1
)  # tiny matrices: threads of several test processes only wait for each other

from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}


@pytest.fixture
def build():
    """``build("gpt2", implementation="sdpa")``: a tiny model in evaluation mode."""

    def build_one(model_type: str, implementation: str | None = None):
        return tiny_model(BY_TYPE[model_type], implementation=implementation)

    return build_one


@pytest.fixture
def documents():
    """``documents("gpt2")``: token ids, or pixel arrays for a vision family."""
    return lambda model_type: tiny_inputs(BY_TYPE[model_type])


@pytest.fixture
def eager_weights():
    """``eager_weights(model_type, document)``: the model's own ``output_attentions``.

    ``(heads, queries, keys)`` in layer-major order, from a fresh eager model on one document.
    """

    def weights(model_type: str, document, dtype=torch.float32):
        model = tiny_model(BY_TYPE[model_type], implementation="eager").to(dtype)
        value = torch.as_tensor(np.asarray(document))[None]
        value = value.to(dtype) if value.is_floating_point() else value
        with torch.no_grad():
            out = model(**{model.main_input_name: value}, output_attentions=True)
        return torch.cat([layer[0].float() for layer in out.attentions]).numpy()

    return weights


@pytest.fixture
def block_weights():
    """Attention weights of a block: the softmax of its logits over the support, in float64."""

    def weights(block):
        logits = np.where(block.support, block.log_weights.astype(np.float64), -np.inf)
        top = logits.max(-1, keepdims=True)
        exponentials = np.exp(logits - np.where(np.isfinite(top), top, 0))
        total = exponentials.sum(-1, keepdims=True)
        return np.divide(exponentials, total, out=np.zeros_like(logits), where=total > 0)

    return weights


@pytest.fixture
def padding():
    """``padding("left")``: of a tokenizer, what capture reads when documents are token ids."""
    return lambda side: SimpleNamespace(padding_side=side, pad_token_id=0)


class WordTokenizer:
    """One token a character, behind a begin token; it fails on any attribute being set."""

    padding_side = "right"
    pad_token_id = None
    eos_token_id = 2
    bos_token_id = 1
    model_max_length = 10**30
    special_tokens_map = {"bos_token": "<s>"}  # noqa: RUF012

    def __call__(self, text, truncation=False, max_length=None, verbose=True):
        ids = [1, *(3 + ord(letter) % 60 for letter in text)] if text else []
        return {"input_ids": ids[:max_length] if truncation else ids}

    def __setattr__(self, name, value):
        raise AssertionError(f"capture changed the tokenizer's {name}")


@pytest.fixture
def tokenizer():
    return WordTokenizer()
