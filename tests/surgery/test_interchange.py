"""Borrowed patterns against attention computed by hand, in float64, from the model's own maps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

from sinkwise.capture.documents import TextDocuments  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.capture.interface import listening  # noqa: E402
from sinkwise.errors import CaptureError, InputTypeError, RowError  # noqa: E402
from sinkwise.rowdata import HeadId  # noqa: E402
from sinkwise.surgery.attention_patterns import (  # noqa: E402
    Scores,
    own_pattern,
    split_pattern,
    whole_pattern,
)
from sinkwise.surgery.interchange import exchange_patterns  # noqa: E402
from sinkwise.surgery.output_projections import output_projections  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
EXCHANGED = (
    "gpt2",
    "gpt_neox",
    "llama",
    "qwen2",
    "mistral",
    "gemma2",
    "gpt_oss",
    "bert",
    "albert",
    "vit",
    "dinov2",
)


def _run(model, document):
    value = {model.main_input_name: torch.as_tensor(np.asarray(document))[None]}
    with torch.no_grad():
        return model(**value).last_hidden_state


def _joined(model, layer, run):
    """What the output projection of a layer is fed while `run` runs, ``(tokens, heads, dim)``."""
    projection = next(p for p in output_projections(model) if p.layer == layer)
    seen = []

    def keep(module, args):
        seen.append(args[0].detach().clone())

    hook = projection.module.register_forward_pre_hook(keep)
    try:
        run()
    finally:
        hook.remove()
    return seen[0][0].unflatten(-1, (projection.n_heads, projection.head_dim))


def _values(model, layer, document):
    """Values of every query head of a layer, float64 ``(heads, keys, dim)``."""
    calls = []
    with listening(model, calls.append):
        _run(model, document)
    call = calls[layer]
    value = call.value[0].double()
    return value.repeat_interleave(call.query.shape[1] // value.shape[0], 0)


def _eager_maps(model_type, document):
    """The model's own attention weights, float64, a ``(heads, queries, keys)`` for each layer."""
    model = tiny_model(BY_TYPE[model_type], implementation="eager")
    value = {model.main_input_name: torch.as_tensor(np.asarray(document))[None]}
    with torch.no_grad():
        return [layer[0].double() for layer in model(**value, output_attentions=True).attentions]


@pytest.mark.parametrize("implementation", [None, "eager"])  # None: sdpa where there is one
@pytest.mark.parametrize("model_type", EXCHANGED)
def test_a_head_exchanged_with_itself_changes_nothing(model_type, implementation):
    family = BY_TYPE[model_type]
    model, document = tiny_model(family, implementation=implementation), tiny_inputs(family)[0]
    dense = _run(model, document)
    heads = {(layer, head): (layer, head) for layer in range(3) for head in range(4)}
    for mode in ("whole", "split"):
        with exchange_patterns(model, heads, mode=mode):
            same = _run(model, document)
        torch.testing.assert_close(same, dense, rtol=0, atol=1e-5)
    assert torch.equal(_run(model, document), dense)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("model_type", ["gpt2", "llama", "bert", "vit"])
def test_exchanges_equal_attention_by_hand_and_leave_other_heads_alone(model_type, implementation):
    family = BY_TYPE[model_type]
    model, document = tiny_model(family, implementation=implementation), tiny_inputs(family)[0]
    maps, values = _eager_maps(model_type, document), _values(model, 2, document)
    dense = _joined(model, 2, lambda: _run(model, document))
    lent = {(2, 1): (0, 3), (2, 3): (2, 0)}
    for mode in ("whole", "split"):
        with exchange_patterns(model, lent, mode=mode):
            found = _joined(model, 2, lambda: _run(model, document))
        for (_, head), (layer, donor) in lent.items():
            own, other = maps[2][head], maps[layer][donor]
            pattern = other
            if mode == "split":
                content = other.clone()
                content[:, 0] = 0
                total = content.sum(-1, keepdim=True)
                pattern = (1 - own[:, :1]) * content / total.where(total > 0, torch.ones(()))
                pattern[:, 0] = own[:, 0]
            told = found[:, head].double()
            torch.testing.assert_close(told, pattern @ values[head], rtol=0, atol=1e-5)
            assert (told - dense[:, head]).abs().max() > 1e-3
        for head in (0, 2):
            assert torch.equal(found[:, head], dense[:, head])


