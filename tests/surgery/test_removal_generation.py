"""Generating with a cache, whole layers gone or groups uneven, is generating without one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.switch import switch_off  # noqa: E402

SETS = {
    "uneven groups": [(0, 1), (1, 0), (1, 2), (1, 3)],
    "the first layer gone": [(0, 0), (0, 1), (0, 2), (0, 3), (1, 1)],
    "all layers gone": [(layer, index) for layer in range(3) for index in range(4)],
}
OPTIONS = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}


def prompts():
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    ids[0, :3] = mask[0, :3] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("heads", SETS.values(), ids=SETS)
@pytest.mark.parametrize(
    "family", ["gpt2", "gpt_neox", "llama", "qwen2", "mistral", "gemma2", "gpt_oss", "phi3"]
)
def test_cached_is_uncached_and_switched_off(family, heads, model_of):
    model = model_of(family)
    smaller = remove_heads(model, heads)
    options = OPTIONS | {"output_scores": True, "return_dict_in_generate": True}
    cached = smaller.generate(**prompts(), use_cache=True, **options)
    uncached = smaller.generate(**prompts(), use_cache=False, **options)
    with switch_off(model, heads):
        masked = model.generate(**prompts(), use_cache=True, **options)
    assert torch.equal(cached.sequences, uncached.sequences)
    assert torch.equal(cached.sequences, masked.sequences)
    for a, b, c in zip(cached.scores, uncached.scores, masked.scores, strict=True):
        # the cached pass sums in another order from the first token on
        assert max((a - b).abs().max(), (a - c).abs().max()) < 2e-5 * a.abs().max()


@pytest.mark.parametrize("heads", list(SETS.values())[:2], ids=list(SETS)[:2])
@pytest.mark.parametrize("how", [{"num_beams": 3}, {"cache_implementation": "static"}])
def test_beams_and_static_caches(heads, how, model_of):
    smaller = remove_heads(model_of("llama"), heads)
    extra = {"disable_compile": True} if "cache_implementation" in how else {}
    found = smaller.generate(**prompts(), **how, **extra, **OPTIONS)
    beams = {"num_beams": how.get("num_beams", 1)}
    assert torch.equal(found, smaller.generate(**prompts(), use_cache=False, **beams, **OPTIONS))


@pytest.mark.parametrize("how", [{}, {"cache_implementation": "static", "disable_compile": True}])
@pytest.mark.parametrize("layers", [(0,), (2,), (3,), (2, 3, 4, 5)])
def test_an_encoder_decoder_generates_without_some_layers(layers, how, model_of):
    """0, 1: encoder; 2, 4: the decoder's own attention; 3, 5: its attention to the encoder."""
    model = model_of("t5", num_layers=2)
    for stack in (model.encoder, model.decoder):
        torch.nn.init.normal_(stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
    heads = [(layer, index) for layer in layers for index in range(4)]
    smaller = remove_heads(model, heads)
    options = OPTIONS | {"output_scores": True, "return_dict_in_generate": True}
    found = smaller.generate(**prompts(), **how, **options)
    uncached = smaller.generate(**prompts(), use_cache=False, **options)
    with switch_off(model, heads):
        masked = model.generate(**prompts(), **options)
    for other in (uncached, masked):
        for a, b in zip(found.scores, other.scores, strict=True):
            assert (a - b).abs().max() < 2e-5 * a.abs().max()


def test_a_cache_grown_by_hand_keeps_the_place(model_of, run):
    """One token at a time against the whole sequence at once."""
    smaller = remove_heads(model_of("llama"), SETS["the first layer gone"])
    ids = prompts()["input_ids"][1:]
    whole = run(smaller, {"input_ids": ids})
    cache, steps = None, []
    with torch.no_grad():
        for token in ids.T:
            step = smaller(token[None], past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            steps.append(step.logits)
    assert cache.get_seq_length() == 9
    assert (torch.cat(steps, 1) - whole).abs().max() < 1e-5 * whole.abs().max()
