"""The content-entropy floor in a model's own training pass, held to the model's own attention."""

from __future__ import annotations

import gc
import math
import os
import weakref

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from transformers import (  # noqa: E402
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5EncoderModel,
)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.capture.queries import choose_queries  # noqa: E402
from sinkwise.training.rows import collecting_rows  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
FAITHFUL = [f.model_type for f in FAMILIES if f.model_type not in ("bloom", "longformer", "t5")]


def small_llama(**options):
    torch.manual_seed(0)
    config = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.4,
        "max_position_embeddings": 64,
    }
    return LlamaForCausalLM(LlamaConfig(**(config | options))).train()


def ids(batch=3, length=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, 32, (batch, length), generator=generator)


def batch_of(family, side="right"):
    """Documents of different lengths in one padded batch, and which of its tokens are real."""
    documents = [torch.as_tensor(d) for d in tiny_inputs(family)]
    if family.vision:
        return {"pixel_values": torch.stack(documents)}, None
    width = max(map(len, documents))
    tokens = torch.zeros(len(documents), width, dtype=torch.long)
    real = torch.zeros(len(documents), width, dtype=torch.bool)
    for row, document in enumerate(documents):
        place = slice(0, len(document)) if side == "right" else slice(width - len(document), None)
        tokens[row, place], real[row, place] = document, True
    return {"input_ids": tokens, "attention_mask": real.long()}, real


def own_penalty(attentions, real, floor, sink=(0,)):
    """From the weights a model returns, one row at a time, with their graph."""
    values = []
    for weights in attentions:
        for item in range(len(weights)):
            at = torch.arange(weights.shape[2])
            at = at[real[item]] if real is not None else at
            for row in weights[item][:, at][:, :, at].flatten(0, 1):
                content = torch.ones(len(row), dtype=torch.bool)
                content[list(sink)] = False
                pi = row[content & (row > 0)]
                if row[0] == 0 or len(pi) < 2:
                    continue
                pi = pi / pi.sum()
                share = -(pi * pi.log()).sum() / math.log(len(pi))
                values.append((floor - share).clamp(min=0))
    return torch.stack(values).mean(), len(values)


def gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def assert_close_gradients(got, expected, tolerance=1e-4):
    """A gradient that is absent is 0; the tolerance is a share of the largest."""
    scale = max(float(g.abs().max()) for g in expected.values())
    assert scale > 0
    for name in expected.keys() | got.keys():
        both = [g[name] for g in (got, expected) if name in g]
        first, second = both if len(both) == 2 else (both[0], torch.zeros_like(both[0]))
        torch.testing.assert_close(first, second, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_type", FAITHFUL)
def test_value_and_gradient_are_those_of_the_models_own_attention_weights(model_type, side):
    family = BY_TYPE[model_type]
    inputs, real = batch_of(family, side)
    eager = tiny_model(family, implementation="eager")
    own, rows = own_penalty(eager(**inputs, output_attentions=True).attentions, real, 0.9)
    own.backward()
    for implementation in (None, "eager"):
        model = tiny_model(family, implementation=implementation)
        content = sw.ContentEntropyFloor(model, 0.9, queries="all")
        with content.collecting() as held:
            model(**inputs)
        assert held.rows == rows
        assert float(held.penalty.detach()) == pytest.approx(float(own.detach()), abs=1e-6)
        held.penalty.backward()
        assert_close_gradients(gradients(model), gradients(eager), 1e-3)


def test_the_sink_is_counted_from_each_documents_first_token():
    family = BY_TYPE["llama"]
    inputs, real = batch_of(family, "left")
    eager = tiny_model(family, implementation="eager")
    own, _ = own_penalty(eager(**inputs, output_attentions=True).attentions, real, 0.9, sink=(0, 2))
    model = tiny_model(family)
    with sw.ContentEntropyFloor(model, 0.9, sink=(0, 2), queries="all").collecting() as held:
        model(**inputs)
    assert float(held.penalty.detach()) == pytest.approx(float(own.detach()), abs=1e-6)


def test_a_biased_mask_and_a_position_bias_are_part_of_the_logits():
    bias = torch.randn(3, 1, 10, 10, generator=torch.Generator().manual_seed(3)) * 2
    hidden = torch.ones(10, 10).triu(1).bool()
    mask = bias.masked_fill(hidden, torch.finfo(torch.float32).min)
    model = small_llama().eval()
    model.set_attn_implementation("eager")
    attentions = model(ids(), attention_mask=mask, output_attentions=True).attentions
    own, rows = own_penalty(attentions, None, 0.9)
    with sw.ContentEntropyFloor(model, 0.9, queries="all").collecting() as held:
        model(ids(), attention_mask=mask)
    assert held.rows == rows
    assert float(held.penalty.detach()) == pytest.approx(float(own.detach()), abs=1e-6)

    encoder = T5EncoderModel(T5Config(**BY_TYPE["t5"].config)).eval()
    bias = encoder.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
    torch.nn.init.normal_(bias.weight, generator=torch.Generator().manual_seed(4))
    encoder.set_attn_implementation("eager")
    own, rows = own_penalty(encoder(ids(), output_attentions=True).attentions, None, 0.99)
    with collecting_rows(encoder, queries="all") as every:
        encoder(ids())
    with collecting_rows(encoder, queries=3) as some:
        encoder(ids())
    at = choose_queries(10, 3, start=0, seed=0, document=0)
    for whole, part in zip(every, some, strict=True):
        torch.testing.assert_close(part.logits, whole.logits[:, :, at])
    for implementation in ("eager", "sdpa"):
        encoder.set_attn_implementation(implementation)
        with sw.ContentEntropyFloor(encoder, 0.99, queries="all").collecting() as held:
            encoder(ids())
        assert held.rows == rows
        assert float(held.penalty.detach()) == pytest.approx(float(own.detach()), abs=1e-6)


def test_more_queries_than_a_document_has_are_all_that_see_a_sink_and_two_content_keys():
    for model, rows in ((small_llama(), 8), (tiny_model(BY_TYPE["bert"]), 10)):
        with sw.ContentEntropyFloor(model, 0.9, queries=99).collecting() as held:
            model(ids())
        layers = model.config.num_hidden_layers
        assert held.rows == layers * 4 * 3 * rows


def test_packed_documents_have_a_sink_each():
    model = small_llama()
    one, two = ids(1, 6, seed=1), ids(1, 9, seed=2)
    content = sw.ContentEntropyFloor(model, 0.95, queries="all")
    alone = []
    for document in (one, two):
        with content.collecting() as held:
            model(document)
        alone.append((held.penalty * held.rows, held.rows))
    places = torch.cat([torch.arange(6), torch.arange(9)])[None]
    with content.collecting() as packed:
        model(torch.cat([one, two], 1), position_ids=places, use_cache=False)
    rows = sum(n for _, n in alone)
    assert packed.rows == rows
    torch.testing.assert_close(packed.penalty, sum(v for v, _ in alone) / rows)


def test_it_is_the_pure_function_over_the_rows_of_all_layers():
    model = small_llama()
    with collecting_rows(model, queries="all") as rows:
        model(ids())
    usable = slice(2, None)  # the first two queries see fewer than two content keys
    pure = [
        sw.content_entropy_floor(
            layer.logits[:, :, usable], sink=0, floor=0.9, where=layer.visible[:, :, usable]
        )
        for layer in rows
    ]
    with sw.ContentEntropyFloor(model, 0.9, queries="all").collecting() as held:
        model(ids())
    assert len(pure) == 2
    torch.testing.assert_close(held.penalty, sum(pure) / 2)


def test_the_loss_and_its_gradient_are_untouched():
    plain, watched = small_llama(), small_llama()
    loss = plain(ids(), labels=ids()).loss
    loss.backward()
    with sw.ContentEntropyFloor(watched, 0.9).collecting() as held:
        same = watched(ids(), labels=ids()).loss
    assert torch.equal(loss, same)
    (same + 0.0 * held.penalty).backward()
    for name, gradient in gradients(plain).items():
        assert torch.equal(gradients(watched)[name], gradient)


@pytest.mark.parametrize("inside", [False, True])
def test_I6_checkpointed_layers_are_heard_once_and_backward_passes(inside):
    plain, model = small_llama(), small_llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for m in (plain, model):
        content = sw.ContentEntropyFloor(m, 0.9, queries=4)
        with content.collecting() as held:
            loss = m(ids(), labels=ids(), use_cache=False).loss
            if inside:
                loss.backward(retain_graph=True)
        (0.5 * held.penalty + (0.0 if inside else loss)).backward()
        assert held.rows == 2 * 3 * 4 * 4
    assert_close_gradients(gradients(model), gradients(plain), 1e-5)


def test_I6_reentrant_checkpointing_is_refused_by_name():
    model = small_llama()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    content = sw.ContentEntropyFloor(model, 0.9)
    with pytest.raises(sw.CaptureError, match="use_reentrant"), content.collecting():
        model(ids(), use_cache=False)


def test_I4_a_context_in_which_nothing_ran_is_an_error():
    content = sw.ContentEntropyFloor(small_llama(), 0.9)
    expected = "not one attention row .*: no forward pass of this very LlamaForCausalLM ran inside"
    with pytest.raises(sw.CaptureError, match=expected), content.collecting():
        pass


def test_a_model_without_heads_is_named_as_such():
    model = sw.remove_heads(small_llama(), [(layer, head) for layer in (0, 1) for head in range(4)])
    expected = "LlamaForCausalLM has no attention head left"
    with (
        pytest.raises(sw.CaptureError, match=expected),
        sw.ContentEntropyFloor(model, 0.9).collecting(),
    ):
        model(ids())
    with pytest.raises(sw.CaptureError, match="no attention head left"):
        sw.Monitor(model, {"input_ids": ids()}).record()


@pytest.mark.slow
def test_a_model_compiled_before_is_heard_all_the_same():
    plain, model = small_llama(), small_llama()
    compiled = torch.compile(model, backend="eager")
    compiled(ids())
    found = []
    for run in (plain, compiled):
        content = sw.ContentEntropyFloor(plain if run is plain else model, 0.9, queries=4)
        for step in range(12):  # more often than a frame may be compiled anew
            with content.collecting() as held:
                run(ids(seed=step))
            found.append(float(held.penalty.detach()))
    assert found[12:] == pytest.approx(found[:12], abs=1e-6)


def test_G4_nothing_keeps_a_steps_tensors_alive():
    model = small_llama()
    content = sw.ContentEntropyFloor(model, 0.9, queries=4)
    alive = []
    for step in range(3):
        with collecting_rows(model, queries=4) as rows, content.collecting() as held:
            loss = model(ids(seed=step), labels=ids(seed=step)).loss
        alive += [weakref.ref(call.query) for call in rows.calls]
        alive.append(weakref.ref(held.penalty))
        assert len(rows.calls) == 2
        (loss + held.penalty).backward()
        model.zero_grad()
        del loss, held, rows
        gc.collect()
        assert [ref() for ref in alive] == [None] * len(alive)


def test_autocast_leaves_the_penalty_in_float32_and_its_gradient_finite():
    plain, model = small_llama(), small_llama()
    with sw.ContentEntropyFloor(plain, 0.9, queries="all").collecting() as exact:
        plain(ids())
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        sw.ContentEntropyFloor(model, 0.9, queries="all").collecting() as held,
    ):
        loss = model(ids(), labels=ids()).loss
    assert held.penalty.dtype == torch.float32
    assert float(held.penalty.detach()) == pytest.approx(float(exact.penalty.detach()), rel=0.1)
    (loss + held.penalty).backward()
    assert all(torch.isfinite(g).all() for g in gradients(model).values())


