"""The content-entropy floor: its value row by row, and a gradient that never touches the sink."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkwise as sw

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")


def by_hand(logits, visible, sink, floor):
    """Row by row with Python's own floats."""
    values = []
    for row, seen in zip(logits.tolist(), visible.tolist(), strict=True):
        z = [v for j, (v, see) in enumerate(zip(row, seen, strict=True)) if see and j not in sink]
        if len(z) < 2:
            continue
        weights = [math.exp(v - max(z)) for v in z]
        shares = [w / math.fsum(weights) for w in weights]
        entropy = -math.fsum(p * math.log(p) for p in shares if p > 0)
        values.append(max(0.0, floor - entropy / math.log(len(z))))
    return math.fsum(values) / len(values)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    floor=st.floats(0.01, 1),
    spread=st.floats(0.1, 30),
    sink=st.sampled_from([(0,), (1,), (0, 2)]),
)
def test_the_value_is_the_mean_shortfall_of_the_rows_by_hand(seed, floor, spread, sink):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(6, 7)) * spread
    visible = rng.random((6, 7)) < 0.7
    visible[:, list(sink)] = True
    visible[0] = True
    value = sw.content_entropy_floor(logits, sink=sink, floor=floor, where=visible)
    assert float(value) == pytest.approx(by_hand(logits, visible, sink, floor), abs=1e-12)


def test_every_library_gives_the_same_number_and_keeps_its_dtype(library):
    logits = np.random.default_rng(3).normal(size=(5, 9)) * 4
    expected = sw.content_entropy_floor(logits, sink=0, floor=0.7)
    for dtype, tolerance in (("float64", 1e-14), ("float32", 1e-6)):
        value = sw.content_entropy_floor(library.array(logits, dtype), sink=0, floor=0.7)
        assert str(value.dtype).endswith(dtype)
        assert float(value) == pytest.approx(float(expected), abs=tolerance)


def test_the_gradient_is_the_formula_and_exactly_zero_at_the_sink():
    logits = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    logits.requires_grad_()
    sw.content_entropy_floor(logits, sink=(0, 3), floor=1.0).backward()
    assert (logits.grad[:, [0, 3]] == 0).all()
    content = [1, 2, 4, 5]
    p = logits.detach()[:, content].softmax(-1)
    entropy = -(p * p.log()).sum(-1, keepdim=True)
    expected = p * (p.log() + entropy) / math.log(4) / 4
    torch.testing.assert_close(logits.grad[:, content], expected, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("sink_logit", [-1e4, 30.0, 1e4, 1e30])
def test_neither_value_nor_gradient_depends_on_the_sink_even_where_its_mass_rounds_to_one(
    sink_logit,
):
    start = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)) * 3

    def at(sink):
        logits = start.clone()
        logits[:, 0] = sink
        logits.requires_grad_()
        value = sw.content_entropy_floor(logits, sink=0, floor=0.9)
        value.backward()
        return value.detach(), logits.grad

    for got, expected in zip(at(sink_logit), at(0.0), strict=True):
        assert torch.equal(got, expected)
    assert at(sink_logit)[1][:, 1:].abs().max() > 0


def test_nothing_is_pushed_above_the_floor_and_one_hot_content_costs_the_whole_of_it():
    logits = torch.zeros(2, 5)
    logits[1, 2] = 200.0
    logits.requires_grad_()
    value = sw.content_entropy_floor(logits, sink=0, floor=0.4)
    assert float(value.detach()) == pytest.approx(0.2)
    value.backward()
    assert (logits.grad[0] == 0).all()
    assert torch.isfinite(logits.grad).all()


def test_rows_with_one_content_key_are_left_out_and_harmless():
    logits = torch.tensor([[5.0, 1.0, 9.0], [5.0, 30.0, 0.0]], requires_grad=True)
    where = torch.tensor([[True, True, False], [True, True, True]])
    value = sw.content_entropy_floor(logits, sink=0, floor=0.5, where=where)
    assert float(value) == pytest.approx(0.5)
    value.backward()
    assert (logits.grad[0] == 0).all()
    assert torch.isfinite(logits.grad).all()


def test_weights_of_zero_count_as_keys():
    row = [[0.0, 1.0, 1.0, -math.inf, -math.inf]]
    assert float(sw.content_entropy_floor(row, sink=0, floor=1.0)) == pytest.approx(0.5)


def test_padding_and_hidden_sinks_are_left_out_when_unchecked_and_gradients_stay_finite():
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    logits[0] = math.nan  # what half precision writes into rows of padding
    logits.requires_grad_()
    where = torch.ones(4, 4, dtype=torch.bool)
    where[0] = False
    where[1, 0] = False
    value = sw.content_entropy_floor(logits, sink=0, floor=1.0, where=where, check=False)
    expected = sw.content_entropy_floor(logits.detach()[2:], sink=0, floor=1.0)
    assert float(value) == pytest.approx(float(expected))
    value.backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[:2] == 0).all()


def test_a_nan_in_a_row_that_counts_is_refused_and_unchecked_stays_a_nan():
    logits = np.array([[0.0, 1.0, np.nan]])
    with pytest.raises(sw.RowError, match="log-weight nan"):
        sw.content_entropy_floor(logits, sink=0, floor=0.5)
    assert np.isnan(sw.content_entropy_floor(logits, sink=0, floor=0.5, check=False))


def test_errors_say_what_to_type():
    rows = np.zeros((2, 3))
    for floor in (0, -0.1, 1.01, math.nan, "x", None, True):
        with pytest.raises(sw.RowError, match=r"floor=.* arrived.*floor=0\.3"):
            sw.content_entropy_floor(rows, sink=0, floor=floor)
    with pytest.raises(sw.RowError, match="two content keys"):
        sw.content_entropy_floor(rows, sink=(0, 1), floor=0.5)
    unchecked = sw.content_entropy_floor(rows, sink=(0, 1), floor=0.5, check=False)
    assert float(unchecked) == 0
    hidden = np.array([[False, True, True]])
    with pytest.raises(sw.RowError, match="sink is not among the keys"):
        sw.content_entropy_floor(rows, sink=0, floor=0.5, where=hidden)


def test_it_compiles_to_the_plain_value_under_jit_and_grad():
    logits = jax.numpy.asarray(np.random.default_rng(5).normal(size=(3, 6)) * 5)

    def f(z):
        return sw.content_entropy_floor(z, sink=0, floor=0.8)

    assert float(jax.jit(f)(logits)) == pytest.approx(float(f(logits)), abs=1e-12)
    gradient = np.asarray(jax.grad(f)(logits))
    assert (gradient[:, 0] == 0).all()
    step = 1e-6
    for key in (1, 4):
        nudge = np.zeros((3, 6))
        nudge[1, key] = step
        slope = (f(logits + nudge) - f(logits - nudge)) / (2 * step)
        assert gradient[1, key] == pytest.approx(float(slope), abs=1e-8)


def test_it_runs_compiled_by_torch():
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(4))

    @torch.compile(backend="eager", fullgraph=True)
    def f(z):
        return sw.content_entropy_floor(z, sink=0, floor=0.8)

    plain = sw.content_entropy_floor(logits, sink=0, floor=0.8)
    torch.testing.assert_close(f(logits), plain)
