"""The numbers of a record: held to an audit's rows and to eager weights in float64."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.studies.collapse_rows import row_parts  # noqa: E402

REFUSED = {"bloom", "longformer", "t5"}
SERVED = [family for family in FAMILIES if family.model_type not in REFUSED]
BY_TYPE = {family.model_type: family for family in FAMILIES}


@pytest.mark.parametrize("family", SERVED, ids=lambda family: family.model_type)
def test_a_record_holds_the_means_of_an_audits_rows(family):
    model, documents = tiny_model(family), tiny_inputs(family)
    monitor = sw.Monitor(model, documents, queries=4)
    record = monitor.record()
    source = sw.ModelRows(model, None, documents, queries=4)
    blocks = list(source.blocks())
    parts = [row_parts(block) for block in blocks]
    rows = sum(block.valid.sum(-1) for block in blocks)
    assert monitor.heads == source.heads
    assert record.scalars["sinkwise/rows"] == rows.sum()
    for name in ("sink_mass", "content_entropy"):
        by_head = sum(np.nansum(getattr(part, name), -1) for part in parts)
        np.testing.assert_allclose(record.heads[name], by_head / rows, rtol=0, atol=1e-13)
        mean = by_head.sum() / rows.sum()
        assert record.scalars[f"sinkwise/{name}"] == pytest.approx(mean, rel=0, abs=1e-13)


def test_the_split_is_that_of_eager_weights_in_float64():
    family = BY_TYPE["gpt2"]
    model, document = tiny_model(family), tiny_inputs(family)[0]
    record = sw.Monitor(model, [document], queries="all").record()
    exact = tiny_model(family, implementation="eager").double()
    with torch.no_grad():
        out = exact(input_ids=torch.as_tensor(document)[None], output_attentions=True)
    weights = torch.cat([layer[0] for layer in out.attentions]).numpy()
    found = {name: [] for name in ("entropy", "sink_mass", "content_entropy", "evenness")}
    for query in range(2, len(document)):  # the sink and two content tokens
        row = weights[:, query, : query + 1]
        s = row[:, 0]
        content = row[:, 1:] / (1 - s)[:, None]
        found["sink_mass"].append(s)
        found["entropy"].append(-(row * np.log(row)).sum(-1))
        found["content_entropy"].append(-(content * np.log(content)).sum(-1))
        found["evenness"].append(found["content_entropy"][-1] / np.log(query))
    values = {name: np.mean(value) for name, value in found.items()}
    scalars = {name.removeprefix("sinkwise/"): value for name, value in record.scalars.items()}
    assert scalars["rows"] == 12 * (len(document) - 2)
    # float32 logits
    for name in ("entropy", "sink_mass", "content_entropy"):
        assert scalars[name] == pytest.approx(values[name], abs=2e-6)
    assert scalars["content_evenness"] == pytest.approx(values["evenness"], abs=2e-6)
    parts = sum(scalars[f"entropy_{part}"] for part in ("sink", "content", "within_sink"))
    assert scalars["entropy"] == pytest.approx(parts, abs=1e-12)


def test_nothing_is_lost_where_the_sink_takes_everything():
    family = BY_TYPE["gpt2"]
    model = tiny_model(family)
    before = sw.Monitor(model, tiny_inputs(family), queries="all")
    plain = before.record()
    # every query gets a component that only the first key answers, 200 nats of logit
    attention = model.h[0].attn
    original = attention.c_attn.forward

    def forward(states):
        mixed = original(states).clone()
        width = states.shape[-1]
        heads = mixed[..., : 2 * width].unflatten(-1, (2, 4, 8))
        heads[..., 7] = 0
        heads[:, :, 0, :, 7] = 200 * 8**0.5
        heads[:, 0, 1, :, 7] = 1
        return mixed

    attention.c_attn.forward = forward
    heavy = before.record()
    first_layer = slice(0, 4)
    assert np.all(heavy.heads["sink_mass"][first_layer] == 1)
    content = heavy.heads["content_entropy"][first_layer]
    assert np.all(content > 0.5), content
    assert np.all(np.isfinite(list(heavy.scalars.values())))
    assert plain.heads["sink_mass"][first_layer].max() < 1


def test_the_channels_of_a_change_add_up_and_are_those_of_the_rows():
    family = BY_TYPE["llama"]
    model, documents = tiny_model(family), tiny_inputs(family)
    monitor = sw.Monitor(model, documents, queries=5)
    first = monitor.record()
    kept = [list(sw.ModelRows(model, None, documents, queries=5).blocks())]
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=generator)
        last = monitor.record()
        kept.append(list(sw.ModelRows(model, None, documents, queries=5).blocks()))
    for name, before in (("since_first", kept[0]), ("since_last", kept[1])):
        changes = [
            sw.entropy_change(
                a.log_weights.astype(float),
                b.log_weights.astype(float),
                sink=a.sink,
                where=a.support,
                logits=True,
            )
            for a, b in zip(before, kept[2], strict=True)
        ]
        for field in ("total", "sink", "content", "within_sink"):
            mean = np.concatenate([getattr(c, field).ravel() for c in changes]).mean()
            found = last.scalars[f"sinkwise/{name}/{field}"]
            assert found == pytest.approx(mean, rel=0, abs=1e-10)
        told = [last.scalars[f"sinkwise/{name}/{c}"] for c in ("sink", "content", "within_sink")]
        assert last.scalars[f"sinkwise/{name}/total"] == pytest.approx(sum(told), abs=1e-12)
    difference = last.scalars["sinkwise/entropy"] - first.scalars["sinkwise/entropy"]
    assert last.scalars["sinkwise/since_first/total"] == pytest.approx(difference, abs=1e-10)


def test_scalars_by_layer_are_means_over_its_heads():
    family = BY_TYPE["gpt2"]
    monitor = sw.Monitor(tiny_model(family), tiny_inputs(family), per_layer=True)
    record = monitor.record()
    table = record.table()
    for layer, heads in table.groupby("layer"):
        mean = heads["sink_mass"].mean()  # heads of a layer have as many rows each
        assert record.scalars[f"sinkwise/layer_{layer:02d}/sink_mass"] == pytest.approx(mean)
    assert list(table["index"][:4]) == [0, 1, 2, 3]


def test_a_chosen_position_can_be_the_sink():
    family = BY_TYPE["gpt2"]
    model, documents = tiny_model(family), tiny_inputs(family)
    record = sw.Monitor(model, documents, sink=(0, 2), queries=4).record()
    blocks = list(sw.ModelRows(model, None, documents, sink=(0, 2), queries=4).blocks())
    total = sum(np.nansum(row_parts(block).sink_mass) for block in blocks)
    rows = sum(int(block.valid.sum()) for block in blocks)
    assert record.scalars["sinkwise/sink_mass"] == pytest.approx(total / rows, abs=1e-13)
    assert record.scalars["sinkwise/entropy_within_sink"] > 0
