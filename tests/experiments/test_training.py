"""The training loop: its rates, what decays, what is reported, and that it repeats itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from experiments.training import Recipe, next_token_loss, train
from transformers import LlamaConfig, LlamaForCausalLM


def _model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def _counting_up(step):
    rng = np.random.default_rng(step)
    return torch.from_numpy(1 + (rng.integers(10, size=(4, 1)) + np.arange(8)) % 10)


def test_the_rate_rises_then_falls_along_a_cosine():
    recipe = Recipe(steps=14, learning_rate=2.0, warm_up=4, final_rate=0.1)
    assert [recipe.rate(step) for step in range(4)] == [0.5, 1.0, 1.5, 2.0]
    assert recipe.rate(4) == 2.0
    assert recipe.rate(9) == pytest.approx(2.0 * (0.1 + 0.9 / 2))
    assert recipe.rate(14) == pytest.approx(0.2)
    assert [Recipe(steps=3, learning_rate=2.0).rate(step) for step in range(3)] == [2.0] * 3


def test_next_token_loss_is_the_mean_cross_entropy():
    model, ids = _model(), _counting_up(0)
    with torch.no_grad():
        logits = model(input_ids=ids).logits.double().numpy()
        loss = float(next_token_loss(model, ids))
    total = [
        math.log(np.exp(logits[document, place]).sum()) - logits[document, place, token]
        for document, row in enumerate(ids.numpy())
        for place, token in enumerate(row[1:])
    ]
    assert loss == pytest.approx(np.mean(total), rel=1e-6)


def test_a_run_repeats_itself_and_learns():
    runs = []
    for _ in range(2):
        model = _model()
        seen: list[float] = []

        def keep(step, loss, seen=seen):
            seen.append(loss)

        last = train(model, _counting_up, Recipe(60, learning_rate=1e-2), before_step=keep)
        assert not model.training
        assert len(seen) == 61
        assert math.isnan(seen[0])
        assert last == pytest.approx(np.mean(seen[-6:]))
        runs.append((seen[1:], [weight.clone() for weight in model.parameters()]))
    (losses, weights), (losses_again, weights_again) = runs
    assert losses == losses_again
    assert all(torch.equal(*pair) for pair in zip(weights, weights_again, strict=True))
    assert losses[-1] < losses[0] / 2


def test_before_step_sees_the_model_that_the_step_changes():
    model, snapshots = _model(), []

    def look(step, loss):
        model.eval()  # what an observer leaves behind does not reach the step
        snapshots.append((step, model.lm_head.weight.detach().clone()))

    def loss_in_training_mode(model, ids):
        assert model.training
        return next_token_loss(model, ids)

    train(
        model,
        _counting_up,
        Recipe(steps=2, learning_rate=1e-2),
        loss=loss_in_training_mode,
        before_step=look,
    )
    assert [step for step, _ in snapshots] == [0, 1, 2]
    assert torch.equal(snapshots[0][1], _model().lm_head.weight)
    assert not torch.equal(snapshots[1][1], snapshots[0][1])
    assert torch.equal(snapshots[2][1], model.lm_head.weight)


def test_matrices_alone_decay():
    model = _model()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    recipe = Recipe(steps=1, learning_rate=0.5, weight_decay=0.2)
    nothing = lambda model, ids: 0 * next_token_loss(model, ids)  # noqa: E731
    train(model, _counting_up, recipe, loss=nothing)
    for name, weight in model.named_parameters():
        factor = 1 - 0.5 * 0.2 if weight.ndim > 1 else 1
        torch.testing.assert_close(weight.detach(), before[name] * factor, msg=name)


def test_the_gradient_is_clipped():
    model, norms = _model(), []
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda w: norms.append(float(w.grad.norm())))
    clipped = []
    step = torch.optim.AdamW.step

    def spied(self, *args, **kwargs):
        clipped.append(
            math.sqrt(
                sum(float(w.grad.norm()) ** 2 for g in self.param_groups for w in g["params"])
            )
        )
        return step(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", spied)
        recipe = Recipe(steps=1, learning_rate=1e-2, clip=1e-3)
        train(model, _counting_up, recipe)
    assert math.hypot(*norms) > 0.1
    assert clipped[0] == pytest.approx(1e-3, rel=1e-2)
