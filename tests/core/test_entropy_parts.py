"""Entropy from four numbers a row: equal to the rows' own split and change, also where s is 1."""

from __future__ import annotations

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sinkwise as sw
from sinkwise.channels.entropy import change_of_parts, entropy_parts, split_of_parts

getcontext().prec = 60

logits = st.lists(st.floats(-30, 30), min_size=6, max_size=6)


def exact_entropy(z: list[float]) -> Decimal:
    """Entropy of a row of logits, in 60 digits."""
    weights = [Decimal(x).exp() for x in z]
    total = sum(weights)
    return -sum(w / total * (w / total).ln() for w in weights)


def exact_change(z0: list[float], z1: list[float], sinks: int) -> dict[str, Decimal]:
    """The published attribution, in 60 digits."""
    side = []
    for z in (z0, z1):
        weights = [Decimal(x).exp() for x in z]
        s = sum(weights[:sinks]) / sum(weights)
        binary = -s * s.ln() - (1 - s) * (1 - s).ln()
        side.append((s, binary, exact_entropy(z[sinks:]), exact_entropy(z[:sinks])))
    (s0, b0, h0, k0), (s1, b1, h1, k1) = side
    ds, mean = s1 - s0, (s0 + s1) / 2
    return {
        "sink": b1 - b0 - ds * (h0 + h1) / 2 + ds * (k0 + k1) / 2,
        "content": (1 - mean) * (h1 - h0),
        "within_sink": mean * (k1 - k0),
        "total": exact_entropy(z1) - exact_entropy(z0),
    }


@given(logits, logits, st.sampled_from([1, 2]))
def test_a_change_from_parts_is_the_published_formula(z0, z1, sinks):
    sink = tuple(range(sinks))
    before, after = (entropy_parts(np.array(z), sink=sink, logits=True) for z in (z0, z1))
    change = change_of_parts(before, after)
    for name, value in exact_change(z0, z1, sinks).items():
        assert float(getattr(change, name)) == pytest.approx(float(value), abs=1e-13)


@given(logits, logits)
def test_parts_say_what_the_rows_say(z0, z1):
    rows = np.array([z0, z1])
    split = split_of_parts(entropy_parts(rows, sink=(0, 1), logits=True))
    for found, direct in zip(split, sw.entropy_split(rows, sink=(0, 1), logits=True), strict=True):
        np.testing.assert_array_equal(found, direct)
    parts = entropy_parts(rows, sink=0, logits=True)
    first, second = (type(parts)(*(x[i] for x in parts)) for i in (0, 1))
    direct = sw.entropy_change(rows[0], rows[1], sink=0, logits=True)
    np.testing.assert_array_equal(change_of_parts(first, second), direct)


def test_a_change_turned_round_is_its_negative():
    z = np.random.default_rng(0).normal(size=(2, 50, 7), scale=4)
    a, b = (entropy_parts(side, sink=(0, 3), logits=True) for side in z)
    there, back = np.stack(change_of_parts(a, b)), np.stack(change_of_parts(b, a))
    np.testing.assert_allclose(there, -back, atol=1e-15)


def test_nothing_is_lost_where_the_sink_takes_all():
    z0 = [40.0, 0.0, 0.0, 0.0]
    z1 = [45.0, 2.0, 0.0, 0.0]
    parts = [entropy_parts(np.array(z), sink=0, logits=True) for z in (z0, z1)]
    assert float(parts[0].sink_mass) == 1.0
    assert float(parts[0].content_mass) == pytest.approx(3 * np.exp(-40.0), rel=1e-12)
    assert float(parts[0].content_entropy) == pytest.approx(np.log(3), rel=1e-14)
    change = change_of_parts(*parts)
    for name, value in exact_change(z0, z1, 1).items():
        assert float(getattr(change, name)) == pytest.approx(float(value), rel=1e-10, abs=1e-300)


def test_a_side_without_content_has_no_change_in_any_field():
    with_content = entropy_parts(np.array([0.5, 0.25, 0.25]), sink=0)
    without = entropy_parts(np.array([1.0, 0.0, 0.0]), sink=0)
    assert np.isnan(change_of_parts(with_content, without)).all()
    assert np.isnan(sw.entropy_change([0.5, 0.25, 0.25], [1.0, 0.0, 0.0], sink=0)).all()


def test_a_row_that_sees_nothing_has_no_parts():
    where = np.array([[True, True, True], [False, False, False]])
    parts = entropy_parts(np.zeros((2, 3)), sink=0, where=where, logits=True, check=False)
    assert np.isnan(np.stack(parts)[:, 1]).all()
    assert np.isfinite(np.stack(parts)[:, 0]).all()


def test_parts_have_gradients_and_the_content_has_none_to_the_sink():
    torch = pytest.importorskip("torch")
    z = torch.tensor([[50.0, 1.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    entropy_parts(z, sink=0, logits=True).content_entropy.sum().backward()
    assert float(z.grad[0, 0]) == 0.0
    assert torch.isfinite(z.grad).all()
    assert float(z.grad[0, 1]) < 0
