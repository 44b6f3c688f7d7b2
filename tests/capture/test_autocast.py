"""Rows under autocast, where float32 queries go through attention in bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import sinkwise as sw  # noqa: E402
from sinkwise.capture import recording  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_model  # noqa: E402
from sinkwise.capture.interface import listening  # noqa: E402
from sinkwise.errors import CaptureError  # noqa: E402

IDS = [np.random.default_rng(0).integers(3, 60, size=length) for length in (40, 31)]
BY_TYPE = {family.model_type: family for family in FAMILIES}
ROTARY = {
    "llama": BY_TYPE["llama"],
    "qwen3": replace(BY_TYPE["llama"], model_type="qwen3"),
    "gpt_neox": BY_TYPE["gpt_neox"],
    "gemma2": BY_TYPE["gemma2"],
    "gpt_oss": BY_TYPE["gpt_oss"],
}


def _perturbed(model, size):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * size)
    return model


def _blocks(model, **options):
    return list(sw.ModelRows(model, None, IDS, queries=8, **options).blocks())


def test_rotary_queries_are_float32_while_attention_works_in_bfloat16(build):
    """The premise of this file."""
    dtypes = []
    model = build("llama")
    with (
        torch.autocast("cpu", torch.bfloat16),
        listening(model, lambda call: dtypes.append((call.query.dtype, call.output.dtype))),
    ):
        model(torch.from_numpy(IDS[0])[None])
    assert set(dtypes) == {(torch.float32, torch.bfloat16)}


@pytest.mark.parametrize("implementation", [None, "eager"])
@pytest.mark.parametrize("size", [0.0, 0.3])
@pytest.mark.parametrize("family", ROTARY)
def test_a_rotary_model_is_captured_and_monitored(family, implementation, size):
    model = _perturbed(tiny_model(ROTARY[family], implementation=implementation), size)
    with torch.autocast("cpu", torch.bfloat16):
        blocks = _blocks(model)
        record = sw.Monitor(model, {"input_ids": torch.from_numpy(IDS[0])[None]}).record()
    assert [block.document for block in blocks] == [0, 1]
    assert 0 < record.scalars["sinkwise/sink_mass"] < 1


def test_rows_are_not_refused_where_rounding_moves_the_weights(build):
    """Logits in the thousands, which rounding queries and keys to bfloat16 changes by several."""
    model = _perturbed(build("llama", "sdpa"), 0.3)
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attn.q_proj.weight.mul_(300)
    with torch.autocast("cpu", torch.bfloat16):
        blocks = _blocks(model)
        sw.Monitor(model, {"input_ids": torch.from_numpy(IDS[0])[None]}).record()
    assert np.abs(blocks[0].log_weights[:, blocks[0].support]).max() > 1000


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt_neox"])
def test_the_rows_are_those_of_the_float32_queries_that_attention_was_given(family):
    model = tiny_model(ROTARY[family])
    given = []
    with torch.autocast("cpu", torch.bfloat16):
        block = _blocks(model)[0]
        with listening(model, given.append):
            model(torch.from_numpy(IDS[0])[None])
    call = given[0]
    key = call.key.repeat_interleave(call.query.shape[1] // call.key.shape[1], 1)
    logits = (call.query.double() @ key.double().transpose(-1, -2))[0] * call.options["scaling"]
    expected = logits[:, torch.from_numpy(block.queries)].numpy()
    seen = np.broadcast_to(block.support, expected.shape)
    rows = block.log_weights[: len(expected)]
    np.testing.assert_allclose(rows[seen], expected[seen], rtol=1e-6, atol=1e-6)


def test_an_audit_runs(build, tmp_path):
    with torch.autocast("cpu", torch.bfloat16):
        audit = sw.audit(build("llama"), None, IDS, sink="first", queries=8, out=tmp_path)
    assert len(audit.heads) == 12


def test_a_float32_model_is_still_held_to_a_thousandth(build, monkeypatch):
    """The looser limit is autocast's alone."""
    model = build("llama")

    def nudged(call, *args):
        write(replace(call, query=call.query * 1.5), *args)

    write = recording.write_logits
    monkeypatch.setattr(recording, "write_logits", nudged)
    with pytest.raises(CaptureError, match=r"expected below 0\.001"):
        _blocks(_perturbed(model, 0.3))
