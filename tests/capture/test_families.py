"""Captured rows are the model's own attention weights, in every family and under every padding."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.source import ModelRows  # noqa: E402

TEXT = ["gpt2", "gpt_neox", "llama", "qwen2", "mistral", "bert", "roberta", "albert"]
VISION = ["vit", "dinov2", "dinov3_vit"]
EAGER_ONLY = ["gemma2", "gpt_oss"]
# float32 softmax of logits computed in another order of sums: a few units of 6e-8 each
TOLERANCE = 1e-5


def _loaded(families, implementations):
    return [(family, name) for family in families for name in implementations]


def _assert_equal_to_eager(rows, documents, model_type, eager_weights, block_weights):
    blocks = list(rows.blocks())
    assert [block.document for block in blocks] == list(range(len(documents)))
    for block in blocks:
        assert block.n_rows > 0
        expected = eager_weights(model_type, documents[block.document])[:, block.queries]
        got = block_weights(block)[..., : expected.shape[-1]]
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("model_type", "implementation"),
    _loaded(TEXT + VISION, ["sdpa", "eager"]) + _loaded(EAGER_ONLY, ["eager"]),
)
def test_A1_A2_rows_equal_eager_weights_alone(
    build, documents, eager_weights, block_weights, model_type, implementation
):
    model, inputs = build(model_type, implementation), documents(model_type)
    rows = ModelRows(model, None, inputs, queries="all", batch_size=1)
    assert rows.card()["attention_implementation"] == implementation
    assert model.config._attn_implementation == implementation
    _assert_equal_to_eager(rows, inputs, model_type, eager_weights, block_weights)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    ("model_type", "implementation"),
    _loaded(TEXT, ["sdpa", "eager"]) + _loaded(EAGER_ONLY, ["eager"]),
)
def test_C1_a_padded_document_has_the_rows_it_has_alone(
    build, documents, padding, eager_weights, block_weights, model_type, implementation, side
):
    inputs = documents(model_type)
    rows = ModelRows(
        build(model_type, implementation), padding(side), inputs, queries="all", batch_size=3
    )
    _assert_equal_to_eager(rows, inputs, model_type, eager_weights, block_weights)
    blocks = list(rows.blocks())
    assert [block.excluded.get("padding", 0) for block in blocks] == [0, 3, 2]
    assert all(
        block.n_keys - rows.layers.has_virtual_sink == len(ids)
        for block, ids in zip(blocks, inputs, strict=True)
    )


@pytest.mark.parametrize("model_type", ["llama", "bert", "vit"])
def test_D15_bfloat16_weights_give_float32_rows(
    build, documents, eager_weights, block_weights, model_type
):
    model = build(model_type).to(torch.bfloat16)
    inputs = documents(model_type)
    rows = ModelRows(model, None, inputs, queries="all", batch_size=1)
    for block in rows.blocks():
        assert block.log_weights.dtype == np.float32
        expected = eager_weights(model_type, inputs[block.document], torch.bfloat16)
        # eager rounds bfloat16 logits: 2^-9 of a logit of up to 16 is 3 % of a weight, and the
        # layers before it differ by the same rounding
        np.testing.assert_allclose(
            block_weights(block), expected[:, block.queries], rtol=0, atol=0.06
        )


def test_bfloat16_logits_are_finer_than_bfloat16(build, documents):
    block = next(ModelRows(build("llama").to(torch.bfloat16), None, documents("llama")).blocks())
    rounded = torch.from_numpy(block.log_weights).bfloat16().float().numpy()
    assert np.mean(rounded != block.log_weights) > 0.9


def test_B4_heads_are_query_heads_and_an_index_error_states_both_counts(build, documents):
    rows = ModelRows(build("llama"), None, documents("llama"))
    assert len(rows.heads) == 3 * 4
    assert rows.heads[rows.head_number(2, 3)].label == "L2H3"
    with pytest.raises(ValueError, match=r"head 4 of layer 1 .* 4 query heads over 2 key/value"):
        rows.head_number(1, 4)
    with pytest.raises(ValueError, match=r"layer 7 arrived"):
        rows.head_number(7, 0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_B10_a_window_of_four_shows_four_keys_and_the_first_is_not_visible_beyond(
    build, padding, implementation, side
):
    ids = np.arange(3, 13)  # ten tokens
    rows = ModelRows(
        build("mistral", implementation), padding(side), [ids, ids[:8]], queries="all", batch_size=2
    )
    for block, length in zip(rows.blocks(), (10, 8), strict=True):
        # rows 0 and 1 have fewer than two content keys; from row 4 on key 0 is out of the window
        assert block.queries.tolist() == [2, 3]
        assert block.support.sum(-1).tolist() == [3, 4]
        assert block.excluded["few_content_parts"] == 2
        assert block.excluded["sink_not_visible"] == length - 4


def test_B10_query_i_of_a_window_sees_min_i_plus_one_and_window_keys(build):
    rows = ModelRows(
        build("mistral"), None, [np.arange(3, 13)], queries="all", sink=tuple(range(10))
    )
    recorded = rows._run(next(iter([rows._documents.batch((0,), 10)])), check=True)[0]
    seen = recorded.support(rows.layers).sum(-1)
    assert seen.tolist() == [min(i + 1, 4) for i in range(10)]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_C4_a_window_wholly_inside_the_padding_leaves_real_rows_right(
    build, padding, eager_weights, block_weights, implementation
):
    short, long = np.arange(3, 13), np.arange(3, 18)
    rows = ModelRows(
        build("mistral", implementation), padding("left"), [short, long], queries="all"
    )
    first = next(rows.blocks())
    assert first.excluded["padding"] == 5  # more than the window of four
    np.testing.assert_allclose(
        block_weights(first),
        eager_weights("mistral", short)[:, first.queries],
        rtol=0,
        atol=TOLERANCE,
    )


def test_layers_that_see_different_keys_have_a_support_for_each_head(build, documents):
    rows = ModelRows(build("qwen2"), None, documents("qwen2"), queries="all")
    block = next(rows.blocks())
    assert block.support.shape == (12, block.n_rows, block.n_keys)
    last = block.support[:, -1].sum(-1)
    assert last.reshape(3, 4).tolist() == [[12] * 4, [4] * 4, [12] * 4]
    assert block.valid[0].all() and not block.valid[4, -1]


def test_one_support_serves_all_heads_where_layers_agree(build, documents):
    block = next(ModelRows(build("gpt2"), None, documents("gpt2"), queries="all").blocks())
    assert block.support.shape == (block.n_rows, block.n_keys)


def test_B7_a_learned_sink_is_a_last_column_and_the_weights_before_it_sum_to_less_than_one(
    build, documents, block_weights
):
    model, inputs = build("gpt_oss"), documents("gpt_oss")
    block = next(ModelRows(model, None, inputs, queries="all").blocks())
    assert block.n_keys == len(inputs[0]) + 1
    assert block.sink[:, -1].all() and block.sink[:, 0].all()
    assert block.support[..., -1].all()
    logits = np.concatenate([layer.self_attn.sinks.detach().numpy() for layer in model.layers])
    assert (block.log_weights[..., -1] == logits[:, None]).all()
    assert (block_weights(block)[..., :-1].sum(-1) < 1).all()


def test_B6_a_hybrid_keeps_its_layer_numbers_and_lists_the_layers_without_attention():
    from transformers import Qwen3NextConfig, Qwen3NextModel

    torch.manual_seed(0)
    config = Qwen3NextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, linear_num_value_heads=2,
        linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
        num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16,
        shared_expert_intermediate_size=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
    )  # fmt: skip
    model = Qwen3NextModel(config).eval()
    rows = ModelRows(model, None, [np.arange(3, 15)])
    assert {head.layer for head in rows.heads} == {3}
    assert rows.card()["skipped_layers"] == [0, 1, 2]
    assert next(rows.blocks()).n_heads == 4


def test_B6_a_module_that_knows_its_layer_is_believed_before_its_path():
    from types import SimpleNamespace

    from sinkwise.capture.layers import _layer_number

    told, silent = SimpleNamespace(layer_idx=5), SimpleNamespace()
    names = {id(told): "stages.1.blocks.2.attn", id(silent): "encoder.layer.4.attention"}
    assert _layer_number(told, names) == 5
    assert _layer_number(silent, names) == 4
    assert _layer_number(silent, {id(silent): "stages.1.blocks.2.attn"}) is None


def test_A6_the_card_names_what_modules_use_not_what_was_asked_for(build, documents):
    model = build("gpt2", "sdpa")
    for block in model.h:  # a config of its own, as when a model was put together by hand
        block.attn.config = type(model.config)(**model.config.to_dict())
        block.attn.config._attn_implementation_internal = "eager"
    assert model.config._attn_implementation == "sdpa"
    rows = ModelRows(model, None, documents("gpt2"))
    assert rows.card()["attention_implementation"] == "eager"
