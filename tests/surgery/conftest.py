"""Tiny models whose heads are zeroed by hand, at the input of the projection named here."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
)

from sinkwise.capture.families import FAMILIES  # noqa: E402

CONFIGS = {family.model_type: dict(family.config) for family in FAMILIES}
for like in ("phi3", "qwen3", "gemma3_text", "olmo2", "mixtral"):
    CONFIGS[like] = CONFIGS["llama"]
CONFIGS["opt"] = {
    key: value for key, value in CONFIGS["bert"].items() if key != "initializer_range"
} | {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3}

OUTPUTS = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "gpt_neox": "gpt_neox.layers.{}.attention.dense",
    "bert": "encoder.layer.{}.attention.output.dense",
    "roberta": "encoder.layer.{}.attention.output.dense",
    "vit": "layers.{}.attention.o_proj",
    "dinov2": "encoder.layer.{}.attention.o_proj",
    "dinov3_vit": "model.layer.{}.attention.o_proj",
    "opt": "model.decoder.layers.{}.self_attn.out_proj",
}
"""Where heads meet, by hand; elsewhere it is Llama's name."""

DECODERS = ("gpt2", "gpt_neox", "llama", "qwen2", "mistral", "gemma2", "gpt_oss", "phi3", "qwen3")
ENCODERS = ("bert", "roberta")
VISION = ("vit", "dinov2", "dinov3_vit")


@pytest.fixture
def model_of():
    """``model_of("llama", num_hidden_layers=2)``: random weights, biases and learned sinks too."""

    def build(model_type: str, implementation: str | None = None, seed: int = 0, **changes):
        config = AutoConfig.for_model(model_type, **(CONFIGS[model_type] | changes))
        options = {} if implementation is None else {"attn_implementation": implementation}
        if model_type == "t5":
            auto = AutoModelForSeq2SeqLM
        else:
            bare = (*ENCODERS, *VISION, "albert")
            auto = AutoModel if model_type in bare else AutoModelForCausalLM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = auto.from_config(config, **options)
            for name, parameter in model.named_parameters():
                if parameter.ndim == 1:  # at 0 or 1 a lost bias would not show
                    torch.nn.init.normal_(parameter, float(name.endswith("norm.weight")), 0.3)
        return model.eval()

    return build


@pytest.fixture
def inputs_of():
    """``inputs_of("llama")``: two inputs of 14 tokens, or two images, as keywords."""

    def build(model_type: str, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        if model_type in VISION:
            return {"pixel_values": torch.randn((2, 3, 16, 16), generator=generator)}
        ids = torch.randint(3, 64, (2, 14), generator=generator)
        return {"input_ids": ids} | ({"decoder_input_ids": ids} if model_type == "t5" else {})

    return build


@pytest.fixture
def run():
    """``run(model, inputs)``: its logits, or the states of a model without a head."""

    def outputs(model, inputs):
        with torch.no_grad():
            found = model(**inputs)
        return found.logits if "logits" in found else found.last_hidden_state

    return outputs


@pytest.fixture
def zeroed():
    """``with zeroed(model, "llama", heads, head_dim=8)``: heads zeroed by a hook of its own."""

    @contextmanager
    def context(model, model_type: str, heads, head_dim: int = 8):
        name = OUTPUTS.get(model_type, "model.layers.{}.self_attn.o_proj")
        with ExitStack() as undo:
            for layer, index in heads:
                columns = slice(index * head_dim, (index + 1) * head_dim)

                def zero(module, args, columns=columns):
                    joined = args[0].clone()
                    joined[..., columns] = 0
                    return (joined,)

                module = model.get_submodule(name.format(layer))
                undo.callback(module.register_forward_pre_hook(zero).remove)
            yield model

    return context
