"""What a removal is said to save is what the smaller model has and does, by PyTorch's count."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from sinkwise.errors import RowError  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.removal_cost import removal_cost  # noqa: E402

SETS = {
    "one head": [(0, 1)],
    "uneven": [(0, 0), (0, 1), (1, 2)],
    "a layer": [(1, 0), (1, 1), (1, 2), (1, 3), (0, 2)],
    "a layer's group": [(2, 2), (2, 3)],
}


def inputs(family, n_tokens):
    if family in ("vit", "dinov3_vit"):
        return {"pixel_values": torch.zeros(1, 3, 16, 16)}
    ids = (torch.arange(n_tokens) % 50 + 3)[None]
    return {"input_ids": ids} | ({"decoder_input_ids": ids} if family == "t5" else {})


def counted(model, family, n_tokens):
    """Multiply-adds of a pass: two floating-point operations each."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = model(**inputs(family, n_tokens))
    return counter.get_total_flops() / 2, output


def cached_bytes(output, n_tokens):
    cache = output.get("cache", output.get("past_key_values"))
    if cache is None:
        return 0
    parts = [getattr(cache, "self_attention_cache", cache)]
    parts += [cache.cross_attention_cache] if hasattr(cache, "cross_attention_cache") else []
    return (
        sum(
            tensor.numel() * tensor.element_size()
            for part in parts
            for layer in part.layers
            for tensor in (layer.keys, layer.values)
            if tensor is not None
        )
        / n_tokens
    )


@pytest.mark.parametrize("heads", SETS.values(), ids=SETS)
@pytest.mark.parametrize(
    "family",
    [
        *("gpt2", "gpt_neox", "llama", "gemma2", "gpt_oss", "phi3", "qwen3"),
        *("bert", "vit", "dinov3_vit", "t5"),
    ],
)
def test_it_is_what_the_smaller_model_has_and_does(family, heads, model_of):
    # eager: PyTorch doesn't count its fused attention on a CPU
    # a window as wide as the document, or the cache holds fewer tokens than there are
    window = {"sliding_window": 64} if family in ("gemma2", "gpt_oss") else {}
    model = model_of(family, "eager", **window)
    cost = removal_cost(model, heads, 17)
    for built, parameters, work, cache in (
        (model, cost.parameters, cost.multiply_adds, cost.cache_bytes),
        (
            remove_heads(model, heads),
            cost.parameters_after,
            cost.multiply_adds_after,
            cost.cache_bytes_after,
        ),
    ):
        assert parameters == sum(p.numel() for p in built.parameters())
        flops, output = counted(built, family, 17)
        assert work * cost.n_tokens == pytest.approx(flops, rel=1e-12)
        assert cache == pytest.approx(cached_bytes(output, cost.n_tokens), rel=1e-12)


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_fused_attention_is_counted_like_eager(family, model_of):
    fused = removal_cost(model_of(family, "sdpa"), [(0, 1)], 12)
    assert fused == removal_cost(model_of(family, "eager"), [(0, 1)], 12)


def test_by_hand():
    """One layer, 4 query heads of width 2 over 2 key/value heads, d_model 8; head 1 goes."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=2,
        intermediate_size=3,
        vocab_size=5,
    )
    cost = removal_cost(LlamaModel(config), [(0, 1)], 10)
    # query and output: 8 x 2 each; attention: 2 x 2 multiply-adds for each of 10 keys
    assert cost.parameters - cost.parameters_after == 32
    assert cost.multiply_adds - cost.multiply_adds_after == 32 + 40
    assert cost.cache_bytes == cost.cache_bytes_after == 2 * 2 * 2 * 4
    both = removal_cost(LlamaModel(config), [(0, 0), (0, 1)], 10)
    assert both.parameters - both.parameters_after == 64 + 32
    assert both.cache_bytes_after == 16
    dense = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 3 * 8 + 2 * 8 * 10
    assert both.multiply_adds == dense and both.multiply_adds_after == dense - 96 - 80


def test_a_smaller_model_can_be_asked_again(model_of):
    smaller = remove_heads(model_of("llama"), [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)])
    cost = removal_cost(smaller, [(0, 0), (2, 1)], 9)
    assert cost.parameters == sum(p.numel() for p in smaller.parameters())
    least = remove_heads(smaller, [(0, 0), (2, 1)])
    assert cost.parameters_after == sum(p.numel() for p in least.parameters())


def test_the_model_is_left_as_it_was_and_bad_lengths_are_named(model_of):
    model = model_of("llama").train()
    removal_cost(model, [(0, 0)], 5)
    assert model.training and not any(m._forward_hooks for m in model.modules())
    for bad in (0, 2.5, None):
        with pytest.raises(RowError, match="expected the length of a document"):
            removal_cost(model, [(0, 0)], bad)


def test_it_reads_as_three_lines(model_of):
    lines = str(removal_cost(model_of("bert"), [(0, 1)], 8)).splitlines()
    assert len(lines) == 3 and lines[2] == "cache bytes a token: 0 -> 0 (none)"
