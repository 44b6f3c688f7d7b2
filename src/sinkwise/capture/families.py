"""Tiny models of the families that capture is checked on, with random weights, built offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["FAMILIES", "Family", "tiny_inputs", "tiny_model"]

_VOCABULARY = 64
_TEXT = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
    "initializer_range": 0.3,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}
_GPT2 = {
    "vocab_size": _VOCABULARY,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "initializer_range": 0.3,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_SLIDING = ["full_attention", "sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Family:
    """How to build a tiny model of one family.

    Attributes
    ----------
    model_type
        Name in transformers.
    shows
        What of attention the family is here for.
    config
        Arguments of its config.
    vision
        Whether it reads images.
    """

    model_type: str
    shows: str
    config: Mapping[str, Any] = field(default_factory=dict)
    vision: bool = False


FAMILIES: tuple[Family, ...] = (
    Family("gpt2", "absolute positions", _GPT2),
    Family("gpt_neox", "rotary positions, fused projections", _TEXT),
    Family("llama", "grouped key heads", _TEXT | _GROUPED),
    Family(
        "qwen2",
        "a sliding window in some layers",
        _TEXT
        | _GROUPED
        | {"use_sliding_window": True, "sliding_window": 4, "layer_types": _SLIDING},
    ),
    Family("mistral", "a sliding window in every layer", _TEXT | _GROUPED | {"sliding_window": 4}),
    Family(
        "gemma2",
        "soft-capped logits",
        _TEXT
        | _GROUPED
        | {"attn_logit_softcapping": 5.0, "sliding_window": 4, "layer_types": _SLIDING},
    ),
    Family(
        "gpt_oss",
        "learned sink logits",
        _TEXT
        | _GROUPED
        | {
            "sliding_window": 4,
            "layer_types": _SLIDING,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
        },
    ),
    Family("bert", "bidirectional, class token", _TEXT | {"type_vocab_size": 2}),
    Family("roberta", "positions counted from the pad token", _TEXT | {"type_vocab_size": 1}),
    Family("albert", "one layer's weights run for all", _TEXT | {"embedding_size": 16}),
    Family("vit", "images, class token", _VISION, vision=True),
    Family("dinov2", "images, class token", _VISION | {"mlp_ratio": 2}, vision=True),
    Family(
        "dinov3_vit", "images, register tokens", _VISION | {"num_register_tokens": 2}, vision=True
    ),
    Family(
        "bloom",
        "attention outside the interface",
        {"vocab_size": _VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    ),
    Family("longformer", "banded attention", _TEXT | {"attention_window": 4}),
    Family(
        "t5",
        "encoder-decoder",
        {
            "vocab_size": _VOCABULARY,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
    ),
)


def tiny_model(
    family: Family, *, implementation: str | None = None, seed: int = 0
) -> torch.nn.Module:
    """Return a tiny model of `family` in evaluation mode, the same for the same seed.

    Parameters
    ----------
    implementation
        Attention implementation to load; by default the one transformers chooses.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(family.model_type, **family.config)
    options = {} if implementation is None else {"attn_implementation": implementation}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModel.from_config(config, **options)
        for name, weight in model.named_parameters():
            # left at their construction values these would hide a missing learned sink
            if name.endswith("sinks"):
                torch.nn.init.normal_(weight)
    return model.eval()


def tiny_inputs(family: Family, *, seed: int = 0) -> list[Any]:
    """Return documents that `family` reads without a processor: token ids, or pixel arrays."""
    import numpy as np

    rng = np.random.default_rng(seed)
    if family.vision:
        return [rng.normal(size=(3, 16, 16)).astype(np.float32) for _ in range(3)]
    # ids from 3 on: the smaller ones are special
    return [rng.integers(3, _VOCABULARY, size=length) for length in (12, 9, 10)]
