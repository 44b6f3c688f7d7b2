"""Public bug reports about watching a training run, each by its number in the list."""

from __future__ import annotations

import logging

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.errors import CaptureError  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
IDS = torch.arange(40).remainder(31).view(2, 20)


def make_model(**options):
    torch.manual_seed(0)
    kind = {"n_layer": 3, "n_head": 2, "n_embd": 16, "vocab_size": 32, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**kind, **options)).train()


def test_i1_a_nan_is_recorded_by_step_layer_and_head_and_poisons_no_mean(caplog):
    model = make_model()
    monitor = sw.Monitor(model, {"input_ids": IDS}, every=1, queries="all", alarms=None)
    monitor.record()
    sound = [monitor.step() for _ in range(3)][-1]
    before = monitor.running_means()
    attention = model.transformer.h[1].attn
    original = attention.c_attn.forward

    def broken(states):
        mixed = original(states).clone()
        mixed[0, 5:, 8:16] = torch.nan  # queries of head 1, in the first sequence alone
        return mixed

    attention.c_attn.forward = broken
    with caplog.at_level(logging.WARNING, logger="sinkwise.training"):
        record = monitor.step()
    attention.c_attn.forward = original
    healed = monitor.step()
    place = record.nan_places[0]
    assert (place.step, place.layer, place.head, place.rows) == (4, 1, 1, 15)
    # a NaN that has reached the residual stream breaks every head of the layers above
    assert {(p.layer, p.head) for p in record.nan_places} == {(1, 1), (2, 0), (2, 1)}
    assert record.scalars["sinkwise/nan_rows"] == sum(p.rows for p in record.nan_places)
    assert "step 4" in caplog.text and "layer 1, head 1" in caplog.text
    assert np.all(np.isfinite(list(record.scalars.values())))
    assert np.all(np.isfinite(record.heads["sink_mass"]))
    # rows that were sound count as they did
    layer_0 = slice(0, 2)
    for name in ("sink_mass", "content_entropy"):
        np.testing.assert_array_equal(record.heads[name][layer_0], sound.heads[name][layer_0])
    # afterwards everything is as it was, and the running mean has survived
    assert not healed.nan_places
    assert healed.scalars["sinkwise/nan_rows"] == 0
    assert healed.scalars["sinkwise/since_first/total"] == 0
    assert healed.scalars["sinkwise/since_last/total"] == 0
    after = monitor.running_means()
    assert np.all(np.isfinite(list(after.values())))
    for name, value in before.items():
        assert after[name] == pytest.approx(value, rel=0.05)


def test_i1_a_step_at_which_every_row_is_nan_leaves_the_record_without_means():
    model = make_model()
    monitor = sw.Monitor(model, {"input_ids": IDS}, queries=4)
    first = monitor.record()
    kept = model.transformer.wte.weight.detach().clone()
    with torch.no_grad():
        model.transformer.wte.weight.fill_(torch.nan)
    record = monitor.record()
    assert record.scalars["sinkwise/rows"] == 0
    assert record.scalars["sinkwise/nan_rows"] == first.scalars["sinkwise/rows"]
    # a number that doesn't exist is left out, also a count of heads and an alarm's 0
    assert set(record.scalars) == {"sinkwise/rows", "sinkwise/nan_rows"}
    assert np.all(np.isfinite(list(record.scalars.values())))
    with torch.no_grad():
        model.transformer.wte.weight.copy_(kept)
    assert monitor.record().scalars["sinkwise/since_first/total"] == 0
    assert monitor.running_means()["sinkwise/sink_mass"] == pytest.approx(
        first.scalars["sinkwise/sink_mass"]
    )


def test_i1_a_run_that_starts_broken_counts_changes_from_its_first_sound_rows():
    model = make_model()
    kept = model.transformer.wte.weight.detach().clone()
    with torch.no_grad():
        model.transformer.wte.weight.fill_(torch.nan)
    monitor = sw.Monitor(model, {"input_ids": IDS}, queries=4)
    assert set(monitor.record().scalars) == {"sinkwise/rows", "sinkwise/nan_rows"}
    with torch.no_grad():
        model.transformer.wte.weight.copy_(kept)
    healed = monitor.record().scalars
    assert "sinkwise/alarm/peaked_heads" in healed and "sinkwise/alarm/sink_growth" not in healed
    with torch.no_grad():
        model.transformer.wte.weight.mul_(2)
    later = monitor.record().scalars
    assert later["sinkwise/since_first/total"] != 0 and later["sinkwise/alarm/sink_growth"] == 0


def test_i4_attention_outside_the_interface_is_an_error_not_an_empty_curve():
    family = BY_TYPE["bloom"]
    monitor = sw.Monitor(tiny_model(family), tiny_inputs(family))
    with pytest.raises(CaptureError, match="not one attention row was captured from BloomModel"):
        monitor.record()


def test_i4_a_model_compiled_and_run_before_is_heard():
    torch._dynamo.reset()
    model = torch.compile(make_model(), backend="eager")
    model(IDS)
    record = sw.Monitor(model, {"input_ids": IDS}).record()
    plain = sw.Monitor(make_model(), {"input_ids": IDS}).record()
    assert record.scalars == pytest.approx(plain.scalars)
    torch._dynamo.reset()


def test_i6_one_record_a_step_under_checkpointing_and_backward_passes():
    model = make_model()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    monitor = sw.Monitor(model, {"input_ids": IDS}, every=1, queries=4)
    steps = []
    for _ in range(3):
        loss = model(IDS, labels=IDS).loss
        steps.append(monitor.step())  # between forward and the recomputation in backward
        loss.backward()
    assert [record.step for record in steps] == [1, 2, 3]
    assert all(weight.grad is not None for weight in model.parameters())


def test_i8_uniform_and_one_hot_attention_are_flagged_apart():
    model = make_model()
    thresholds = sw.Alarms(None, None, peaked_heads=1.0, uniform_heads=1.0)
    monitor = sw.Monitor(model, {"input_ids": IDS}, alarms=thresholds)
    attention = [block.attn.c_attn for block in model.transformer.h]
    with torch.no_grad():
        for projection in attention:
            projection.weight[:, :32] = 0
            projection.bias[:32] = 0
    uniform = monitor.record()
    assert uniform.scalars["sinkwise/uniform_heads"] == 6
    assert uniform.scalars["sinkwise/peaked_heads"] == 0
    assert [alarm.kind for alarm in uniform.alarms] == ["uniform_heads"]
    with torch.no_grad():
        # query and key of a token agree with themselves alone: each position picks one key
        model.transformer.wpe.weight.copy_(torch.randn(32, 16) * 30)
        for projection in attention:
            projection.weight[:, :16] = 20 * torch.eye(16)
            projection.weight[:, 16:32] = 20 * torch.eye(16)
    peaked = monitor.record()
    assert peaked.scalars["sinkwise/peaked_heads"] == 6
    assert peaked.scalars["sinkwise/uniform_heads"] == 0
    assert [alarm.kind for alarm in peaked.alarms] == ["peaked_heads"]
    assert peaked.scalars["sinkwise/alarm/peaked_heads"] == 1
    assert peaked.scalars["sinkwise/alarm/uniform_heads"] == 0
