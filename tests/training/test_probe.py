"""The batch that is held fixed: which tokens make a document, and what is refused."""

from __future__ import annotations

import os

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.errors import CaptureError, InputTypeError, RowError  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}


def padded(documents, side):
    width = max(map(len, documents)) + 2
    ids = torch.zeros(len(documents), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, document in enumerate(documents):
        start = width - len(document) if side == "left" else 0
        ids[i, start : start + len(document)] = torch.as_tensor(document)
        mask[i, start : start + len(document)] = 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(
    ("model_type", "side"), [("llama", "left"), ("llama", "right"), ("bert", "right")]
)
def test_padding_is_no_part_of_a_row(side, model_type):
    family = BY_TYPE[model_type]
    model, documents = tiny_model(family), tiny_inputs(family)
    alone = sw.Monitor(model, documents, queries="all").record()
    together = sw.Monitor(model, padded(documents, side), queries="all").record()
    assert together.scalars["sinkwise/rows"] == alone.scalars["sinkwise/rows"]
    for name in ("sink_mass", "content_entropy"):
        np.testing.assert_allclose(together.heads[name], alone.heads[name], atol=1e-5)


def test_packed_documents_have_a_sink_each():
    family = BY_TYPE["llama"]
    model, documents = tiny_model(family), tiny_inputs(family)
    alone = sw.Monitor(model, documents, queries="all").record()
    packed = {
        "input_ids": torch.as_tensor(np.concatenate(documents))[None],
        "position_ids": torch.cat([torch.arange(len(d)) for d in documents])[None],
    }
    record = sw.Monitor(model, packed, queries="all").record()
    assert record.scalars["sinkwise/rows"] == alone.scalars["sinkwise/rows"]
    np.testing.assert_allclose(record.heads["sink_mass"], alone.heads["sink_mass"], atol=1e-5)


def test_packed_documents_that_see_each_other_are_refused():
    family = BY_TYPE["llama"]
    packed = {
        "input_ids": torch.as_tensor(np.concatenate(tiny_inputs(family)[:2]))[None],
        "position_ids": torch.cat([torch.arange(12), torch.arange(9)])[None],
        "attention_mask": torch.ones(1, 21, dtype=torch.long),  # makes transformers forget them
    }
    with pytest.raises(CaptureError, match="see tokens outside them"):
        sw.Monitor(tiny_model(family), packed, queries="all").record()


def test_images_are_documents_of_all_their_tokens():
    family = BY_TYPE["vit"]
    model, images = tiny_model(family), tiny_inputs(family)
    alone = sw.Monitor(model, images, queries="all").record()
    batch = {"pixel_values": torch.as_tensor(np.stack(images)), "labels": torch.zeros(3)}
    together = sw.Monitor(model, batch, queries="all").record()
    assert together.scalars["sinkwise/rows"] == alone.scalars["sinkwise/rows"]
    assert together.scalars["sinkwise/sink_mass"] == pytest.approx(
        alone.scalars["sinkwise/sink_mass"], abs=1e-6
    )


def test_a_model_inside_a_module_of_ones_own_is_found():
    family = BY_TYPE["gpt2"]

    class Own(torch.nn.Module):
        def __init__(self, *models):
            super().__init__()
            self.body = torch.nn.ModuleList(models)
            self.head = torch.nn.Linear(32, 2)

    probe = {"input_ids": torch.as_tensor(tiny_inputs(family)[0])[None]}
    record = sw.Monitor(Own(tiny_model(family)), probe).record()
    assert record.scalars["sinkwise/rows"] > 0
    with pytest.raises(InputTypeError, match="holds 2 transformers models"):
        sw.Monitor(Own(tiny_model(family), tiny_model(family)), probe)


def test_an_adapter_says_which_model_it_wraps():
    family = BY_TYPE["gpt2"]
    inner = tiny_model(family)

    class Adapter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.base_model = inner

        def get_base_model(self):
            return inner

    record = sw.Monitor(Adapter(), tiny_inputs(family)).record()
    assert record.scalars == sw.Monitor(inner, tiny_inputs(family)).record().scalars


GPT2 = BY_TYPE["gpt2"]
HOLES = {
    "input_ids": torch.ones(1, 6, dtype=torch.long),
    "attention_mask": torch.tensor([[1, 0, 1, 1, 1, 1]]),
}


@pytest.mark.parametrize(
    ("probe", "options", "error", "says"),
    [
        (torch.ones(2, 5), {}, InputTypeError, "expected a mapping with a tensor 'input_ids'"),
        ({"labels": torch.ones(2, 5)}, {}, InputTypeError, "expected a mapping"),
        (["a text"], {}, InputTypeError, "no tokenizer was given"),
        ("a text", {}, InputTypeError, "expected a list of documents"),
        (HOLES, {}, RowError, "attention_mask of sequence 0 has holes"),
        ({"input_ids": torch.ones(4, 2).long()}, {}, RowError, "no document of 3 or more"),
        (None, {"every": 0}, RowError, "expected a number of steps"),
        (None, {"sink": "found"}, RowError, "curves need one sink"),
        (None, {"sink": -1}, RowError, "sink=-1 arrived"),
        (None, {"queries": 0}, RowError, "queries=0 arrived"),
        (None, {"alarms": 0.3}, InputTypeError, "expected thresholds"),
    ],
    ids=str,
)
def test_what_is_no_probe_or_option_is_refused(probe, options, error, says):
    with pytest.raises(error, match=says):
        sw.Monitor(tiny_model(GPT2), probe, **options)


def test_a_monitor_without_a_probe_says_how_to_give_one():
    monitor = sw.Monitor(tiny_model(GPT2))
    for look in (monitor.record, monitor.step):
        with pytest.raises(InputTypeError, match="there is no probe"):
            look()
    with pytest.raises(RowError, match="from the first record on"):
        _ = monitor.heads


def test_a_sink_that_no_document_reaches_is_an_error():
    monitor = sw.Monitor(tiny_model(GPT2), tiny_inputs(GPT2), sink=60)
    with pytest.raises(RowError, match="not one row of the probe sees the sink"):
        monitor.record()


@pytest.mark.parametrize(
    "model", ["gpt2", torch.nn.Linear(2, 2), object()], ids=["name", "layer", "object"]
)
def test_what_holds_no_transformers_model_is_refused(model):
    with pytest.raises(InputTypeError, match="expected a transformers model"):
        sw.Monitor(model)


def test_an_encoder_decoder_is_refused():
    with pytest.raises(CaptureError, match="encoder-decoder"):
        sw.Monitor(tiny_model(BY_TYPE["t5"]))
