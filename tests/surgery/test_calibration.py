"""What heads write and how the loss depends on them: by hand, by finite differences, merged."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM  # noqa: E402

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.errors import RowError  # noqa: E402
from sinkwise.surgery.evaluation import Evaluation  # noqa: E402
from sinkwise.surgery.head_outputs import head_outputs  # noqa: E402
from sinkwise.surgery.leave_one_out import leave_one_out  # noqa: E402
from sinkwise.surgery.output_projections import heads_of, output_projections  # noqa: E402
from sinkwise.surgery.residual_writes import recording_writes  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
TEXTS = [[5, 9, 3, 17, 8, 4, 21, 6], [7, 7, 12, 30, 11, 5]]


def _language_model(name="llama", seed=0):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(name, **BY_TYPE[name].config)
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_neox", "bert", "dinov2"])
def test_writes_of_the_heads_add_up_to_what_the_layer_adds(name):
    """With the projection's bias gone, the heads' writes are the attention's whole output."""
    model = tiny_model(BY_TYPE[name])
    projections = output_projections(model)
    for projection in projections:
        if getattr(projection.module, "bias", None) is not None:
            torch.nn.init.zeros_(projection.module.bias)
    document = torch.as_tensor(tiny_inputs(BY_TYPE[name])[0])[None]
    given = {"pixel_values" if BY_TYPE[name].vision else "input_ids": document}
    after = {}
    hooks = []
    if name == "gemma2":  # a norm stands behind the projection
        hooks = [
            layer.post_attention_layernorm.register_forward_hook(
                lambda module, args, output, number=number: after.update({number: output})
            )
            for number, layer in enumerate(model.layers)
        ]
    elif name == "dinov2":  # a learned scale stands behind it
        for layer in model.encoder.layer:
            torch.nn.init.uniform_(layer.layer_scale1.lambda1, 0.5, 1.5)
        hooks = [
            layer.layer_scale1.register_forward_hook(
                lambda module, args, output, number=number: after.update({number: output})
            )
            for number, layer in enumerate(model.encoder.layer)
        ]
    else:
        hooks = [
            projection.module.register_forward_hook(
                lambda module, args, output, number=projection.layer: after.update({number: output})
            )
            for projection in projections
        ]
    with torch.no_grad(), recording_writes(model, projections, graph=False) as writes:
        model(**given)
    for hook in hooks:
        hook.remove()
    assert len(after) == 3
    for layer in writes:
        outputs = layer.by_head(layer.joined)
        written = torch.einsum("bthw,hwd->bthd", outputs, layer.projection.head_weights())
        if layer.factor is not None:
            written = written * layer.factor[:, :, None]
        torch.testing.assert_close(
            written.sum(2), after[layer.projection.layer], atol=1e-5, rtol=1e-4
        )


def test_gram_norms_and_means_by_hand():
    model = _language_model()
    found = head_outputs(model, None, TEXTS)
    projections = output_projections(model)
    shares, sizes, outputs = [], [], []
    for ids in TEXTS:
        with torch.no_grad(), recording_writes(model, projections, graph=False) as writes:
            model(torch.tensor([ids]))
        rows = []
        for layer in writes:
            o = layer.by_head(layer.joined)[0, 1:].double()
            y = torch.einsum("thw,hwd->thd", o, layer.projection.head_weights().double())
            rows.append((o, y, y / layer.stream[0, 1:].double().norm(dim=-1)[:, None, None]))
        outputs.append(torch.cat([o for o, _, _ in rows], 1))
        sizes.append(torch.cat([y.norm(dim=-1) for _, y, _ in rows], 1))
        shares.append(torch.cat([s for _, _, s in rows], 1))
    share, size, output = torch.cat(shares), torch.cat(sizes), torch.cat(outputs)
    layers = np.repeat(np.arange(3), 4)
    same = layers[:, None] == layers
    gram = torch.einsum("thd,tkd->hk", share, share).numpy() / len(share)
    mean = share.mean(0).numpy()
    np.testing.assert_allclose(found.gram, np.where(same, gram, 0), atol=1e-6)
    np.testing.assert_allclose(found.constant_gram, np.where(same, mean @ mean.T, 0), atol=1e-6)
    np.testing.assert_allclose(found.relative_norm, share.norm(dim=-1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.norm, size.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.mean_output, output.mean(0), atol=1e-6)


def test_gate_gradients_are_finite_differences_of_the_loss():
    model = _language_model().double()
    found = head_outputs(model, None, TEXTS[:1])
    projections = output_projections(model)
    ids = torch.tensor(TEXTS[:1])

    def loss(number, gate):
        start = 0
        for projection in projections:
            if start <= number < start + projection.n_heads:
                break
            start += projection.n_heads

        def scale(module, args):
            heads = args[0].unflatten(-1, (projection.n_heads, projection.head_dim)).clone()
            heads[..., number - start, :] *= gate
            return (heads.flatten(-2),)

        hook = projection.module.register_forward_pre_hook(scale)
        with torch.no_grad():
            logits = model(ids).logits[0, :-1]
        hook.remove()
        return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))

    step = 1e-4
    slopes = np.array(
        [(loss(h, 1 + step) - loss(h, 1 - step)) / (2 * step) for h in range(len(found.heads))]
    )
    # the loss itself is read in float32: 1e-7 of about 30 nats over twice the step
    np.testing.assert_allclose(found.gradients["true"].importance, np.abs(slopes), atol=3e-2)
    fisher = found.gradients["true"].document_fisher
    np.testing.assert_allclose(np.diag(fisher), found.gradients["true"].importance ** 2, rtol=1e-6)


