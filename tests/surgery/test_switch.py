"""Heads switched off: held to weights zeroed by hand, on every family that can be captured."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.errors import CaptureError, RowError  # noqa: E402
from sinkwise.surgery.output_projections import heads_of, output_projections  # noqa: E402

REFUSED = {"albert", "bloom", "longformer", "t5"}
SERVED = [family for family in FAMILIES if family.model_type not in REFUSED]
OFF = [(0, 1), (0, 3), (2, 0)]


def _run(model, family):
    document = torch.as_tensor(tiny_inputs(family)[0])[None]
    name = "pixel_values" if family.vision else "input_ids"
    with torch.no_grad():
        return model(**{name: document}).last_hidden_state


@pytest.fixture(params=SERVED, ids=lambda family: family.model_type)
def family(request):
    return request.param


def test_zero_is_what_zeroed_output_weights_give(family):
    model, by_hand = tiny_model(family), tiny_model(family)
    for projection in output_projections(by_hand):
        for layer, index in OFF:
            if layer == projection.layer:
                projection.head_weights()[index] = 0
    with sw.switch_off(model, OFF):
        found = _run(model, family)
    torch.testing.assert_close(found, _run(by_hand, family), atol=1e-5, rtol=0)


def test_mean_puts_the_mean_in_place_and_leaves_no_trace(family):
    model = tiny_model(family)
    dense = _run(model, family)
    projections = output_projections(model)
    means = np.random.default_rng(0).normal(size=(len(heads_of(projections)), 8))
    seen = {}

    def look(projection):
        def hook(module, args):
            seen[projection.layer] = args[0].unflatten(-1, (projection.n_heads, -1))

        return projection.module.register_forward_pre_hook(hook)

    with sw.switch_off(model, OFF, operation="mean", means=means):
        hooks = [look(projection) for projection in projections]  # after ours: they see its work
        changed = _run(model, family)
    for hook in hooks:
        hook.remove()
    assert float((changed - dense).abs().max()) > 1e-3
    for layer, index in OFF:
        own = torch.from_numpy(means[4 * layer + index]).float()
        torch.testing.assert_close(
            seen[layer][0, :, index], own.expand_as(seen[layer][0, :, index])
        )
    assert torch.equal(_run(model, family), dense)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_mask_that_never_applied_is_an_error():
    model = tiny_model(SERVED[0])
    with (
        pytest.raises(CaptureError, match=r"L0H1, L0H3 were never switched off"),
        sw.switch_off(model, OFF),
    ):
        pass
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_an_error_inside_is_not_hidden_by_ours():
    model = tiny_model(SERVED[0])
    with pytest.raises(ZeroDivisionError), sw.switch_off(model, OFF):
        _ = 1 / 0
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_generation_and_foreign_hooks():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=40, initializer_range=0.3)
    model = GPT2LMHeadModel(config).eval()
    calls = []
    foreign = model.transformer.h[0].attn.c_proj.register_forward_pre_hook(
        lambda module, args: calls.append(1)
    )
    ids = torch.tensor([[5, 6, 7]])
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with sw.switch_off(model, [(0, 0), (1, 2)]):
        cached = model.generate(ids, use_cache=True, **options)
        whole = model.generate(ids, use_cache=False, **options)
    assert torch.equal(cached, whole)
    assert len(calls) >= 12
    foreign.remove()


def _decoder():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 16, "vocab_size": 40}
    config = LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes)
    return LlamaForCausalLM(config).eval()


IDS = torch.tensor([[5, 6, 7, 8, 9]])


def _logits(model):
    with torch.no_grad():
        return model(IDS).logits


def test_one_within_another_is_both():
    model = _decoder()
    with sw.switch_off(model, [(0, 1), (0, 2), (1, 3)]):
        together = _logits(model)
    with sw.switch_off(model, [(0, 1)]), sw.switch_off(model, [(0, 2), (1, 3)]):
        nested = _logits(model)
    assert torch.equal(nested, together)


def test_hooks_that_change_what_is_projected_come_before_and_stay():
    model = _decoder()
    projection = model.model.layers[0].self_attn.o_proj
    with torch.no_grad():
        projection.weight.mul_(2)
    with sw.switch_off(model, [(0, 1)]):
        expected = _logits(model)
    with torch.no_grad():
        projection.weight.div_(2)
    projection.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    with sw.switch_off(model, [(0, 1)]):
        assert torch.equal(_logits(model), expected)
    removed = sw.remove_heads(model, [(0, 1)])
    torch.testing.assert_close(_logits(removed), expected, atol=1e-5, rtol=0)
    assert len(projection._forward_pre_hooks) == 1


def _without_a_compiler(monkeypatch):
    """Let the name flex_attention stand for sdpa: its masks are not read, and nothing compiles."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
        mapping = type(interface)._global_mapping
        monkeypatch.setitem(mapping, "flex_attention", mapping["sdpa"])


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_flex_attention_is_as_good_as_any(monkeypatch, real):
    model = _decoder()
    with sw.switch_off(model, OFF[:2]):
        expected = _logits(model)
    if not real:
        _without_a_compiler(monkeypatch)
    model.set_attn_implementation("flex_attention")
    with sw.switch_off(model, OFF[:2]):
        torch.testing.assert_close(_logits(model), expected, atol=1e-5, rtol=0)
    removed = sw.remove_heads(model, OFF[:2])
    torch.testing.assert_close(_logits(removed), expected, atol=1e-5, rtol=0)
    assert removed.config._attn_implementation == "flex_attention"
    with pytest.raises(CaptureError, match=r"doesn't count.*set_attn_implementation"):
        sw.removal_cost(model, OFF[:2], 8)


