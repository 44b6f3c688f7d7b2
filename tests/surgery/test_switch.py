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
