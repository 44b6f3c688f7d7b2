"""Thresholds: content that collapses and a sink that grows are told apart."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.channels.entropy import EntropyParts, entropy_parts
from sinkwise.errors import RowError
from sinkwise.training.sums import probe_sums


def sums_of(before, after, heads=1):
    """Sums of rows given as weights, sink first, each repeated for some heads."""
    parts = [entropy_parts(np.tile(rows, (heads, 1, 1)), sink=0) for rows in (before, after)]
    parts = [EntropyParts(*map(np.asarray, part)) for part in parts]
    keys = np.full(parts[0].sink_mass.shape, np.shape(before)[-1] - 1)
    return probe_sums(parts[1], parts[0], parts[0], keys)


def raised(before, after, **options):
    found = sw.Alarms(**options).raised(
        sums_of(before, after), step=7, first_step=0, before=frozenset()
    )
    return {alarm.kind: alarm for alarm in found}


FLAT = [[0.2, 0.2, 0.2, 0.2, 0.2]]
SINK = [[0.96, 0.01, 0.01, 0.01, 0.01]]  # the same content
SHARP = [[0.2, 0.77, 0.01, 0.01, 0.01]]  # the same sink mass


def test_a_sink_that_grows_is_no_collapse_of_the_content():
    found = raised(FLAT, SINK)
    assert set(found) == {"sink_growth"}
    assert found["sink_growth"].value == pytest.approx(0.76)
    assert "content" in found["sink_growth"].words


def test_content_that_collapses_is_no_growth_of_the_sink():
    found = raised(FLAT, SHARP)
    assert set(found) == {"content_collapse"}
    pi = np.array([0.77, 0.01, 0.01, 0.01]) / 0.8
    lost = 1 + (pi * np.log(pi)).sum() / np.log(4)
    assert found["content_collapse"].value == pytest.approx(lost)
    assert f"fell by {lost * np.log(4):.3g} from 1.39 nats" in found["content_collapse"].words


def test_the_total_entropy_falls_in_both():
    for after in (SINK, SHARP):
        assert sums_of(FLAT, after).mean("since_first/total") < -0.5


def test_a_threshold_is_reached_at_its_value_and_off_where_none():
    mass = 0.76
    assert "sink_growth" in raised(FLAT, SINK, sink_growth=mass - 1e-9)
    assert "sink_growth" not in raised(FLAT, SINK, sink_growth=mass + 1e-9)
    assert "sink_growth" not in raised(FLAT, SINK, sink_growth=None)


def test_extremes_need_a_share_of_the_heads():
    one_hot = [[0.2, 0.8 - 3e-6, 1e-6, 1e-6, 1e-6]]
    flat, sharp = sums_of(FLAT, FLAT), sums_of(FLAT, one_hot)
    both = flat.with_vector(np.stack([flat.vector, sharp.vector], 1).ravel())
    assert both.sums["rows"].shape == (2,)
    for share, expected in ((0.5, {"peaked_heads", "uniform_heads"}), (0.51, set())):
        alarms = sw.Alarms(None, None, peaked_heads=share, uniform_heads=share)
        found = alarms.raised(both, step=1, first_step=0, before=frozenset())
        assert {alarm.kind for alarm in found} == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"sink_growth": 0},
        {"sink_growth": "x"},
        {"sink_growth": True},
        {"content_collapse": 1.2},
        {"peaked": 0.5, "uniform": 0.4},
        {"peaked": "x"},
        {"uniform": None},
    ],
)
def test_thresholds_that_are_none_are_refused(wrong):
    with pytest.raises(RowError, match="expected"):
        sw.Alarms(**wrong)


def test_an_alarm_is_new_once_and_warns_once(caplog):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16))
    ids = torch.arange(16)[None]
    monitor = sw.Monitor(model, {"input_ids": ids}, alarms=sw.Alarms(sink_growth=0.4))
    assert monitor.record(step=10).alarms == ()
    with torch.no_grad():  # every query answers the first token's key
        model.transformer.h[0].attn.c_attn.weight[:, :16] = 0
        model.transformer.h[0].attn.c_attn.bias[:8] = 40.0
        model.transformer.wte.weight[0] = 0
    original = model.transformer.h[0].attn.c_attn.forward

    def forward(states):
        mixed = original(states).clone()
        mixed[:, 0, 8:16] = 5.0
        return mixed

    model.transformer.h[0].attn.c_attn.forward = forward
    with caplog.at_level(logging.WARNING, logger="sinkwise.training"):
        found = [monitor.record(step=step).alarms for step in (20, 30)]
    assert [[(a.kind, a.new) for a in alarms] for alarms in found] == [
        [("sink_growth", True)],
        [("sink_growth", False)],
    ]
    assert caplog.text.count("sink_growth") == 1
    assert "since step 10" in found[0][0].words
