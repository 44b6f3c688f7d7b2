"""The five axioms: what the log-ratio distances keep, and which the classical ones break."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sinkwise as sw

N = 6
number = st.floats(-6, 6, allow_nan=False, width=32)
logits = st.lists(number, min_size=N, max_size=N).map(np.array)
CLASSICAL = {
    "cosine": sw.cosine_distance,
    "js_divergence": sw.js_divergence,
    "js_distance": sw.js_distance,
    "euclidean": sw.euclidean_distance,
}


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def aitchison(p, q):
    return float(sw.aitchison_distance(p, q))


def content(p, q):
    return float(sw.content_distance(p, q, sink=0))


LOG_RATIO = [aitchison, content]


@pytest.mark.parametrize("d", LOG_RATIO)
@given(x=logits, y=logits, bias=logits)
def test_one_logit_bias_for_both_rows_changes_nothing(d, x, y, bias):
    p, q, r = softmax(x), softmax(y), softmax(bias)
    moved = d(sw.perturb(p, r), sw.perturb(q, r))
    # log of weights down to e^-24: their rounding, 24 · 2⁻⁵² · √6, times a few operations
    assert moved == pytest.approx(d(p, q), abs=1e-12)


@pytest.mark.parametrize("d", LOG_RATIO)
@given(x=logits, y=logits, a=st.floats(0.1, 3))
def test_temperature_scales_the_distance(d, x, y, a):
    p, q = softmax(x), softmax(y)
    assert d(sw.power(p, a), sw.power(q, a)) == pytest.approx(a * d(p, q), abs=1e-11)


@pytest.mark.parametrize("d", LOG_RATIO)
@given(x=logits, y=logits, order=st.permutations(range(1, N)))
def test_key_order_does_not_matter(d, x, y, order):
    p, q, order = softmax(x), softmax(y), [0, *order]
    assert d(p[order], q[order]) == pytest.approx(d(p, q), abs=1e-12)


@given(x=logits, y=logits, order=st.permutations(range(N)))
def test_the_sink_moves_along_with_the_keys(x, y, order):
    p, q, order = softmax(x), softmax(y), list(order)
    moved = sw.content_distance(p[order], q[order], sink=order.index(0))
    assert float(moved) == pytest.approx(content(p, q), abs=1e-12)


@pytest.mark.parametrize("d", LOG_RATIO)
@given(x=logits, y=logits)
def test_the_parallelogram_law(d, x, y):
    p, q = softmax(x), softmax(y)
    zero = np.full(N, 1 / N)
    both = d(sw.perturb(p, q), zero) ** 2 + d(sw.perturb(p, sw.power(q, -1.0)), zero) ** 2
    assert both == pytest.approx(2 * d(p, zero) ** 2 + 2 * d(q, zero) ** 2, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("d", LOG_RATIO)
@given(x=logits, y=logits, z=logits)
def test_the_metric_axioms(d, x, y, z):
    p, q, r = softmax(x), softmax(y), softmax(z)
    assert d(p, p) == 0
    assert d(p, q) == d(q, p) >= 0
    assert d(p, r) <= d(p, q) + d(q, r) + 1e-12


@given(x=logits, shift=st.floats(-5, 5))
def test_content_distance_is_a_pseudometric_on_whole_rows(x, shift):
    grown = x.copy()
    grown[0] += shift
    assert content(softmax(x), softmax(grown)) == pytest.approx(0, abs=1e-12)


# -- the classical measures ---------------------------------------------------------------

P, Q, R = (np.array(v) for v in ([0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.8, 0.1, 0.1]))


@pytest.mark.parametrize("name", CLASSICAL)
def test_classical_measures_change_under_one_bias_and_do_not_scale(name):
    def d(p, q):
        return float(CLASSICAL[name](p, q, sink=0, convention="kept"))

    assert d(sw.perturb(P, R), sw.perturb(Q, R)) != pytest.approx(d(P, Q), rel=0.05)
    assert d(sw.power(P, 2.0), sw.power(Q, 2.0)) != pytest.approx(2 * d(P, Q), rel=0.05)
    zero = np.full(3, 1 / 3)
    left = d(sw.perturb(P, Q), zero) ** 2 + d(sw.perturb(P, sw.power(Q, -1.0)), zero) ** 2
    assert left != pytest.approx(2 * d(P, zero) ** 2 + 2 * d(Q, zero) ** 2, rel=0.05)


@pytest.mark.parametrize("name", CLASSICAL)
@given(x=logits, y=logits, order=st.permutations(range(N)))
def test_classical_measures_keep_permutation_invariance(name, x, y, order):
    p, q, order = softmax(x), softmax(y), list(order)
    before = CLASSICAL[name](p, q, sink=0, convention="kept")
    after = CLASSICAL[name](p[order], q[order], sink=order.index(0), convention="kept")
    assert float(after) == pytest.approx(float(before), abs=1e-9)


@pytest.mark.parametrize("name", ["euclidean", "js_distance"])
@given(x=logits, y=logits, z=logits)
def test_euclid_and_the_js_distance_are_metrics(name, x, y, z):
    def d(p, q):
        return float(CLASSICAL[name](p, q, sink=0, convention="kept"))

    p, q, r = softmax(x), softmax(y), softmax(z)
    assert d(p, p) == 0
    assert d(p, q) == pytest.approx(d(q, p), abs=1e-15)
    assert d(p, r) <= d(p, q) + d(q, r) + 1e-9


@pytest.mark.parametrize("name", ["cosine", "js_divergence"])
def test_cosine_and_the_js_divergence_break_the_triangle(name):
    def d(p, q):
        return float(CLASSICAL[name](np.array(p), np.array(q), sink=0, convention="kept"))

    a, b, c = [1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]
    assert d(a, c) > d(a, b) + d(b, c)


def test_classical_measures_have_no_subcompositional_coherence():
    p, q = np.array([0.98, 0.01, 0.01]), np.array([0.98, 0.019, 0.001])
    for name in ("cosine", "js_divergence", "euclidean"):
        kept = CLASSICAL[name](p, q, sink=0, convention="kept")
        dropped = CLASSICAL[name](p, q, sink=0, convention="dropped")
        assert dropped > kept  # fewer parts, larger distance


def test_the_reversal_of_the_theorem():
    """b shares a's content, c its sink mass: which is nearer to a hangs on the convention."""
    pi, mirrored = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    a = np.r_[0.9, 0.1 * pi]
    b = np.r_[0.5, 0.5 * pi]
    c = np.r_[0.9, 0.1 * mirrored]
    for name in ("cosine", "js_divergence", "euclidean"):
        d = CLASSICAL[name]
        assert d(a, c, sink=0, convention="kept") < d(a, b, sink=0, convention="kept")
        assert d(a, b, sink=0, convention="dropped") < d(a, c, sink=0, convention="dropped")
    assert content(a, b) == pytest.approx(0, abs=1e-14)
    assert content(a, c) > 0.1
