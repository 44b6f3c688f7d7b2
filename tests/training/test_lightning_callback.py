"""The callback in real Lightning, under both package names, with a real TensorBoard log."""

from __future__ import annotations

import importlib
import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("lightning")
torch.set_num_threads(1)

from transformers import (  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import sinkwise as sw  # noqa: E402
from sinkwise.errors import InputTypeError  # noqa: E402
from sinkwise.training.lightning import SinkCallback  # noqa: E402


def make_module(package, model=None):
    torch.manual_seed(0)
    kind = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 32}

    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = model or GPT2LMHeadModel(GPT2Config(**kind, bos_token_id=1, eos_token_id=2))

        def training_step(self, batch, _):
            loss = self.body(**batch, labels=batch["input_ids"]).loss
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Module()


def batches():
    ids = torch.randint(0, 32, (24, 10), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row} for row in ids]
    return torch.utils.data.DataLoader(rows, batch_size=2, shuffle=False)


def fit(package, folder, callbacks, *, module=None, logger=False, **options):
    trainer = package.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=logger,
        callbacks=callbacks,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=str(folder),
        log_every_n_steps=5,
        **options,
    )
    module = module or make_module(package)
    torch.manual_seed(1)
    trainer.fit(module, batches())
    return trainer, module


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_curves_arrive_in_tensorboard_whatever_lightning_logs_itself(name, tmp_path):
    package = pytest.importorskip(name)
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    loggers = importlib.import_module(f"{name}.loggers")
    logger = loggers.TensorBoardLogger(str(tmp_path), name="", version="events")
    callback = SinkCallback(every=3, queries=4)
    trainer, _ = fit(package, tmp_path, [callback], logger=logger)
    log = accumulators.EventAccumulator(str(tmp_path / "events"))
    log.Reload()
    last = callback.monitor.last
    assert {tag for tag in log.Tags()["scalars"] if "sinkwise" in tag} == set(last.scalars)
    for field in ("sink_mass", "content_entropy", "entropy_content", "since_first/sink"):
        curve = log.Scalars(f"sinkwise/{field}")
        assert [event.step for event in curve] == [0, 3, 6, 9, 12]
        assert curve[-1].value == pytest.approx(last.scalars[f"sinkwise/{field}"], rel=1e-6)
    metric = trainer.callback_metrics["sinkwise/sink_mass"]
    assert float(metric) == pytest.approx(last.scalars["sinkwise/sink_mass"], rel=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"precision": "bf16-mixed"}, {"accumulate_grad_batches": 3}], ids=str
)
def test_training_is_what_it_would_be_without(options, tmp_path):
    import lightning.pytorch as package

    _, plain = fit(package, tmp_path, [], **options)
    callback = SinkCallback(every=1, queries=4)
    trainer, watched = fit(package, tmp_path, [callback], **options)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)
    assert callback.monitor.last.step == trainer.global_step


def test_a_rotary_model_is_watched_in_mixed_precision(tmp_path):
    """Its queries are float32 of bfloat16 projections, which attention rounds again."""
    import lightning.pytorch as package

    kind = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "vocab_size": 32}
    model = LlamaForCausalLM(LlamaConfig(**kind, num_attention_heads=4, num_key_value_heads=2))
    callback = SinkCallback(every=6, queries=4)
    module = make_module(package, model=model)
    trainer, _ = fit(package, tmp_path, [callback], module=module, precision="bf16-mixed")
    assert callback.monitor.last.step == trainer.global_step == 12


def test_the_first_batch_is_the_probe_and_its_record_comes_before_training(tmp_path):
    import lightning.pytorch as package

    records = []

    class Kept(SinkCallback):
        def on_train_batch_start(self, *args):
            super().on_train_batch_start(*args)
            records.append(self.monitor.last)

    fit(package, tmp_path, [Kept(every=50, queries=4)])
    model = make_module(package).body
    first = next(iter(batches()))
    expected = sw.Monitor(model, first, queries=4).record()
    assert records[0].scalars == pytest.approx(expected.scalars)
    assert {id(record) for record in records} == {id(records[0])}


def test_a_module_without_a_transformers_model_is_refused(tmp_path):
    import lightning.pytorch as package

    module = make_module(package, model=torch.nn.Linear(2, 2))
    with pytest.raises(InputTypeError, match="expected a transformers model"):
        fit(package, tmp_path, [SinkCallback()], module=module)