def test_accumulated_micro_batches_give_the_gradient_of_the_whole_batch():
    whole, parts = small_llama(), small_llama()
    batch = ids(4)
    with sw.ContentEntropyFloor(whole, 0.9, queries="all").collecting() as held:
        whole(batch)
    held.penalty.backward()
    content = sw.ContentEntropyFloor(parts, 0.9, queries="all")
    for half in batch.chunk(2):
        with content.collecting() as held:
            parts(half)
        (held.penalty / 2).backward()
    assert_close_gradients(gradients(parts), gradients(whole), 1e-5)


def test_under_data_parallelism_the_wrapper_runs_and_its_module_is_heard(tmp_path):
    from torch import distributed

    plain, model = small_llama(), small_llama()
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapper = torch.nn.parallel.DistributedDataParallel(model)
        for run, inside in ((plain, plain), (wrapper, wrapper.module)):
            content = sw.ContentEntropyFloor(inside, 0.9, queries=4)
            with content.collecting() as held:
                loss = run(ids(), labels=ids()).loss
            (loss + held.penalty).backward()
    finally:
        distributed.destroy_process_group()
    assert_close_gradients(gradients(model), gradients(plain), 1e-6)


def test_positions_are_drawn_anew_each_pass_and_again_from_the_seed():
    model = small_llama()

    def shares(seed):
        content = sw.ContentEntropyFloor(model, 1.0, queries=3, seed=seed)
        found = []
        for _ in range(3):
            with content.collecting() as held:
                model(ids())
            found.append(float(held.penalty.detach()))
        return found

    before = torch.random.get_rng_state()
    first = shares(0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len(set(first)) == 3
    assert shares(0) == first
    assert shares(1) != first


def test_the_model_is_left_as_found_also_when_the_pass_fails():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model = small_llama()
    model.model.layers[0].eval()
    names = set(ALL_ATTENTION_FUNCTIONS.valid_keys())
    modes = [m.training for m in model.modules()]
    content = sw.ContentEntropyFloor(model, 0.9)
    with content.collecting():
        assert torch.is_grad_enabled()
        assert [m.training for m in model.modules()] == modes
        model(ids())
    with pytest.raises(ZeroDivisionError), content.collecting():
        model(ids())
        raise ZeroDivisionError
    assert [m.training for m in model.modules()] == modes
    assert model.config._attn_implementation == "sdpa"
    assert set(ALL_ATTENTION_FUNCTIONS.valid_keys()) == names
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_errors_teach():
    model = small_llama()
    content = sw.ContentEntropyFloor(model, 0.9)
    with (
        pytest.raises(sw.CaptureError, match=r"read held\.penalty after"),
        content.collecting() as held,
    ):
        model(ids())
        held.penalty  # noqa: B018
    with (
        pytest.raises(sw.CaptureError, match="without gradients"),
        content.collecting(),
        torch.no_grad(),
    ):
        model(ids())
    with pytest.raises(sw.RowError, match="two content keys"), content.collecting():
        model(ids(length=2))
    with pytest.raises(sw.RowError, match=r"floor=30 arrived.*floor=0\.3"):
        sw.ContentEntropyFloor(model, 30)
    found = sw.ContentEntropyFloor(model, 0.9, sink="found")
    with pytest.raises(sw.RowError, match="changes while a model trains"), found.collecting():
        model(ids())
    wrapped = sw.ContentEntropyFloor(torch.nn.DataParallel(model), 0.9)
    with pytest.raises(sw.InputTypeError, match=r"model\.module"), wrapped.collecting():
        model(ids())
    for name, weight in model.named_parameters():
        weight.requires_grad_("lm_head" in name)
    with pytest.raises(sw.CaptureError, match="no gradient"), content.collecting():
        model(ids())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_named_by_layer_and_head(value):
    model = small_llama()
    projection = model.model.layers[1].self_attn.q_proj
    original = projection.forward

    def broken(states):
        mixed = original(states).clone()
        mixed[1, 5:, -4:] = value  # queries of the last head, in the second sequence
        return mixed

    projection.forward = broken
    content = sw.ContentEntropyFloor(model, 0.9, queries="all")
    expected = r"layer 1, head 3, sequence 1 .*nan, expected a finite number \(5 rows"
    with pytest.raises(sw.RowError, match=expected), content.collecting():
        model(ids())


def test_padding_that_is_not_finite_is_no_error():
    model = small_llama()
    projection = model.model.layers[1].self_attn.q_proj
    original = projection.forward

    def broken(states):
        mixed = original(states).clone()
        mixed[1, :3] = math.nan
        return mixed

    projection.forward = broken
    mask = torch.ones_like(ids())
    mask[1, :3] = 0
    with sw.ContentEntropyFloor(model, 0.9, queries="all").collecting() as held:
        model(ids(), attention_mask=mask)
    assert 0 < held.penalty < 0.9


def test_minimising_it_spreads_content_that_is_sharp_and_leaves_a_strong_sink_strong():
    torch.manual_seed(0)
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=32, n_embd=16, n_layer=1, n_head=2, n_positions=16, initializer_range=0.7
        )
    )
    model.eval()
    attention = model.transformer.h[0].attn
    optimiser = torch.optim.SGD(attention.c_attn.parameters(), lr=0.3)
    content = sw.ContentEntropyFloor(model, 0.8, queries="all")
    batch = ids(8, 12)

    def measured():
        rows = sw.ModelRows(model, None, batch.tolist(), queries="all")
        parts = [
            sw.entropy_split(block.log_weights[:, 2:], sink=0, where=block.support[2:], logits=True)
            for block in rows.blocks()
        ]
        return sum(float(p.content_entropy.mean()) for p in parts) / len(parts)

    before = measured()
    below = []
    for _ in range(60):
        with content.collecting() as held:
            model(batch)
        held.penalty.backward()
        optimiser.step()
        optimiser.zero_grad()
        below.append(held.below)
    assert measured() > before + 0.2
    assert below[-1] < below[0]
