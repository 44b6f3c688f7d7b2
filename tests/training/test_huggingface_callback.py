"""The callback in a real Trainer, its curves read back from a real TensorBoard log."""

from __future__ import annotations

import json
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
torch.set_num_threads(1)

from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

import sinkwise as sw  # noqa: E402
from sinkwise.errors import InputTypeError  # noqa: E402
from sinkwise.training.huggingface import SinkCallback  # noqa: E402


def make_model():
    torch.manual_seed(0)
    kind = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**kind, bos_token_id=1, eos_token_id=2))


def make_rotary_model():
    torch.manual_seed(0)
    kind = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 32}
    return LlamaForCausalLM(LlamaConfig(**kind, num_attention_heads=4, num_key_value_heads=2))


def examples(number, seed=0):
    ids = torch.randint(0, 32, (number, 10), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row.tolist(), "labels": row.tolist(), "note": "text"} for row in ids]


def make_trainer(folder, model=None, **options):
    given = {
        "output_dir": str(folder),
        "max_steps": 6,
        "per_device_train_batch_size": 3,
        "logging_steps": 3,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "learning_rate": 1e-2,
        "seed": 0,
    }
    evaluation = options.pop("eval_dataset", None)
    model = model or make_model()
    if given | options is not given and (given | options).get("gradient_checkpointing"):
        model.config.use_cache = False
    return Trainer(
        model=model,
        args=TrainingArguments(**(given | options)),
        train_dataset=examples(30),
        eval_dataset=evaluation,
    )


def weights(trainer):
    return [weight.detach().clone() for weight in trainer.model.parameters()]


def test_curves_arrive_in_tensorboard_and_in_the_trainers_history(tmp_path, monkeypatch):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    trainer = make_trainer(tmp_path, report_to="tensorboard")
    callback = SinkCallback(trainer, every=2, queries=4, per_layer=True)
    trainer.add_callback(callback)
    trainer.train()
    log = accumulators.EventAccumulator(str(tmp_path / "events"))
    log.Reload()
    tags = [tag for tag in log.Tags()["scalars"] if "sinkwise/" in tag]
    last = callback.monitor.last
    assert {tag.removeprefix("train/") for tag in tags} == set(last.scalars)
    for name in ("sink_mass", "content_entropy", "entropy_sink", "since_first/content"):
        curve = log.Scalars(f"train/sinkwise/{name}")
        assert [event.step for event in curve] == [0, 2, 4, 6]
        assert curve[-1].value == pytest.approx(last.scalars[f"sinkwise/{name}"], rel=1e-6)
    # the trainer's own curve is where it was
    assert [event.step for event in log.Scalars("train/loss")] == [3, 6]
    history = [e for e in trainer.state.log_history if "sinkwise/sink_mass" in e]
    assert [entry["step"] for entry in history] == [0, 2, 4, 6]
    json.dumps(trainer.state.log_history)  # a checkpoint's trainer_state.json holds them


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bf16": True},
        {"gradient_accumulation_steps": 2, "gradient_checkpointing": True},
    ],
    ids=str,
)
def test_the_trainer_trains_and_logs_as_it_would_without(tmp_path, options):
    plain = make_trainer(tmp_path, **options)
    plain.train()
    watched = make_trainer(tmp_path, **options)
    watched.add_callback(SinkCallback(watched, every=1, queries=4))
    watched.train()
    for a, b in zip(weights(plain), weights(watched), strict=True):
        assert torch.equal(a, b)

    def own(trainer):
        return [
            (entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry
        ]

    assert own(plain) == own(watched)


def test_a_rotary_model_in_bf16_trains_and_logs_as_it_would_without(tmp_path):
    """Its queries are float32 of bfloat16 projections, which attention rounds again."""
    plain = make_trainer(tmp_path, make_rotary_model(), bf16=True)
    plain.train()
    watched = make_trainer(tmp_path, make_rotary_model(), bf16=True)
    watched.add_callback(SinkCallback(watched, every=2, queries=4))
    watched.train()
    for a, b in zip(weights(plain), weights(watched), strict=True):
        assert torch.equal(a, b)
    history = [e for e in watched.state.log_history if "sinkwise/sink_mass" in e]
    assert [entry["step"] for entry in history] == [0, 2, 4, 6]


def test_a_logging_step_that_is_also_ours_still_logs_the_loss(tmp_path):
    trainer = make_trainer(tmp_path, logging_steps=2)
    trainer.add_callback(SinkCallback(trainer, every=2, queries=4))
    trainer.train()
    losses = [entry["step"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses == [2, 4, 6]


def test_the_probe_is_the_first_evaluation_examples_or_what_is_given(tmp_path):
    evaluation = examples(8, seed=5)
    ids = torch.tensor([example["input_ids"] for example in evaluation[:3]])
    expected = sw.Monitor(make_model(), {"input_ids": ids}, queries=4).record().scalars
    for given, options in (({"eval_dataset": evaluation}, {}), ({}, {"probe": {"input_ids": ids}})):
        trainer = make_trainer(tmp_path, max_steps=1, **given)
        trainer.add_callback(SinkCallback(trainer, every=50, queries=4, **options))
        trainer.train()
        first = trainer.state.log_history[0]
        assert {name: first[name] for name in expected} == pytest.approx(expected)


def test_a_stream_of_examples_needs_a_probe(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from examples(30)

    trainer = make_trainer(tmp_path)
    trainer.train_dataset = Stream()
    trainer.add_callback(SinkCallback(trainer))
    with pytest.raises(InputTypeError, match="can't be indexed"):
        trainer.train()
