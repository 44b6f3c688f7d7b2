"""A run with a monitor is the run without it, bit for bit, whatever the loop does."""

from __future__ import annotations

import contextlib
import gc
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

import sinkwise as sw  # noqa: E402
from sinkwise.errors import CaptureError  # noqa: E402

KIND = {"n_layer": 3, "n_head": 4, "n_embd": 32, "vocab_size": 40, "n_positions": 32}


def make_model(**options):
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(**KIND, **options)).train()  # dropout of 0.1 everywhere


def batches(number, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [
        {"input_ids": torch.randint(0, 40, (4, 12), generator=generator)} for _ in range(number)
    ]


PROBE = {"input_ids": batches(1, seed=9)[0]["input_ids"]}


def train(model, *, monitor, steps=6, accumulate=1, autocast=False, record_inside=False):
    """Weights and random states after some steps; `monitor` is a function of the model or None."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = monitor(model) if monitor else None
    records = []
    for step, batch in enumerate(batches(steps * accumulate)):
        context = (
            torch.autocast("cpu", dtype=torch.bfloat16) if autocast else contextlib.nullcontext()
        )
        with context:
            if record_inside and watch:
                records.append(watch.record())
            loss = model(**batch, labels=batch["input_ids"]).loss / accumulate
            if record_inside and watch:
                records.append(watch.record())
        loss.backward()
        if (step + 1) % accumulate == 0:
            optimiser.step()
            optimiser.zero_grad()
            if watch and not record_inside:
                records.append(watch.step(batch))
    states = (torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist())
    return [weight.detach().clone() for weight in model.parameters()], states, records


def assert_same(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        assert torch.equal(a, b)
    assert torch.equal(one[1][0], other[1][0])
    assert one[1][1:] == other[1][1:]


def every_step(model):
    return sw.Monitor(model, PROBE, every=1, queries=4)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"accumulate": 2},
        {"autocast": True},
        {"autocast": True, "record_inside": True},
        {"accumulate": 2, "record_inside": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_trained_weights_are_the_same(how, implementation):
    options = {"attn_implementation": implementation}
    plain = train(make_model(**options), monitor=None, **how)
    watched = train(make_model(**options), monitor=every_step, **how)
    assert_same(plain, watched)
    assert all(record.scalars["sinkwise/rows"] for record in watched[2])


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_goes_on(reentrant):
    def checkpointed():
        model = make_model()
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        return model

    plain = train(checkpointed(), monitor=None, steps=3)
    watched = train(checkpointed(), monitor=every_step, steps=3)
    assert_same(plain, watched)
    assert len(watched[2]) == 3


def test_what_is_compiled_stays_compiled_and_is_not_compiled_anew():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    def run(monitor):
        compiled.clear()
        torch._dynamo.reset()
        model = torch.compile(make_model(), backend=backend)
        done = train(model, monitor=monitor, steps=4)
        return done, len(compiled)

    plain, graphs = run(None)
    watched, graphs_watched = run(every_step)
    assert_same(plain, watched)
    assert graphs_watched == graphs > 0
    torch._dynamo.reset()


def test_a_model_compiled_in_place_is_watched_as_it_was_written():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = make_model()
    for block in model.transformer.h:
        block.compile(backend=backend)
    record = every_step(model).record()
    assert record.scalars["sinkwise/rows"] > 0
    assert not graphs
    torch._dynamo.reset()


def test_a_record_inside_autocast_reads_the_weights_of_now():
    model, ids = make_model(), PROBE["input_ids"]
    monitor = every_step(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(ids, labels=ids).loss.backward()  # leaves copies of the weights
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.5)
        inside = monitor.record()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fresh = every_step(model).record()
    assert inside.scalars["sinkwise/entropy"] == fresh.scalars["sinkwise/entropy"]
    assert (
        inside.scalars["sinkwise/entropy"] != every_step(model).record().scalars["sinkwise/entropy"]
    )


def test_modes_configs_and_hooks_are_as_before_also_after_an_error():
    model = make_model()
    model.transformer.h[1].eval()
    model.config.output_attentions = False
    before = (
        [module.training for module in model.modules()],
        dict(model.config.__dict__),
        [len(module._forward_hooks) for module in model.modules()],
    )
    monitor = every_step(model)
    monitor.record()
    forward = model.transformer.h[2].attn.forward
    model.transformer.h[2].attn.forward = lambda states, *rest, **options: (states, None)
    with pytest.raises(CaptureError, match="made 2 attention calls where its first pass made 3"):
        monitor.record()
    model.transformer.h[2].attn.forward = forward
    after = (
        [module.training for module in model.modules()],
        dict(model.config.__dict__),
        [len(module._forward_hooks) for module in model.modules()],
    )
    assert before == after


def test_a_model_that_draws_at_random_in_its_forward_trains_on_the_same_numbers():
    def noisy():
        model = make_model()

        def draw(module, args):
            random.random()
            np.random.rand()
            return (args[0] + 1e-3 * torch.randn(()), *args[1:])

        model.transformer.h[0].register_forward_pre_hook(draw)
        return model

    assert_same(train(noisy(), monitor=None), train(noisy(), monitor=every_step))


def test_no_gradient_and_no_graph_comes_of_a_record():
    model = make_model()
    record = every_step(model).record()
    assert all(weight.grad is None for weight in model.parameters())
    assert all(isinstance(value, np.ndarray) for value in record.heads.values())


def test_memory_is_flat_over_two_hundred_steps():
    """G4: captured tensors kept the graph alive."""
    model = make_model()
    monitor = every_step(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def tensors():
        gc.collect()
        found = [x for x in gc.get_objects() if isinstance(x, torch.Tensor)]
        arrays = [x for x in gc.get_objects() if isinstance(x, dict | list)]
        return len(found), sum(x.numel() for x in found), len(arrays)

    counted = {}
    for step, batch in enumerate(batches(200)):
        model(**batch, labels=batch["input_ids"]).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        monitor.step()
        del batch
        if step in (20, 199):
            counted[step] = tensors()
    assert counted[199][:2] == counted[20][:2]
    assert counted[199][2] - counted[20][2] < 20


def test_a_monitor_of_a_probe_given_later_copies_it():
    model = make_model()
    batch = {name: tensor.clone() for name, tensor in PROBE.items()}
    batch["labels"] = batch["input_ids"]
    monitor = sw.Monitor(model, every=2, queries=4)
    first = monitor.step(batch)
    batch["input_ids"].fill_(1)
    assert monitor.step(batch).scalars == pytest.approx(
        {name: value for name, value in every_step(model).record().scalars.items()}
    )
    assert first.step == 1