def test_a_donor_beside_a_window_lends_what_both_see():
    family = BY_TYPE["qwen2"]  # layer 1 sees 4 keys, layers 0 and 2 all
    model, document = tiny_model(family), tiny_inputs(family)[0]
    maps, values = _eager_maps("qwen2", document), _values(model, 1, document)
    with exchange_patterns(model, {(1, 2): (0, 1)}):
        found = _joined(model, 1, lambda: _run(model, document))[:, 2].double()
    shared = maps[0][1] * (maps[1][2] > 0)
    assert (maps[0][1] - shared).sum() > 1  # the window hides much of the donor
    pattern = shared / shared.sum(-1, keepdim=True)
    torch.testing.assert_close(found, pattern @ values[2], rtol=0, atol=1e-5)


def test_a_donor_with_a_window_gives_nothing_to_the_keys_it_does_not_see():
    family = BY_TYPE["qwen2"]
    model, document = tiny_model(family), tiny_inputs(family)[0]
    maps, values = _eager_maps("qwen2", document), _values(model, 2, document)
    with exchange_patterns(model, {(2, 0): (1, 2)}):
        found = _joined(model, 2, lambda: _run(model, document))[:, 0].double()
    torch.testing.assert_close(found, maps[1][2] @ values[0], rtol=0, atol=1e-5)


def test_a_learned_sink_stays_with_the_borrower_when_split_and_comes_along_when_whole():
    family = BY_TYPE["gpt_oss"]
    model, document = tiny_model(family), tiny_inputs(family)[0]
    maps, values = _eager_maps("gpt_oss", document), _values(model, 2, document)
    own, other = maps[2][1], maps[0][3]
    assert (own.sum(-1) < 0.99).any()  # some mass goes to the learned sink
    with exchange_patterns(model, {(2, 1): (0, 3)}):
        whole = _joined(model, 2, lambda: _run(model, document))[:, 1].double()
    torch.testing.assert_close(whole, other @ values[1], rtol=0, atol=1e-5)
    with exchange_patterns(model, {(2, 1): (0, 3)}, mode="split"):
        split = _joined(model, 2, lambda: _run(model, document))[:, 1].double()
    content, lent = own.clone(), other.clone()
    content[:, 0], lent[:, 0] = 0, 0
    total = lent.sum(-1, keepdim=True)
    pattern = content.sum(-1, keepdim=True) * lent / total.where(total > 0, torch.ones(()))
    pattern[:, 0] = own[:, 0]
    torch.testing.assert_close(split, pattern @ values[1], rtol=0, atol=1e-5)


