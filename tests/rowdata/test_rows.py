"""Rows from arrays: what is absent, what is zero, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def causal_map(rng, *lead, n=6, dtype="float64"):
    z = rng.normal(size=(*lead, n, n))
    p = np.where(np.tril(np.ones((n, n), bool)), np.exp(z), 0)
    return (p / p.sum(-1, keepdims=True)).astype(dtype)


def blocks(rows):
    return list(rows.blocks())


def test_causal_rows_see_no_future_and_short_rows_are_counted():
    rng = np.random.default_rng(0)
    p = causal_map(rng, 2, 3)
    found = sw.rows(p, sink="first", causal=True)
    assert (found.n_documents, len(found.heads), found.n_rows) == (2, 3, 8)
    # rows 0 and 1 have no content of two parts: left out of everything, and counted
    assert found.excluded == {"few_content_parts": 4}
    block = blocks(found)[1]
    assert block.queries.tolist() == [2, 3, 4, 5]
    assert block.support.sum(-1).tolist() == [3, 4, 5, 6]
    np.testing.assert_allclose(np.exp(block.log_weights[2, 3]), p[1, 2, 5], rtol=1e-14)


def test_mass_in_the_future_is_an_error_that_names_the_row():
    p = causal_map(np.random.default_rng(0), 1, 2)
    p[0, 1, 2] = 1 / 6
    with pytest.raises(sw.RowError, match=r"layer 0, head 1, query 2 .*0\.5 of its mass"):
        sw.rows(p, sink=0, causal=True)


def test_a_causal_map_passed_as_full_is_told_what_to_type():
    p = causal_map(np.random.default_rng(0), 1, 2)
    with pytest.raises(sw.RowError, match="causal=True"):
        list(sw.rows(p, sink=0).blocks())


def test_layers_are_named_in_layer_major_order_and_may_be_uneven():
    rng = np.random.default_rng(1)
    maps = tuple(softmax(rng.normal(size=(1, h, 4, 4))) for h in (2, 3))
    found = sw.rows(maps, sink=0)
    assert [h.label for h in found.heads] == ["L0H0", "L0H1", "L1H0", "L1H1", "L1H2"]


def test_B6_layers_without_attention_keep_their_numbers():
    p = softmax(np.random.default_rng(1).normal(size=(1, 2, 4, 4)))
    found = sw.rows((None, None, None, p), sink=0)
    assert [h.layer for h in found.heads] == [3, 3]
    assert found.card()["skipped_layers"] == [0, 1, 2]


def test_A1_maps_that_are_all_none_say_how_to_get_them():
    with pytest.raises(sw.RowError, match="attn_implementation"):
        sw.rows((None, None), sink=0)


def test_B1_generate_steps_keep_their_own_number_of_keys():
    rng = np.random.default_rng(2)
    full = causal_map(rng, 1, 3, n=8)
    steps = [(full[:, :, :6, :6],), (full[:, :, 6:7, :7],), (full[:, :, 7:8, :8],)]
    found = sw.rows(steps, sink="first", causal=True)
    together = sw.rows(full, sink="first", causal=True)
    assert found.n_rows == together.n_rows == 6
    assert [b.log_weights.shape for b in found.blocks()] == [(3, 4, 6), (3, 1, 7), (3, 1, 8)]
    assert [b.queries.tolist() for b in found.blocks()] == [[2, 3, 4, 5], [6], [7]]
    a = sw.head_distances(found, metric="content")
    np.testing.assert_allclose(a, sw.head_distances(together, metric="content"), atol=1e-12)


def test_B2_rectangular_cross_attention_maps_step_by_step_equal_the_whole():
    rng = np.random.default_rng(3)
    cross = softmax(rng.normal(size=(2, 3, 4, 7)))  # 4 target queries over 7 source keys
    steps = [(cross[:, :, i : i + 1],) for i in range(4)]
    a, b = sw.rows(steps, sink=0), sw.rows(cross, sink=0)
    assert a.n_rows == b.n_rows == 8
    np.testing.assert_allclose(
        sw.head_distances(a, metric="content"), sw.head_distances(b, metric="content"), atol=1e-12
    )


def test_B7_rows_that_sum_to_less_than_one_have_a_virtual_sink():
    z = np.zeros((1, 1, 1, 5))
    row = softmax(z)[..., :4]  # four visible keys, all logits and the learned sink 0
    with pytest.raises(sw.RowError, match=r"sums to 0\.8.*sink=\"virtual\""):
        sw.rows(row, sink="first")
    found = sw.rows(row, sink="virtual")
    block = blocks(found)[0]
    assert block.sink[0].tolist() == [False] * 4 + [True]
    np.testing.assert_allclose(np.exp(block.log_weights[0, 0]), 0.2, rtol=1e-12)


def test_B9_longformer_outputs_are_refused():
    class Outputs:
        attentions = (np.ones((1, 2, 8, 6)) / 6,)
        global_attentions = (np.ones((1, 2, 8, 1)),)

    with pytest.raises(sw.RowError, match="no position"):
        sw.rows(Outputs(), sink=0)


def test_B9_longformer_outputs_are_refused_without_global_attention_too():
    class Outputs:
        attentions = (np.ones((1, 2, 8, 5)) / 5,)
        global_attentions = None

    with pytest.raises(sw.RowError, match="no position"):
        sw.rows(Outputs(), sink=2, zeros="exclude")


def test_outputs_with_three_kinds_of_attention_ask_which():
    class Outputs:
        encoder_attentions = decoder_attentions = cross_attentions = None

    with pytest.raises(sw.RowError, match=r"outputs\.cross_attentions"):
        sw.rows(Outputs(), sink=0)


def test_rounding_leaves_nothing_for_a_virtual_sink():
    p = softmax(np.random.default_rng(0).normal(size=(1, 2, 6, 9))).astype(np.float32)
    block = blocks(sw.rows(p, sink="virtual", zeros="exclude"))[0]
    assert np.isneginf(block.log_weights[..., -1]).all()


def test_more_that_is_no_attention():
    p = softmax(np.random.default_rng(0).normal(size=(1, 4, 2, 3)))
    with pytest.raises(sw.InputTypeError, match="complex"):
        sw.rows(p.astype(complex), sink=0)
    with pytest.raises(sw.InputTypeError, match="dtype"):
        sw.rows(p.astype(str), sink=0)
    with pytest.raises(sw.RowError, match="zeros=None"):
        sw.rows(p, sink=0, zeros=None)
    with pytest.raises(sw.RowError, match=r"sink_logit has shape \(5,\)"):
        list(sw.rows(np.log(p), sink=0, logits=True, sink_logit=np.zeros(5)).blocks())


def test_B10_a_window_hides_the_sink_which_is_not_no_sink():
    n, w = 10, 4
    see = np.tril(np.ones((n, n), bool)) & ~np.tril(np.ones((n, n), bool), -w)
    z = np.where(see, np.random.default_rng(4).normal(size=(2, n, n)), -np.inf)
    found = sw.rows(softmax(z), sink=0, causal=True, where=see)
    assert found.excluded == {"few_content_parts": 2, "sink_not_visible": 6}
    assert blocks(found)[0].queries.tolist() == [2, 3]


@pytest.mark.parametrize("shape", [(2,), (4, 4)])
def test_B12_a_wrong_rank_states_the_expected_shape(shape):
    with pytest.raises(sw.RowError, match=r"\[\.\.\., heads, queries, keys\]"):
        sw.rows(np.ones(shape) / shape[-1], sink=0)


def test_B12_the_batch_axis_is_kept():
    p = softmax(np.random.default_rng(5).normal(size=(16, 3, 4, 4)))
    assert sw.rows(p, sink=0).n_documents == 16


def test_B13_static_cache_is_trimmed_to_its_filled_slots():
    rng = np.random.default_rng(6)
    p = np.zeros((1, 2, 1, 64))
    p[..., :10] = softmax(rng.normal(size=(1, 2, 1, 10)))
    filled = np.arange(64) < 10
    block = blocks(sw.rows(p, sink="first", where=filled, causal=True))[0]
    assert block.log_weights.shape == (2, 1, 10)
    assert block.queries.tolist() == [9]
    uniform = np.full((1, 2, 1, 64), 1 / 64)
    with pytest.raises(sw.RowError, match="static cache"):
        sw.rows(uniform, sink="first", where=filled, causal=True)


@pytest.mark.parametrize("side", ["left", "right"])
def test_C1_a_padded_prompt_equals_itself_alone(side):
    rng = np.random.default_rng(7)
    alone = causal_map(rng, 1, 3, n=5)
    batch = np.zeros((1, 3, 8, 8))
    at = slice(3, 8) if side == "left" else slice(0, 5)
    batch[:, :, at, at] = alone
    pads = np.ones(8, bool)
    pads[at] = False
    batch[:, :, pads] = np.nan  # C2: NaN at padded queries is no one's business
    padded = sw.rows(batch, sink="first", causal=True, where=~pads[None])
    plain = sw.rows(alone, sink="first", causal=True)
    assert padded.excluded == {"padding": 3, "few_content_parts": 2}
    a, b = blocks(padded)[0], blocks(plain)[0]
    assert a.queries.tolist() == b.queries.tolist()
    np.testing.assert_array_equal(
        sw.head_distances(padded, metric="js_divergence", convention="kept"),
        sw.head_distances(plain, metric="js_divergence", convention="kept"),
    )


def test_C2_nan_in_a_real_row_raises():
    p = causal_map(np.random.default_rng(8), 1, 2, dtype="float16")
    p[0, 1, 4, 1] = np.nan
    with pytest.raises(sw.RowError, match="head 1, query 4"):
        sw.rows(p, sink=0, causal=True)


def test_C7_packed_documents_have_a_sink_each_and_report_what_crosses():
    rng = np.random.default_rng(9)
    p = causal_map(rng, 1, 2, n=8)
    segments = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    found = sw.rows(p, sink="first", causal=True, segments=segments[None])
    assert found.n_documents == 2
    second = blocks(found)[1]
    assert second.queries.tolist() == [2, 3]
    own = p[0, :, 6:, 4:]
    expected = np.where(np.isfinite(second.log_weights), np.exp(second.log_weights), 0)
    np.testing.assert_allclose(expected, own / own.sum(-1, keepdims=True), atol=1e-12)
    crossing = p[0, :, 4:, :4].sum() / (2 * 8)
    assert found.card()["cross_document_mass"] == pytest.approx(crossing)


def test_C8_C10_scores_from_before_the_softmax_are_refused():
    z = np.linspace(-2, 2, 10)[None, None, None]
    with pytest.raises(sw.RowError, match=r"minimum -2.*logits=True"):
        sw.rows(z, sink=0)
    block = blocks(sw.rows(z, sink=0, logits=True))[0]
    assert block.log_weights.shape == (1, 1, 10)


def test_D3_a_negative_weight_names_layer_head_and_minimum():
    p = np.full((1, 2, 1, 2), 0.5)
    p[0, 1, 0] = [1.2, -0.2]
    with pytest.raises(ValueError, match=r"layer 1, head 1.*minimum -0\.2"):
        sw.rows((np.full((1, 2, 1, 2), 0.5), p), sink=0)


def test_D4_dropout_is_recognised():
    p = np.zeros((1, 1, 1, 3))
    p[..., 0] = 1.25
    with pytest.raises(sw.RowError, match=r"Dropout.*model\.eval\(\)"):
        sw.rows(p, sink=0)


def test_D5_D15_half_precision_rises_before_anything_else():
    import torch

    bf16 = torch.full((1, 1, 1, 3), 1 / 3).to(torch.bfloat16)  # sums to 1.00195
    block = blocks(sw.rows(bf16, sink=0))[0]
    assert block.log_weights.dtype == np.float32
    fp16 = torch.full((1, 1, 1, 4096), 1 / 4096).to(torch.float16)
    assert sw.rows(fp16, sink=0).n_rows == 1
    # 0.865 / 8192 itself rounds in bfloat16
    with pytest.raises(sw.RowError, match=r"sums to 0\.863"):
        sw.rows(torch.full((1, 1, 1, 8192), 0.865 / 8192).to(torch.bfloat16), sink=0)


def test_a_rounding_zero_needs_a_rule():
    p = np.tile([0.7, 0.2, 0.1, 0.0], (1, 2, 1, 1))
    p[0, 0, 0] = [0.7, 0.1, 0.1, 0.1]
    with pytest.raises(sw.RowError, match=r"layer 0, head 1, query 0.*key 3 is exactly 0"):
        list(sw.rows(p, sink=0).blocks())
    left_out = blocks(sw.rows(p, sink=0, zeros="exclude"))[0]
    assert np.isneginf(left_out.log_weights[1, 0, 3])
    replaced = blocks(sw.rows(p, sink=0, zeros=1e-3))[0]
    np.testing.assert_allclose(
        np.exp(replaced.log_weights[1, 0]), [0.6993, 0.1998, 0.0999, 0.001], rtol=1e-12
    )
    assert sw.rows(p, sink=0, zeros=1e-3).card()["zeros"] == "replace=0.001"


def test_transformer_lens_caches_are_read_by_name():
    rng = np.random.default_rng(10)
    cache = {
        "blocks.1.attn.hook_pattern": causal_map(rng, 1, 2),
        "blocks.0.attn.hook_pattern": causal_map(rng, 1, 2),
        "blocks.0.hook_resid_post": rng.normal(size=(1, 6, 8)),
    }
    found = sw.rows(cache, sink="first", causal=True)
    assert [h.label for h in found.heads] == ["L0H0", "L0H1", "L1H0", "L1H1"]


def test_logits_and_a_learned_sink_logit():
    rng = np.random.default_rng(11)
    z, sink = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=3)
    block = blocks(sw.rows(z, sink="virtual", logits=True, sink_logit=sink))[1]
    np.testing.assert_allclose(block.log_weights[2, :, -1], sink[2])
    assert block.sink.sum() == 4


def test_a_sink_mask_may_sit_elsewhere_in_each_document():
    p = softmax(np.random.default_rng(12).normal(size=(2, 3, 4, 4)))
    sink = np.array([[True, False, False, False], [False, True, False, True]])
    a, b = blocks(sw.rows(p, sink=sink))
    assert a.sink[0].tolist() == sink[0].tolist()
    assert b.sink[0].tolist() == sink[1].tolist()


@pytest.mark.parametrize("sink", [None, True, "find", 7, np.array([0, 1])])
def test_an_unclear_sink_is_an_error(sink):
    p = softmax(np.random.default_rng(13).normal(size=(1, 3, 4, 4)))
    with pytest.raises(sw.RowError, match="sink"):
        sw.rows(p, sink=sink)


def test_things_that_hold_no_maps_are_refused_by_type():
    with pytest.raises(sw.InputTypeError, match="int"):
        sw.rows(3, sink=0)
    with pytest.raises(sw.InputTypeError, match="str"):
        sw.rows("attention", sink=0)


def test_no_row_left_says_why():
    p = np.full((1, 2, 3, 2), 0.5)
    with pytest.raises(sw.RowError, match="few_content_parts"):
        sw.rows(p, sink=0)


def test_large_documents_come_in_tiles_that_merge(monkeypatch):
    from sinkwise.rowdata import arrays

    p = softmax(np.random.default_rng(14).normal(size=(1, 3, 9, 5)))
    whole = sw.head_distances(sw.rows(p, sink=0), metric="content")
    monkeypatch.setattr(arrays, "_TILE_BYTES", 3 * 5 * 8 * 2)
    found = sw.rows(p, sink=0)
    assert [b.n_rows for b in found.blocks()] == [2, 2, 2, 2, 1]
    np.testing.assert_allclose(sw.head_distances(found, metric="content"), whole, atol=1e-14)