@pytest.mark.parametrize(
    "heads",
    [[(0, 1.9)], [(0.5, 1)], ["01"], [("0", "1")], [(True, False)], [(0, float("inf"))], 3, None],
)
def test_heads_are_pairs_of_whole_numbers(heads):
    model = _decoder()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RowError, match=r"\(layer, index\)"):
        sw.remove_heads(model, heads)
    with pytest.raises(RowError, match=r"\(layer, index\)"), sw.switch_off(model, heads):
        pass
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with sw.switch_off(model, [(np.int64(0), np.int32(1))]):
        _logits(model)


@pytest.mark.parametrize(
    ("heads", "options", "said"),
    [
        ([(9, 0)], {}, "the layers that attend are"),
        ([(0, 4)], {}, "type an index from 0 to 3"),
        ([], {}, "no head arrived"),
        ([3], {}, "expected a HeadId or a pair"),
        ([(0, 0)], {"operation": "halve"}, 'expected "zero" or "mean"'),
        ([(0, 0)], {"operation": "mean"}, "needs the heads' mean outputs"),
        ([(0, 0)], {"means": np.zeros((12, 8))}, 'type operation="mean"'),
        ([(0, 0)], {"operation": "mean", "means": np.zeros((3, 8))}, r"expected \(12, 8\)"),
    ],
)
def test_what_cannot_be_switched_off_is_refused(heads, options, said):
    with (
        pytest.raises(RowError, match=said),
        sw.switch_off(tiny_model(SERVED[0]), heads, **options),
    ):
        pass


def test_a_mean_that_is_not_finite_is_refused():
    model = tiny_model(SERVED[0])
    means = np.full((12, 8), np.nan)
    with (
        pytest.raises(RowError, match="isn't finite"),
        sw.switch_off(model, [(0, 0)], operation="mean", means=means),
    ):
        _run(model, SERVED[0])


@pytest.mark.parametrize("name", ["albert", "bloom"])
def test_models_whose_heads_cannot_be_told_apart_are_refused(name):
    family = next(family for family in FAMILIES if family.model_type == name)
    with pytest.raises(CaptureError):
        output_projections(tiny_model(family))


def test_encoder_decoders_count_their_attentions():
    family = next(family for family in FAMILIES if family.model_type == "t5")
    found = output_projections(tiny_model(family))
    assert [projection.layer for projection in found] == list(range(6))
