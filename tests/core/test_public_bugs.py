"""Public reports of numeric and compositional bugs, each as the right value or a clear error."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw

KEPT = {"sink": 0, "convention": "kept"}


def test_D1_a_log_weight_of_minus_infinity_is_a_weight_of_zero():
    assert float(sw.entropy([0.0, 0.0, -np.inf], logits=True)) == pytest.approx(np.log(2))
    assert float(sw.entropy([0.0, -np.inf], logits=True)) == 0


def test_C8_entropy_refuses_scores_from_before_the_softmax():
    scores = np.zeros(4096)
    scores[:10] = np.linspace(-2, 2, 10)
    with pytest.raises(sw.RowError, match="logits=True"):
        sw.entropy(scores)
    where = np.arange(4096) < 10
    assert float(sw.entropy(scores, logits=True, where=where)) == pytest.approx(1.754, abs=5e-4)


def test_C10_a_value_above_one_is_refused():
    with pytest.raises(sw.RowError, match=r"sums to 1.5 with maximum 1.5"):
        sw.sink_mass([1.5, 0.0], sink=0)


def test_D3_a_negative_weight_is_a_value_error_with_its_row_and_minimum():
    p = np.array([[0.5, 0.5], [1.2, -0.2]])
    with pytest.raises(ValueError, match=r"row 1 .*minimum -0\.2"):
        sw.entropy(p)


def test_D4_dropout_is_named():
    with pytest.raises(sw.RowError, match=r"model\.eval\(\)"):
        sw.sink_mass([1.25, 0.0, 0.0], sink=0)


def test_D5_half_precision_sums_are_tolerated_by_their_rounding_only():
    torch = pytest.importorskip("torch")
    assert float(torch.full((3,), 1 / 3).bfloat16().float().sum()) == pytest.approx(
        1.00195, abs=1e-5
    )
    s = sw.sink_mass(torch.full((3,), 1 / 3).bfloat16(), sink=0)
    assert s.dtype == torch.float32
    assert float(s) == pytest.approx(1 / 3, abs=1e-6)
    uniform = torch.full((4096,), 1 / 4096, dtype=torch.float16)
    assert float(sw.entropy(uniform)) == pytest.approx(np.log(4096), rel=1e-6)
    with pytest.raises(sw.RowError, match=r"sums to 0\.86"):
        sw.entropy(torch.full((8192,), 0.865 / 8192).bfloat16())


def test_D8_js_of_near_equal_rows_is_finite_and_not_negative():
    x = np.nextafter(0.5, 0)
    d = float(sw.js_divergence([x, 1 - x], [1 - x, x], **KEPT))
    assert 0 <= d < 1e-14
    assert 0 <= float(sw.js_distance([x, 1 - x], [1 - x, x], **KEPT)) <= 1e-7


def test_D10_js_with_a_denormal_is_not_infinite():
    d = float(sw.js_divergence([0.0, 1.0], [5e-324, 1.0], **KEPT))
    assert 0 <= d < 1e-300
    assert 0 <= float(sw.js_distance([0.0, 1.0], [5e-324, 1.0], **KEPT)) < 1e-150


def test_D11_divergence_and_distance_are_told_apart():
    p, q = [0.3, 0.3, 0.4], [0.5, 0.5, 0.0]
    assert float(sw.js_divergence(p, q, **KEPT)) == pytest.approx(0.16390, abs=5e-6)
    assert float(sw.js_distance(p, q, **KEPT)) == pytest.approx(0.40484, abs=5e-6)
    assert "nats" in sw.js_divergence.__doc__


def test_D12_kl_has_term_zero_at_p_zero_and_infinity_at_q_zero():
    assert float(sw.kl_divergence([0.0, 1.0], [0.5, 0.5], **KEPT)) == pytest.approx(np.log(2))
    assert float(sw.kl_divergence([0.5, 0.5], [0.0, 1.0], **KEPT)) == np.inf
    assert float(sw.kl_divergence([0.0, 1.0], [0.0, 1.0], **KEPT)) == 0


def test_D14_cosine_self_distance_is_exactly_zero_and_never_negative():
    p = np.random.default_rng(0).dirichlet(np.ones(7), size=200)
    np.testing.assert_array_equal(sw.cosine_distance(p, p, **KEPT), 0)
    assert (sw.cosine_distance(p[:, None], p[None], **KEPT) >= 0).all()


def test_D15_bfloat16_goes_through_every_entry_point():
    torch = pytest.importorskip("torch")
    p = torch.softmax(torch.randn(2, 3, 4, 6), -1).bfloat16()
    assert sw.content_distance(p[0], p[1], sink=0).dtype == torch.float32
    assert sw.rows(p, sink=0).n_rows == 8


def test_E1_an_all_zero_row_is_a_value_error_with_its_index():
    with pytest.raises(ValueError, match=r"row 0 .*sums to 0"):
        sw.clr([[0.0, 0, 0, 0], [0.0, 0.5, 0.5, 0.0]], zeros="exclude")
    with pytest.raises(ValueError, match="row 0 cannot be closed"):
        sw.closure([[0.0, 0, 0, 0], [0.0, 0.5, 0.5, 0.0]])


def test_E2_a_replacement_that_takes_the_whole_row_is_refused():
    with pytest.raises(ValueError, match="mass"):
        sw.replace_zeros([0.0, 0, 0, 0, 1], delta=0.3)


def test_E3_the_share_that_replaces_zeros_decides_and_so_must_be_named():
    p, q, r = (0.9, 0.1, 0, 0), (0.6, 0.3, 0.1, 0), (0.7, 0.2, 0.06, 0.04)

    def d(a, b, delta):
        return float(sw.aitchison_distance(a, b, zeros=delta))

    assert d(p, q, 1e-3) == pytest.approx(3.943, abs=5e-4)
    assert d(p, r, 1e-3) == pytest.approx(3.740, abs=5e-4)
    assert d(p, q, 1e-6) == pytest.approx(9.832, abs=5e-4)
    assert d(p, r, 1e-6) == pytest.approx(10.603, abs=5e-4)
    with pytest.raises(sw.RowError, match="needs a rule"):
        sw.aitchison_distance(p, q)
    # masked keys are removed, not replaced
    where = np.array([True, True, False, False])
    plain = sw.aitchison_distance(sw.closure(p[:2]), sw.closure(q[:2]))
    pair = (sw.closure(np.where(where, x, 0.0)) for x in (p, q))
    assert float(sw.aitchison_distance(*pair, where=where)) == pytest.approx(float(plain))


def test_E4_one_zero_is_an_error_or_left_out_by_name():
    counts = np.array([740, 0, 29, 403, 51, 4916, 143, 1, 1])
    row = sw.closure(counts)
    with pytest.raises(sw.RowError, match="exactly 0 at key 1"):
        sw.clr(row)
    robust = sw.clr(row, zeros="exclude")
    assert np.isnan(robust[1])
    np.testing.assert_allclose(robust[[0, 2, 3]], [2.4357, -0.8037, 1.8280], atol=5e-5)


def test_E5_a_one_part_row():
    np.testing.assert_array_equal(sw.clr([1.0]), [0.0])
    assert float(sw.aitchison_distance([1.0], [1.0])) == 0
    assert sw.ilr([1.0], basis=sw.balance_basis(1, sink=0)).shape == (0,)


def test_E9_sparse_rows_stay_positive_closed_and_keep_their_ratios():
    p = np.zeros(50)
    p[[3, 7, 20]] = [0.5, 0.3, 0.2]
    filled = sw.replace_zeros(p, delta=1e-3)
    assert (filled > 0).all()
    assert filled.sum() == pytest.approx(1)
    assert filled[3] / filled[20] == pytest.approx(2.5)


def test_E10_integers_become_floats_and_stay_so():
    filled = sw.replace_zeros(np.array([3, 0, 1]), delta=0.01)
    assert filled.dtype == np.float64
    assert filled[1] == pytest.approx(0.01)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_no_number_is_found_in_logits(bad):
    z = np.zeros((3, 4))
    z[2, 1] = bad
    with pytest.raises(sw.RowError, match=r"row 2 .*finite"):
        sw.entropy(z, logits=True)


def test_a_hidden_sink_names_its_row():
    where = np.array([[True, True, True], [False, True, True]])
    p = np.array([[0.5, 0.3, 0.2], [0.0, 0.5, 0.5]])
    with pytest.raises(sw.RowError, match=r"row 1 .*sink"):
        sw.sink_mass(p, sink=0, where=where)


@pytest.mark.parametrize("sink", [5, -4, (0, 9), True, 1.5, "first", np.array([0, 1]), None])
def test_sinks_that_say_nothing_clear_are_refused(sink):
    with pytest.raises(sw.SinkwiseError):
        sw.sink_mass([0.5, 0.3, 0.2], sink=sink)


def test_a_convention_has_no_default_and_no_other_names():
    with pytest.raises(TypeError):
        sw.cosine_distance([0.5, 0.5], [0.5, 0.5], sink=0)
    with pytest.raises(sw.RowError, match="'kept', 'dropped', 'zeroed'"):
        sw.cosine_distance([0.5, 0.5], [0.5, 0.5], sink=0, convention="removed")


def test_objects_that_are_no_arrays_are_refused_by_type():
    with pytest.raises(sw.InputTypeError):
        sw.entropy("attention")
    with pytest.raises(sw.InputTypeError):
        sw.entropy([[0.5, 0.5], [1.0]])


def test_rounding_leaves_nothing_for_a_virtual_sink():
    assert float(sw.sink_mass(np.array([0.6, 0.3, 0.1]), sink="virtual")) == 0
    with pytest.raises(sw.RowError, match="nothing is left for the virtual sink"):
        sw.sink_balance(np.array([0.6, 0.3, 0.1]), sink="virtual")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_sink_logit_that_is_no_number_is_refused(bad):
    with pytest.raises(sw.RowError, match="sink_logit"):
        sw.entropy_split(np.zeros(3), sink=0, logits=True, sink_logit=bad)


def test_a_sink_logit_of_another_shape_is_refused():
    with pytest.raises(sw.RowError, match=r"sink_logit has shape \(3,\)"):
        sw.sink_mass(np.zeros((2, 3)), sink=0, logits=True, sink_logit=np.zeros(3))


@pytest.mark.parametrize("exponent", [np.nan, np.inf])
def test_an_exponent_is_finite(exponent):
    with pytest.raises(sw.RowError, match="not finite"):
        sw.power([0.6, 0.4], exponent)


def test_numpy_joins_another_library_and_two_others_are_refused():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    p = np.array([0.5, 0.3, 0.2])
    mixed = sw.content_distance(p, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), sink=0)
    assert isinstance(mixed, torch.Tensor)
    assert float(mixed) == pytest.approx(float(sw.content_distance(p, p[::-1], sink=0)))
    with pytest.raises(sw.InputTypeError, match="jax and torch"):
        sw.content_distance(jax.numpy.asarray(p), torch.tensor(p), sink=0)


def test_counts_are_told_to_be_closed():
    with pytest.raises(sw.RowError, match=r"counts.*sw\.closure"):
        sw.clr([740, 0, 29, 403], zeros="exclude")