def test_a_borrower_lends_the_pattern_of_its_own_logits():
    family = BY_TYPE["gpt2"]
    model, document = tiny_model(family), tiny_inputs(family)[0]
    maps, values = _eager_maps("gpt2", document), _values(model, 1, document)
    chain = {(1, 1): (1, 0), (1, 2): (1, 1)}
    with exchange_patterns(model, chain):
        found = _joined(model, 1, lambda: _run(model, document))
    torch.testing.assert_close(found[:, 2].double(), maps[1][1] @ values[2], rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("model_type", ["gpt2", "llama", "mistral"])
def test_padding_on_either_side_changes_no_exchange(model_type, side):
    family = BY_TYPE[model_type]
    model, documents = tiny_model(family), tiny_inputs(family)
    tokenizer = SimpleNamespace(padding_side=side, pad_token_id=0)
    texts = TextDocuments(model, tokenizer, documents, max_length=None)
    batch = texts.batch((0, 1, 2), 12)
    lent = {(2, 1): (0, 3), (1, 0): (1, 2)}
    for mode in ("whole", "split"):
        with exchange_patterns(model, lent, mode=mode):
            alone = [_run(model, document)[0] for document in documents]
            with torch.no_grad():
                padded = model(**batch.inputs).last_hidden_state
        for i, expected in enumerate(alone):
            found = padded[i, batch.starts[i] : batch.stops[i]]
            torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_keys=st.integers(2, 9),
    scale=st.floats(0.1, 20),
    sinks=st.integers(1, 3),
    learned=st.booleans(),
)
def test_a_split_keeps_sink_weights_exactly_and_the_mass_of_every_row(
    seed, n_keys, scale, sinks, learned
):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.ones(n_keys, n_keys).triu(1).bool()

    def scores():
        logits = scale * torch.randn((1, n_keys, n_keys), generator=generator)
        sink = torch.randn(1, generator=generator) if learned else None
        return Scores(logits.masked_fill(hidden, -torch.inf), sink)

    own, donor = scores(), scores()
    sink = torch.arange(n_keys) < min(sinks, n_keys - 1)
    before, after = own_pattern(own), split_pattern(own, donor, sink)
    assert torch.equal(after[..., sink], before[..., sink])
    torch.testing.assert_close(after.sum(-1), before.sum(-1), rtol=0, atol=1e-6)
    closed = whole_pattern(own, Scores(donor.logits, None)).double()
    weights = donor.logits.double().softmax(-1)
    torch.testing.assert_close(closed, weights, rtol=0, atol=1e-5)
    content = after[..., ~sink].double()
    lent = weights[..., ~sink]
    # in proportion to the donor's, row by row
    left = content * lent.sum(-1, keepdim=True)
    right = lent * content.sum(-1, keepdim=True)
    torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_the_sink_may_stand_elsewhere():
    family = BY_TYPE["gpt2"]
    model, document = tiny_model(family), tiny_inputs(family)[0]
    maps, values = _eager_maps("gpt2", document), _values(model, 2, document)
    with exchange_patterns(model, {(2, 1): (0, 3)}, mode="split", sink=(0, 3)):
        found = _joined(model, 2, lambda: _run(model, document))[-1, 1].double()
    own, other = maps[2][1][-1], maps[0][3][-1].clone()
    sink = torch.zeros(len(own), dtype=torch.bool)
    sink[[0, 3]] = True
    other[sink] = 0
    pattern = torch.where(sink, own, own[~sink].sum() * other / other.sum())
    torch.testing.assert_close(found, pattern @ values[1], rtol=0, atol=1e-5)


