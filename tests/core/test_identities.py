"""Every identity of the geometry, as properties of random rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkwise as sw

TOL = 1e-11  # float64 sums of some dozen terms of size up to ~50: 50² · 2⁻⁵² · √30 ≈ 3e-12


@st.composite
def rows(draw, count=2, min_keys=3):
    n = draw(st.integers(min_keys, 12))
    number = st.floats(-12, 12, allow_nan=False, width=32)
    z = np.array([draw(st.lists(number, min_size=n, max_size=n)) for _ in range(count)])
    r = draw(st.integers(1, n - 2))
    sink = tuple(draw(st.permutations(range(n)))[:r])
    return z, sink


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@given(rows())
def test_the_distance_splits_exactly(case):
    z, sink = case
    d = sw.distance_split(z[0], z[1], sink=sink, logits=True)
    assert d.total**2 == pytest.approx(d.content**2 + d.balance**2 + d.within_sink**2, abs=TOL)
    assert d.content**2 == pytest.approx(d.dispersion**2 + d.direction**2, rel=1e-9, abs=1e-9)
    assert d.total == pytest.approx(sw.aitchison_distance(z[0], z[1], logits=True), abs=1e-9)
    if len(sink) == 1:
        assert d.within_sink == 0


@given(rows())
def test_content_distance_is_the_projection_off_balance_and_within_sink(case):
    z, sink = case
    basis = sw.balance_basis(z.shape[1], sink=sink)
    gap = (z[0] - z[1]) @ basis.T
    r = len(sink)
    d = sw.distance_split(z[0], z[1], sink=sink, logits=True)
    assert d.balance == pytest.approx(gap[0], abs=TOL)
    assert d.within_sink == pytest.approx(np.linalg.norm(gap[1:r]), abs=1e-9)
    assert d.content == pytest.approx(np.linalg.norm(gap[r:]), abs=1e-9)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-14)
    np.testing.assert_allclose(basis.sum(1), 0, atol=1e-14)


@given(rows())
def test_dropping_the_sink_and_reclosing_gives_the_same_content_distance(case):
    z, sink = case
    keep = np.setdiff1d(np.arange(z.shape[1]), sink)
    whole = sw.content_distance(z[0], z[1], sink=sink, logits=True)
    apart = sw.aitchison_distance(z[0][keep], z[1][keep], logits=True)
    assert whole == pytest.approx(apart, abs=1e-9)


@given(rows())
def test_the_angle_and_the_norms_give_the_direction(case):
    z, sink = case
    d = sw.distance_split(z[0], z[1], sink=sink, logits=True)
    angle = sw.content_angle(z[0], z[1], sink=sink, logits=True)
    a = sw.content_dispersion(z[0], sink=sink, logits=True)
    b = sw.content_dispersion(z[1], sink=sink, logits=True)
    assert d.dispersion == pytest.approx(a - b, abs=TOL)
    if np.isnan(angle):
        assert d.direction == 0
    else:
        assert 0 <= angle <= np.pi
        assert d.direction**2 == pytest.approx(2 * a * b * (1 - np.cos(angle)), abs=1e-9)


@given(rows(), st.floats(0.2, 5))
def test_the_angle_is_blind_to_sink_and_temperature(case, temperature):
    z, sink = case
    moved = z[1] / temperature
    moved[list(sink)] += 3.0
    before = sw.content_angle(z[0], z[1], sink=sink, logits=True)
    after = sw.content_angle(z[0], moved, sink=sink, logits=True)
    np.testing.assert_allclose(after, before, atol=1e-7)


@given(rows(count=1))
def test_entropy_splits_exactly(case):
    z, sink = case
    e = sw.entropy_split(z[0], sink=sink, logits=True)
    p = softmax(z[0])
    assert e.total == pytest.approx(float(-(p * np.log(p)).sum()), abs=1e-12)
    assert e.total == pytest.approx(e.sink + e.content + e.within_sink, abs=1e-15)
    assert e.total == pytest.approx(sw.entropy(z[0], logits=True), abs=1e-12)
    s = sw.sink_mass(z[0], sink=sink, logits=True)
    assert e.content == pytest.approx((1 - s) * e.content_entropy, abs=1e-12)


@given(rows())
def test_entropy_change_adds_up_and_is_antisymmetric(case):
    z, sink = case
    there = sw.entropy_change(z[0], z[1], sink=sink, logits=True)
    back = sw.entropy_change(z[1], z[0], sink=sink, logits=True)
    change = sw.entropy(z[1], logits=True) - sw.entropy(z[0], logits=True)
    assert there.total == pytest.approx(change, abs=1e-12)
    for forth, reverse in zip(there, back, strict=True):
        assert forth == pytest.approx(-reverse, abs=1e-12)


@given(rows(count=1))
def test_a_channel_that_did_not_change_gets_nothing(case):
    z, sink = case
    grown = z[0].copy()
    grown[list(sink)] += 2.0
    change = sw.entropy_change(z[0], grown, sink=sink, logits=True)
    assert change.content == pytest.approx(0, abs=1e-12)
    assert change.within_sink == pytest.approx(0, abs=1e-12)


@given(rows(count=1))
def test_one_sink_balance_is_the_log_ratio_to_the_geometric_mean(case):
    z, _ = case
    n = z.shape[1] - 1
    b = sw.sink_balance(z[0], sink=0, logits=True)
    p = softmax(z[0])
    gmean = np.exp(np.log(p[1:]).mean())
    assert b == pytest.approx(np.sqrt(n / (n + 1)) * np.log(p[0] / gmean), abs=TOL)


@given(rows())
def test_weights_and_logits_agree(case):
    z, sink = case
    p = softmax(z)
    for f in (sw.content_distance, sw.content_angle):
        a, b = f(z[0], z[1], sink=sink, logits=True), f(p[0], p[1], sink=sink)
        if not np.isnan(a):
            assert a == pytest.approx(b, abs=1e-6)  # an angle near 0 or π moves by √rounding
    for f in (sw.sink_mass, sw.sink_balance, sw.content_dispersion):
        assert f(z[0], sink=sink, logits=True) == pytest.approx(f(p[0], sink=sink), abs=1e-10)


@given(rows())
def test_a_virtual_sink_is_a_column_that_is_no_token(case):
    z, _ = case
    p = softmax(z)
    learned = z[:, -1]
    rest = p[:, :-1]
    for name, kw in (("sink_mass", {}), ("content_dispersion", {}), ("sink_balance", {})):
        f = getattr(sw, name)
        plain = f(z, sink=-1, logits=True, **kw)
        by_logit = f(z[:, :-1], sink="virtual", logits=True, sink_logit=learned)
        np.testing.assert_allclose(by_logit, plain, atol=1e-12)
        if (learned - z.max(1) > -8).all():  # what is left of 1 keeps its digits
            by_rest = f(rest, sink="virtual")
            np.testing.assert_allclose(by_rest, plain, rtol=1e-9, atol=1e-9)


@given(rows())
@settings(max_examples=30)
def test_aitchison_distance_falls_when_parts_are_dropped(case):
    z, sink = case
    d = sw.distance_split(z[0], z[1], sink=sink, logits=True)
    assert d.content <= d.total + 1e-12


@pytest.mark.parametrize("logits", [False, True])
def test_leading_axes_broadcast(logits):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 3, 1, 5))
    w = rng.normal(size=(4, 5))
    if not logits:
        z, w = softmax(z), softmax(w)
    d = sw.content_distance(z, w, sink=0, logits=logits)
    assert d.shape == (2, 3, 4)
    one = sw.content_distance(z[1, 2, 0], w[3], sink=0, logits=logits)
    assert d[1, 2, 3] == pytest.approx(one, abs=1e-14)


def test_where_equals_cutting_the_keys_away():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(2, 6))
    hidden = z.copy()
    hidden[:, [1, 4]] = np.nan  # what stands at an absent key is never read
    where = np.array([True, False, True, True, False, True])
    keep = np.flatnonzero(where)
    for f in (sw.content_distance, sw.content_angle):
        a = f(hidden[0], hidden[1], sink=0, logits=True, where=where)
        assert a == pytest.approx(f(z[0][keep], z[1][keep], sink=0, logits=True), abs=1e-14)
    split = sw.entropy_split(hidden[0], sink=0, logits=True, where=where)
    np.testing.assert_allclose(split, sw.entropy_split(z[0][keep], sink=0, logits=True), atol=1e-14)
    for convention in ("kept", "dropped", "zeroed"):
        for f in (sw.js_divergence, sw.cosine_distance, sw.euclidean_distance):
            kw = {"sink": 0, "logits": True, "convention": convention}
            a = f(hidden[0], hidden[1], where=where, **kw)
            assert a == pytest.approx(f(z[0][keep], z[1][keep], **kw), abs=1e-14)


def test_a_mask_names_the_sink_of_each_row():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2]])
    sink = np.array([[True, False, False], [False, True, False]])
    np.testing.assert_allclose(sw.sink_mass(p, sink=sink), [0.7, 0.7])


def test_float32_logits_with_a_sink_at_one_minus_1e_12():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(2, 40))
    z[:, 0] = 31.0
    z32 = z.astype(np.float32)
    assert float(sw.sink_mass(z32[0], sink=0, logits=True)) == 1.0
    exact = sw.content_distance(z32[0].astype(float), z32[1].astype(float), sink=0, logits=True)
    got = sw.content_distance(z32[0], z32[1], sink=0, logits=True)
    # content log-weights of size 3, forty of them: 3 · 2⁻²⁴ · √40 ≈ 1e-6
    assert float(got) == pytest.approx(float(exact), abs=4e-6)
