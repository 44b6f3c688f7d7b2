"""The 12-layer decoder, of random weights, whose training benchmarks are timed on."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, LAYERS, HEADS, WIDTH = 512, 12, 8, 256


def small_decoder(length: int) -> LlamaForCausalLM:
    """A decoder for sequences of `length` tokens; its weights are the same every time."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=4 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=length,
        )
    )


def random_ids(seed: int, batch: int, length: int) -> torch.Tensor:
    """Token ids ``(batch, length)``; the same seed gives the same ones."""
    return torch.randint(
        0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed)
    )