def test_documents_merge_to_the_same_in_any_split():
    model = _language_model()
    both = head_outputs(model, None, TEXTS, gradients=False)
    first = head_outputs(model, None, TEXTS[:1], gradients=False)
    second = head_outputs(model, None, TEXTS[1:], gradients=False)
    weights = np.array([7, 5]) / 12  # tokens, the first of each document left out
    expected = weights[0] * first.gram + weights[1] * second.gram
    np.testing.assert_allclose(both.gram, expected, rtol=1e-6, atol=1e-9)


def test_calibration_leaves_the_model_as_found():
    model = _language_model()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    head_outputs(model, None, TEXTS)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks


def test_frozen_weights_and_encoders_have_gradients_too():
    model = _language_model().requires_grad_(False)
    assert head_outputs(model, None, TEXTS).gradients["true"].importance.min() > 0
    encoder = tiny_model(BY_TYPE["bert"])
    found = head_outputs(encoder, None, tiny_inputs(BY_TYPE["bert"]))
    assert sorted(found.gradients) == ["sampled"]
    assert "direction" in found.objective


def test_leave_one_out_is_the_loss_with_the_head_off():
    model = _language_model()
    found = leave_one_out(model, None, TEXTS, tokens=16)
    held = Evaluation(model, None, TEXTS, max_length=8)
    tokens = sum(result.tokens for result in held.dense)
    dense = sum(result.loss for result in held.dense)
    for number, head in list(enumerate(heads_of(output_projections(model))))[::5]:
        with sw.switch_off(model, [head]):
            loss = sum(result.loss for result in held.measure())
        assert found[number] == pytest.approx((loss - dense) / tokens, abs=1e-9)


def test_H10_the_dense_model_comes_first_and_the_protocol_is_kept():
    """A perplexity without its dense baseline and sequence length can't be compared."""
    model = _language_model()
    held = Evaluation(model, None, TEXTS, max_length=6)
    for result, ids in zip(held.dense, TEXTS, strict=True):
        cut = torch.tensor([ids[:6]])
        with torch.no_grad():
            logits = model(cut).logits.double()
        expected = -torch.log_softmax(logits[0, :-1], -1).gather(1, cut[0, 1:, None]).sum()
        assert result.loss == pytest.approx(float(expected), rel=1e-6)
        assert (result.tokens, result.agreement) == (5, 5)
    card = held.card()
    assert (card["window"], card["windows_per_document"], card["stride"]) == (6, 1, None)
    assert (card["documents"], card["tokens"], card["truncated"]) == (2, 10, 1)


def test_labels_and_states_are_held_against_the_dense_output():
    torch.manual_seed(0)
    config = AutoConfig.for_model("bert", **BY_TYPE["bert"].config)
    masked = AutoModelForMaskedLM.from_config(config).eval()
    held = Evaluation(masked, None, TEXTS)
    assert held.metric == "kl"
    assert [result.damage for result in held.dense] == [0.0, 0.0]
    with torch.no_grad():
        dense = torch.log_softmax(masked(torch.tensor(TEXTS[:1])).logits[0].double(), -1)
        with sw.switch_off(masked, [(1, 1)]):
            now = torch.log_softmax(masked(torch.tensor(TEXTS[:1])).logits[0].double(), -1)
            found = held.measure()[0]
    expected = (dense.exp() * (dense - now)).sum(-1).mean()
    assert found.damage == pytest.approx(float(expected), rel=1e-3)
    assert found.agreement == int((now.argmax(-1) == dense.argmax(-1)).sum())

    encoder = tiny_model(BY_TYPE["bert"])
    held = Evaluation(encoder, None, TEXTS)
    with torch.no_grad():
        dense = encoder(torch.tensor(TEXTS[:1])).last_hidden_state[0]
        with sw.switch_off(encoder, [(1, 1)]):
            now = encoder(torch.tensor(TEXTS[:1])).last_hidden_state[0]
            found = held.measure()[0]
    cosine = torch.nn.functional.cosine_similarity(dense.double(), now.double(), dim=-1)
    assert held.metric == "cosine"
    assert found.damage == pytest.approx(float((1 - cosine).mean()), rel=1e-3)
    assert found.agreement is None


def test_a_broken_dense_model_proves_nothing():
    model = _language_model()
    with torch.no_grad():
        model.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(RowError, match=r"nothing can be held against it.*first lm_head.weight"):
        Evaluation(model, None, TEXTS)
