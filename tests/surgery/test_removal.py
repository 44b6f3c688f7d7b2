"""A model without some heads does what it did with them zeroed, and is otherwise as it was."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from sinkwise.capture.interface import listening  # noqa: E402
from sinkwise.errors import CaptureError, InputTypeError, RowError  # noqa: E402
from sinkwise.rowdata import HeadId  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.removal_plan import plan_removal, require_same_heads  # noqa: E402

FAMILIES = [
    *("gpt2", "gpt_neox", "llama", "qwen2", "mistral", "gemma2", "gpt_oss", "phi3", "qwen3"),
    *("gemma3_text", "mixtral", "opt", "bert", "roberta", "vit", "dinov2", "dinov3_vit"),
]
SETS = {
    "one head": [(0, 1)],
    "uneven over layers and groups": [(0, 0), (0, 1), (0, 3), (1, 2)],
    "whole group": [(1, 0), (1, 1)],
    "whole layers": [(0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1), (2, 2), (2, 3), (1, 3)],
    "the same from each layer": [(0, 0), (1, 0), (2, 0), (0, 2), (1, 2), (2, 2)],
}


def gap(found, expected) -> float:
    """Largest difference over the largest value: float32 in another order of sums is 1e-7 each."""
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("heads", SETS.values(), ids=SETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_model_with_those_heads_zeroed(family, heads, model_of, inputs_of, run, zeroed):
    model, inputs = model_of(family), inputs_of(family)
    dense = run(model, inputs)
    with zeroed(model, family, heads):
        expected = run(model, inputs)
    assert (expected - dense).abs().max() > 0.01
    smaller = remove_heads(model, heads)
    assert gap(run(smaller, inputs), expected) < 1e-5
    assert torch.equal(run(model, inputs), dense)


@pytest.mark.parametrize("family", ["llama", "bert", "vit", "gpt_neox"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_any_implementation_serves_also_one_that_is_set_later(
    family, implementation, model_of, inputs_of, run, zeroed
):
    heads = SETS["uneven over layers and groups"]
    inputs = inputs_of(family)
    with zeroed(dense := model_of(family, "eager"), family, heads):
        expected = run(dense, inputs)
    smaller = remove_heads(model_of(family, implementation), heads)
    assert gap(run(smaller, inputs), expected) < 1e-5
    smaller.set_attn_implementation("sdpa" if implementation == "eager" else "eager")
    assert gap(run(smaller, inputs), expected) < 1e-5


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_padded_batches_see_the_same_mask(family, model_of, inputs_of, zeroed):
    heads = SETS["uneven over layers and groups"]
    model = model_of(family)
    inputs = inputs_of(family)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][0, :5] = 0
    smaller = remove_heads(model, heads)
    with torch.no_grad(), zeroed(model, family, heads):
        expected = model(**inputs).logits
        found = smaller(**inputs).logits
    real = inputs["attention_mask"] == 1
    assert gap(found[real], expected[real]) < 1e-5


def small(heads: int = 6, kv_heads: int = 2) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=4,
        intermediate_size=16,
        vocab_size=32,
        initializer_range=0.3,
        attention_bias=True,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


ALL = [(layer, index) for layer in range(2) for index in range(6)]


@settings(max_examples=25, deadline=None)
@given(
    heads=st.lists(st.sampled_from(ALL), min_size=2, max_size=11, unique=True),
    cut=st.integers(1, 10),
    kv_heads=st.sampled_from([1, 2, 3, 6]),
)
def test_in_two_steps_is_at_once(heads, cut, kv_heads):
    """Heads are renumbered by the first step; the structure and what is recorded are the same."""
    cut = min(cut, len(heads) - 1)
    first, second = heads[:cut], heads[cut:]
    model = small(kv_heads=kv_heads)
    renumbered = [
        (layer, index - sum(1 for gone in first if gone[0] == layer and gone[1] < index))
        for layer, index in second
    ]
    at_once = remove_heads(model, heads)
    if all(sum(1 for head in first if head[0] == layer) < 6 for layer in (0, 1)):
        steps = remove_heads(remove_heads(model, first), renumbered)
    else:
        return  # the emptied layer can only be left alone, and the other one alone remains
    ids = torch.randint(0, 32, (2, 9))
    with torch.no_grad():
        assert torch.equal(steps(ids).logits, at_once(ids).logits)
    same = {
        name: torch.equal(a, steps.state_dict()[name]) for name, a in at_once.state_dict().items()
    }
    assert all(same.values()) and len(same) == len(steps.state_dict())


def test_in_two_steps_a_layer_still_reads_its_columns_of_a_shared_position_bias(
    model_of, inputs_of, run
):
    model, inputs = model_of("t5", num_layers=2), inputs_of("t5")
    bias = model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias
    torch.nn.init.normal_(bias.weight)
    steps = remove_heads(remove_heads(model, [(1, 0), (0, 3)]), [(1, 1), (0, 0)])
    at_once = remove_heads(model, [(1, 0), (1, 2), (0, 0), (0, 3)])
    assert torch.equal(run(steps, inputs), run(at_once, inputs))


@settings(max_examples=25, deadline=None)
@given(
    heads=st.lists(st.sampled_from(ALL), min_size=1, max_size=12, unique=True),
    kv_heads=st.sampled_from([1, 2, 3, 6]),
)
def test_weights_and_caches_are_those_of_the_heads_left(heads, kv_heads):
    """By counting: which query heads stay, and which key/value heads they read."""
    smaller = remove_heads(small(kv_heads=kv_heads), heads)
    with torch.no_grad():
        cache = smaller(torch.randint(0, 32, (1, 7)), use_cache=True).cache
    for layer in range(2):
        kept = [index for index in range(6) if (layer, index) not in heads]
        read = {index * kv_heads // 6 for index in kept}
        attention = smaller.model.layers[layer].self_attn
        assert attention.o_proj.weight.shape == (24, 4 * len(kept))
        assert cache.get_seq_length(layer) == 7
        if kept:
            assert attention.q_proj.weight.shape == (4 * len(kept), 24)
            assert attention.k_proj.bias.shape == attention.v_proj.bias.shape == (4 * len(read),)
            assert cache.layers[layer].keys.shape == (1, len(read), 7, 4)
            assert attention.config.num_attention_heads == len(kept)
            assert attention.config.num_key_value_heads == len(read)
        else:
            assert cache.layers[layer].keys.shape == (1, 1, 7, 1)


def test_in_place_is_the_same_model_and_a_failure_leaves_it_whole(monkeypatch):
    model = small()
    before = {name: (id(p), p.clone()) for name, p in model.named_parameters()}
    config = copy.deepcopy(model.config.to_dict())

    def fail(smaller, plans):
        assert smaller.model.layers[1].self_attn.q_proj.out_features == 20
        raise CaptureError("not so")

    with monkeypatch.context() as broken:
        broken.setattr("sinkwise.surgery.removal_plan.require_same_heads", fail)
        with pytest.raises(CaptureError, match="not so"):
            remove_heads(model, [(1, 0), *ALL[:6]], inplace=True)
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0] and torch.equal(parameter, before[name][1])
    assert model.config.to_dict() == config
    attention = model.model.layers[1].self_attn
    assert attention.config is model.config and attention.num_key_value_groups == 3
    assert attention.q_proj.out_features == 24 and type(attention).__name__ == "LlamaAttention"
    assert remove_heads(model, [(1, 0)], inplace=True) is model
    assert attention.q_proj.out_features == 20


def test_everything_else_is_kept():
    model = small().train()
    model.model.layers[0].mlp.eval()
    model.model.layers[1].self_attn.q_proj.weight.requires_grad = False
    fired = []
    model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *_: fired.append(1))
    modes = [module.training for module in model.modules()]
    smaller = remove_heads(model.to(torch.bfloat16), [(1, 4), (1, 5)])
    assert [module.training for module in smaller.modules()] == modes
    assert [module.training for module in model.modules()] == modes
    assert smaller.dtype == torch.bfloat16 and smaller.lm_head.weight.dtype == torch.bfloat16
    assert not smaller.model.layers[1].self_attn.q_proj.weight.requires_grad
    assert smaller.model.layers[1].self_attn.k_proj.weight.requires_grad
    fired.clear()
    smaller(torch.tensor([[1, 2]]))
    assert fired == [1] and "model.embed_tokens.weight" in dict(smaller.named_parameters())


def test_tied_weights_stay_tied():
    model = small()
    model.config.tie_word_embeddings = True
    model.tie_weights()
    smaller = remove_heads(model, [(0, 1)])
    assert smaller.lm_head.weight is smaller.model.embed_tokens.weight
    assert smaller.lm_head.weight is not model.lm_head.weight


def test_gradients_are_those_of_the_zeroed_model(zeroed):
    model = small()
    heads = [(0, 1), (0, 3), (1, 0)]
    smaller = remove_heads(model, heads)
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    smaller(ids, labels=ids).loss.backward()
    with zeroed(model, "llama", heads, head_dim=4):
        model(ids, labels=ids).loss.backward()
    kept = [row for head in (0, 2, 4, 5) for row in range(4 * head, 4 * head + 4)]
    found = smaller.model.layers[0].self_attn
    expected = model.model.layers[0].self_attn
    assert torch.allclose(found.q_proj.weight.grad, expected.q_proj.weight.grad[kept], atol=1e-6)
    assert torch.allclose(found.k_proj.weight.grad, expected.k_proj.weight.grad, atol=1e-6)
    assert torch.allclose(found.o_proj.weight.grad, expected.o_proj.weight.grad[:, kept], atol=1e-6)


def test_copies_and_pickles_of_it_run(inputs_of):
    smaller = remove_heads(small(), [(0, 1), *ALL[6:]])
    ids = torch.tensor([[1, 2, 3]])
    expected = smaller(ids).logits
    again = copy.deepcopy(smaller)
    assert torch.equal(again(ids).logits, expected)
    assert again.model.layers[0].self_attn.config.shared is again.config
    assert torch.equal(pickle.loads(pickle.dumps(smaller))(ids).logits, expected)


def test_nothing_is_registered_until_a_model_needs_it():
    import subprocess
    import sys

    code = (
        "from sinkwise import remove_heads\n"
        "from transformers import LlamaConfig, LlamaModel\n"
        "from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as known\n"
        "from sinkwise.capture.pruned.layer_config import ATTENTION\n"
        "size = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=4, head_dim=2,"
        " num_key_value_heads=2, intermediate_size=8, vocab_size=9)\n"
        "model = LlamaModel(LlamaConfig(**size))\n"
        "assert ATTENTION not in known\n"
        "remove_heads(model, [(0, 0), (0, 1)])\n"
        "assert ATTENTION not in known\n"
        "remove_heads(model, [(0, 0)])\n"
        "assert ATTENTION in known\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_listener_hears_one_key_a_query_head_and_leaves_the_model_alone():
    smaller = remove_heads(small(), [(0, 1)])
    shapes = []
    with listening(smaller, lambda call: shapes.append((call.query.shape[1], call.key.shape[1]))):
        smaller(torch.tensor([[1, 2, 3]]))
    assert shapes == [(5, 5), (6, 2)]
    assert smaller.config._attn_implementation == "sdpa"


def test_heads_are_named_as_ids_or_pairs():
    named = remove_heads(small(), [HeadId(0, 1), (1, 2), (1, 2)])
    assert [layer.self_attn.q_proj.out_features for layer in named.model.layers] == [20, 20]


@pytest.mark.parametrize(
    ("heads", "told"),
    [
        ([(0, 6)], "6 query heads: type an index from 0 to 5"),
        ([(5, 0)], r"the layers that attend are \[0, 1\]"),
        ([], "no head arrived"),
        (["L0H1!"], "expected a HeadId or a pair"),
    ],
)
def test_a_head_that_is_not_there_is_named(heads, told):
    with pytest.raises(RowError, match=told):
        remove_heads(small(), heads)


def test_what_can_not_be_removed_is_refused_and_said_why(model_of):
    with pytest.raises(CaptureError, match=r"Olmo2Attention.*q_norm.*over all heads.*switch_off"):
        remove_heads(model_of("olmo2"), [(1, 0)])
    with pytest.raises(CaptureError, match=r"serves the layers \[0, 1, 2\]"):
        remove_heads(model_of("albert"), [(1, 0)])
    with pytest.raises(InputTypeError, match="expected a transformers model"):
        remove_heads(torch.nn.Linear(2, 2), [(0, 0)])


def test_weights_that_are_not_plain_or_not_its_own_are_refused():
    class Adapted(torch.nn.Linear):
        """As adapters and quantised layers do: a linear layer of another class."""

    model = small()
    attention = model.model.layers[0].self_attn
    attention.v_proj.__class__ = Adapted
    with pytest.raises(CaptureError, match="v_proj is a Adapted, expected nn"):
        remove_heads(model, [(0, 0)])
    attention.v_proj.__class__ = torch.nn.Linear
    attention.gate = torch.nn.Linear(24, 24)
    with pytest.raises(CaptureError, match=r"linear layers .*gate.* no way known"):
        remove_heads(model, [(0, 0)])
    del attention.gate
    attention.scale = torch.nn.Parameter(torch.ones(24))
    with pytest.raises(CaptureError, match=r"its scale of shape \(24,\) isn't one a head"):
        remove_heads(model, [(0, 0)])
    del attention.scale
    model.model.layers[1].self_attn.q_proj.weight = attention.q_proj.weight
    with pytest.raises(CaptureError, match="q_proj is shared"):
        remove_heads(model, [(0, 0)])


def test_a_removal_that_changes_a_kept_head_is_not_done():
    model = small()
    plans = plan_removal(model, [(0, 1)])
    smaller = remove_heads(model, [(0, 1)])
    require_same_heads(smaller, plans)
    with torch.no_grad():
        q = smaller.model.layers[0].self_attn.q_proj.weight
        q.copy_(q.roll(1, 0))
    with pytest.raises(CaptureError, match="a kept head's output is off by"):
        require_same_heads(smaller, plans)