def _state(model):
    return (
        {name: (m.training, sorted(vars(m))) for name, m in model.named_modules()},
        [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        {id(m.config): repr(m.config.__dict__) for m in model.modules() if hasattr(m, "config")},
        dict(ALL_ATTENTION_FUNCTIONS._global_mapping),
        torch.is_grad_enabled(),
    )


def test_the_model_is_left_as_found_on_exceptions_too():
    family = BY_TYPE["llama"]
    model, document = tiny_model(family).train(), tiny_inputs(family)[0]
    before = _state(model)
    with exchange_patterns(model, {(1, 1): (0, 0)}):
        _run(model, document)
    assert _state(model) == before
    with pytest.raises(KeyError), exchange_patterns(model, {(1, 1): (0, 0)}):
        raise KeyError
    assert _state(model) == before


def test_patterns_are_kept_no_longer_than_they_are_needed():
    from sinkwise.surgery.attention_order import attention_order
    from sinkwise.surgery.interchange import _Exchange, _places

    model, document = tiny_model(BY_TYPE["gpt2"]), tiny_inputs(BY_TYPE["gpt2"])[0]
    order = attention_order(model)
    lent = _places(order, {(1, 0): (0, 1), (2, 0): (0, 2), (1, 3): (1, 2)})
    exchange = _Exchange(order, lent, "whole", (0,))
    held = []

    def listener(call):
        output = exchange(call)
        held.append(sorted(place for place, _ in exchange._lent))
        return output

    with listening(model, listener):
        _run(model, document)
    assert held == [[(0, 1), (0, 2)], [(0, 2)], []]


@pytest.mark.parametrize(
    ("borrowers", "options", "error", "words"),
    [
        ({}, {}, RowError, "no head arrived that borrows"),
        ([(1, 0)], {}, InputTypeError, "expected a mapping"),
        ({(0, 0): (1, 0)}, {}, CaptureError, "L0H0 can't borrow from L1H0"),
        ({(9, 0): (1, 0)}, {}, RowError, "layers that attend are"),
        ({(1, 0): (0, 4)}, {}, RowError, "type an index from 0 to 3"),
        ({(1, 0): (0, 0)}, {"mode": "half"}, RowError, 'expected "whole" or "split"'),
        ({(1, 0): (0, 0)}, {"sink": "found"}, RowError, "name positions instead"),
        ({(1, 0): (0, 0)}, {"sink": -1}, RowError, "a token position from 0"),
    ],
)
def test_what_has_no_meaning_is_refused_before_anything_runs(borrowers, options, error, words):
    model = tiny_model(BY_TYPE["gpt2"])
    with pytest.raises(error, match=words), exchange_patterns(model, borrowers, **options):
        pytest.fail("it was entered")


def test_an_exchange_that_never_happened_is_an_error():
    model = tiny_model(BY_TYPE["gpt2"])
    with pytest.raises(CaptureError, match="L1H0 never borrowed"):  # noqa: SIM117
        with exchange_patterns(model, {(1, 0): (0, 0)}):
            pass


def test_a_document_without_the_sink_is_refused():
    model, document = tiny_model(BY_TYPE["gpt2"]), tiny_inputs(BY_TYPE["gpt2"])[0]
    with (
        pytest.raises(RowError, match="none at the sink's positions"),
        exchange_patterns(model, {(1, 0): (0, 0)}, mode="split", sink=40),
    ):
        _run(model, document)


def test_a_key_cache_is_refused_and_generation_without_one_works():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=20, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    ids = torch.arange(3, 9)[None]
    options = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    with exchange_patterns(model, {(1, 1): (0, 0)}):
        made = model.generate(ids, use_cache=False, **options)
        again = model(made[:, :-1]).logits[:, -1].argmax(-1)
        with pytest.raises(CaptureError, match="use_cache=False"):
            model.generate(ids, use_cache=True, **options)
    assert made.shape == (1, 9) and int(again) == int(made[0, -1])


def test_logits_that_are_not_all_of_the_attention_are_refused():
    model, document = tiny_model(BY_TYPE["gpt2"]), tiny_inputs(BY_TYPE["gpt2"])[0]
    kept = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def hidden_bias(module, query, key, value, mask, **options):
        return kept(module, query * 3, key, value, mask, **options)

    ALL_ATTENTION_FUNCTIONS.register("secret", hidden_bias)
    try:
        model.config._attn_implementation = "secret"
        with (
            pytest.raises(CaptureError, match="don't give the attention's own output"),
            exchange_patterns(model, {(1, 0): (0, 0)}),
        ):
            _run(model, document)
    finally:
        type(ALL_ATTENTION_FUNCTIONS)._global_mapping.pop("secret", None)


def test_half_precision_models_exchange_in_float32():
    family = BY_TYPE["llama"]
    model, document = tiny_model(family).to(torch.bfloat16), tiny_inputs(family)[0]
    dense = _run(model, document)
    with exchange_patterns(model, {HeadId(1, 1): HeadId(1, 1)}):
        same = _run(model, document)
    assert same.dtype == torch.bfloat16
    torch.testing.assert_close(same, dense, rtol=0.05, atol=0.1)


def test_rotary_models_exchange_under_autocast():
    """Rotated queries are float32 there, and attention works in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 64, "vocab_size": 50}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()
    ids = torch.randint(0, 50, (2, 64))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        dense = model(ids, use_cache=False).logits
        with exchange_patterns(model, {(1, 0): (0, 1)}):
            changed = model(ids, use_cache=False).logits
        with exchange_patterns(model, {(1, 0): (1, 0)}):
            same = model(ids, use_cache=False).logits
    assert float((changed - dense).abs().max()) > 0
    assert float((same - dense).abs().max()) < 0.02 * float(dense.abs().max())


def test_a_logit_that_is_not_finite_is_traced_to_its_weights():
    model = tiny_model(BY_TYPE["llama"])
    with torch.no_grad():
        model.layers[1].self_attn.q_proj.weight[0, 0] = float("nan")
    with (
        pytest.raises(CaptureError, match=r"1 of \d+ .* first q_proj\.weight"),
        exchange_patterns(model, {(1, 0): (0, 1)}),
    ):
        _run(model, tiny_inputs(BY_TYPE["llama"])[0])
