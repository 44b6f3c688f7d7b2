"""The floor inside the real Trainer: gradient accumulation, checkpointing, bf16, evaluation."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402


class FlooredTrainer(transformers.Trainer):
    """As docs/content-entropy-floor.md shows it."""

    def __init__(self, *args, content, weight, **kwargs):
        super().__init__(*args, **kwargs)
        self.content, self.weight, self.seen = content, weight, []

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        options = {"num_items_in_batch": num_items_in_batch}
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, **options)
        with self.content.collecting() as held:
            loss = super().compute_loss(model, inputs, **options)
        self.seen.append((held.rows, float(held.penalty.detach())))
        share = self.current_gradient_accumulation_steps if num_items_in_batch is not None else 1
        return loss + self.weight * held.penalty / share


def small_model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=32,
            n_embd=16,
            n_layer=2,
            n_head=2,
            n_positions=16,
            initializer_range=0.7,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
    )


def data(number=16):
    ids = torch.randint(0, 32, (number, 12), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in ids]


def trained(tmp_path, *, weight, queries=8, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        **options,
    )
    model = small_model()
    trainer = FlooredTrainer(
        model,
        arguments,
        train_dataset=data(),
        eval_dataset=data(4),
        content=sw.ContentEntropyFloor(model, 0.95, queries=queries),
        weight=weight,
    )
    trainer.train()
    return trainer


def test_accumulation_weighs_loss_and_penalty_alike(tmp_path):
    """A batch of 4, or two of 2, give the same updates where both read every row."""
    # not Adam, which makes steps of the rounding in gradients that are 0
    options = {"weight": 3.0, "queries": "all", "optim": "sgd"}
    whole = trained(tmp_path, **options, per_device_train_batch_size=4)
    parts = trained(
        tmp_path, **options, per_device_train_batch_size=2, gradient_accumulation_steps=2
    )
    assert (len(whole.seen), len(parts.seen)) == (4, 8)
    for one, two in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


def test_checkpointing_bf16_and_evaluation_run_and_the_penalty_is_trained(tmp_path):
    trainer = trained(
        tmp_path,
        weight=3.0,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        eval_strategy="steps",
        eval_steps=2,
    )
    assert {rows for rows, _ in trainer.seen} == {2 * 2 * 2 * 8}
    assert all(0 < penalty < 0.95 for _, penalty in trainer.seen)
    assert any("eval_loss" in entry for entry in trainer.state.log_history)
    unfloored = trained(tmp_path, weight=0.0, per_device_train_batch_size=4)
    assert trainer.seen[-1][1] < unfloored.seen[-1][1]
