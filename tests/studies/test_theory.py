"""The convention theorem: closed forms against distances, verdicts that hold around a triple."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.studies import theory as theory_module
from sinkwise.studies.theory import (
    REVERSAL_MEASURES,
    TRIPLE_COLUMNS,
    distance_limits,
    pair_bounds,
    reversal_gaps,
    reversal_triple,
)

masses = st.floats(0.001, 0.999)
contents = st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12).map(np.array)


def asymmetric(content):
    pi = content / content.sum()
    return np.abs(pi - pi[::-1]).max() > 1e-6


def kept_distances(measure, rows):
    a, b, c = rows
    if measure in ("aitchison", "content"):
        if measure == "aitchison":
            return sw.aitchison_distance(a, b), sw.aitchison_distance(a, c)
        return sw.content_distance(a, b, sink=0), sw.content_distance(a, c, sink=0)
    distance = getattr(
        sw, {"cosine": "cosine_distance", "euclidean": "euclidean_distance"}.get(measure, measure)
    )
    return tuple(distance(a, x, sink=0, convention="kept") for x in (b, c))


@settings(max_examples=50, deadline=None)
@given(contents, masses, masses)
def test_closed_forms_are_the_distances_of_the_triple(content, s_a, s_b):
    assume(asymmetric(content) and abs(s_a - s_b) > 1e-4)
    triple = reversal_triple(content, s_a, s_b, samples=0)
    for measure in REVERSAL_MEASURES:
        gaps = reversal_gaps(measure, content, s_a, s_b)
        to_b, to_c = (float(d) for d in kept_distances(measure, triple.rows))
        # distances of float64 rows: parts are known to eps, log-ratios of parts to eps too
        assert gaps.sink == pytest.approx(to_b, rel=1e-6, abs=1e-13)
        assert gaps.content == pytest.approx(to_c, rel=1e-6, abs=1e-13)


@settings(max_examples=50, deadline=None)
@given(contents, masses, masses)
def test_euclid_reverses_exactly_where_the_inequality_says(content, s_a, s_b):
    assume(asymmetric(content) and abs(s_a - s_b) > 1e-4)
    pi = content / content.sum()
    left = (s_a - s_b) ** 2 * (1 + pi @ pi)
    right = (1 - s_a) ** 2 * ((pi - pi[::-1]) ** 2).sum()
    assume(abs(left - right) > 1e-9 * (left + right))
    triple = reversal_triple(content, s_a, s_b, samples=0)
    reverses = triple.margins.set_index("measure").reverses
    assert reverses["euclidean"] == (left > right)
    for measure in REVERSAL_MEASURES:
        assert reverses[measure] == reversal_gaps(measure, content, s_a, s_b).reverses


@settings(max_examples=40, deadline=None)
@given(contents, masses, masses)
def test_the_content_distance_never_reverses_and_dropping_always_prefers_b(content, s_a, s_b):
    assume(asymmetric(content) and abs(s_a - s_b) > 1e-4)
    found = reversal_triple(content, s_a, s_b, samples=0).margins.set_index("measure")
    assert not found.reverses["content"]
    assert found.margin_kept["content"] == found.margin_dropped["content"] > 0
    assert (found.margin_dropped > 0).all()


@settings(max_examples=25, deadline=None)
@given(contents, masses, masses, st.integers(0, 2**16))
def test_strict_verdicts_hold_within_every_measures_own_radius(content, s_a, s_b, seed):
    assume(asymmetric(content) and abs(s_a - s_b) > 1e-4)
    triple = reversal_triple(content, s_a, s_b, samples=0)
    rng = np.random.default_rng(seed)
    assert triple.neighbourhood == triple.margins.radius.min() > 0
    for row in triple.margins.itertuples():
        moved = np.sign(rng.normal(size=(40, *triple.rows.shape))) * row.radius * (1 - 1e-6)
        log_rows = triple.log_rows + moved
        for convention, margin in (("kept", row.margin_kept), ("dropped", row.margin_dropped)):
            to_b, to_c = theory_module._distances(log_rows, row.measure, convention)
            to = theory_module._distances(triple.log_rows, row.measure, convention)
            if abs(margin) > 1e-12 * sum(map(float, to)):
                assert (np.sign(to_c - to_b) == np.sign(margin)).all(), (row, convention)


def moves(measure, p, delta):
    """How far one row moves, in the metric behind the measure."""
    q = p + delta
    if measure == "euclidean":
        return float(sw.euclidean_distance(p, q, sink=0, convention="kept", logits=True))
    if measure == "cosine":
        d = float(sw.cosine_distance(p, q, sink=0, convention="kept", logits=True))
        return 2 * math.asin(math.sqrt(d / 2))
    if measure == "js_divergence":
        return math.sqrt(sw.js_divergence(p, q, sink=0, convention="kept", logits=True))
    return float(sw.aitchison_distance(p, q, logits=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**16), st.floats(0.001, 3.0), st.integers(2, 9), st.floats(0.1, 20))
def test_log_weights_that_move_by_r_move_rows_no_farther_than_stated(seed, r, keys, scale):
    rng = np.random.default_rng(seed)
    p = scale * rng.normal(size=keys)
    bounds = {
        "euclidean": math.sqrt(2) * math.tanh(r / 2),
        "cosine": r,
        "js_divergence": r / math.sqrt(8),
        "aitchison": r * math.sqrt(keys),
    }
    for delta in (rng.uniform(-r, r, keys), r * np.sign(rng.normal(size=keys))):
        for measure, bound in bounds.items():
            assert moves(measure, p, delta) <= bound * (1 + 1e-9) + 1e-12, measure


def test_the_stated_speeds_are_attained():
    # two keys of equal weight, moved apart
    p, r = np.zeros(2), 1e-3
    delta = np.array([r, -r])
    assert moves("euclidean", p, delta) == pytest.approx(math.sqrt(2) * math.tanh(r / 2), rel=0.5)
    two = np.array([0.0, 0.0])
    assert moves("cosine", two, delta) == pytest.approx(r, rel=1e-3)
    assert moves("js_divergence", two, delta) == pytest.approx(r / math.sqrt(8), rel=1e-3)
    assert moves("aitchison", two, delta) == pytest.approx(r * math.sqrt(2), rel=1e-9)
    big = 2.0
    moved = moves("euclidean", np.array([big, -big]) / 2, -np.array([big, -big]))
    assert moved == pytest.approx(math.sqrt(2) * math.tanh(big / 2), rel=1e-12)


def test_rows_are_what_the_theorem_says():
    triple = reversal_triple(np.array([5.0, 3, 2]), 0.9, 0.7)
    a, b, c = triple.rows
    np.testing.assert_allclose(a, [0.9, 0.05, 0.03, 0.02], rtol=1e-14)
    np.testing.assert_allclose(b, [0.7, 0.15, 0.09, 0.06], rtol=1e-14)
    np.testing.assert_allclose(c, [0.9, 0.02, 0.03, 0.05], rtol=1e-14)
    assert tuple(triple.margins.columns) == TRIPLE_COLUMNS
    assert triple.margins.measure.tolist() == list(REVERSAL_MEASURES)
    assert triple.samples == 1000


def test_margins_near_sink_mass_1_agree_with_40_digits():
    s_a, s_b = 1 - 2**-30, 1 - 2**-28
    content = np.array([0.5, 0.25, 0.125, 0.125])
    mpmath.mp.dps = 40
    pi = [mpmath.mpf(x) for x in content]

    def row(s, parts):
        return [mpmath.mpf(s)] + [(1 - mpmath.mpf(s)) * x for x in parts]

    def cosine(p, q):
        dot = mpmath.fsum(x * y for x, y in zip(p, q, strict=True))
        return 1 - dot / mpmath.sqrt(mpmath.fsum(x * x for x in p) * mpmath.fsum(y * y for y in q))

    a, b, c = row(s_a, pi), row(s_b, pi), row(s_a, pi[::-1])
    gaps = reversal_gaps("cosine", content, s_a, s_b)
    assert gaps.sink == pytest.approx(float(cosine(a, b)), rel=1e-9)
    assert gaps.content == pytest.approx(float(cosine(a, c)), rel=1e-9)
    triple = reversal_triple(content, s_a, s_b)
    margin = triple.margins.set_index("measure").margin_kept["cosine"]
    assert margin == pytest.approx(float(cosine(a, c) - cosine(a, b)), rel=1e-6)
    assert triple.neighbourhood > 0


def test_the_radius_of_two_content_keys_is_where_the_verdict_ties():
    triple = reversal_triple(np.array([2.0, 1.0]), 0.5, 0.25)
    radius = triple.margins.set_index("measure").radius["content"]
    # a and c towards each other, b away from a
    moved = np.array([[0, -1, 1], [0, 1, -1], [0, 1, -1]]) * radius
    to_b, to_c = theory_module._distances(triple.log_rows + moved, "content", "dropped")
    assert to_b == pytest.approx(to_c, rel=1e-12)


def test_a_wrong_radius_is_noticed(monkeypatch):
    monkeypatch.setattr(theory_module, "_radius", lambda *_: 3.0)
    with pytest.raises(AssertionError, match="does not hold within its radius"):
        reversal_triple(np.array([0.5, 0.3, 0.2]), 0.9, 0.7)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 8), st.integers(0, 2**16))
def test_no_two_rows_leave_the_limits_of_their_sink_masses(p, q, keys, seed):
    rng = np.random.default_rng(seed)
    rows = [np.concatenate([[s], (1 - s) * rng.dirichlet(np.full(keys, 0.3))]) for s in (p, q)]
    limits = distance_limits(p, q)
    similarity = rows[0] @ rows[1] / np.prod([np.linalg.norm(r) for r in rows])
    values = {
        "cosine": 1 - similarity,
        "cosine_similarity": similarity,
        "euclidean": np.linalg.norm(rows[0] - rows[1]),
        "js_divergence": float(sw.js_divergence(*rows, sink=0, convention="kept")),
    }
    for measure, value in values.items():
        low, high = limits[measure]
        assert low - 1e-12 <= value <= high + 1e-12, measure
    for measure, bound in pair_bounds(min(p, q)).items():
        assert limits[measure].ceiling <= bound + 1e-12


def test_limits_of_equal_masses_are_the_bands():
    for m in (0.3, 0.5, 0.8, 1.0):
        limits = distance_limits(m, m)
        for measure, bound in pair_bounds(m).items():
            assert limits[measure].ceiling == pytest.approx(float(bound), abs=1e-15)
    assert distance_limits(0.8, 0.8)["cosine_similarity"].floor == pytest.approx(0.9412, abs=5e-5)


def test_floors_are_approached_by_equal_contents():
    p, q, keys = 0.9, 0.6, 100_000
    rows = [np.concatenate([[s], np.full(keys, (1 - s) / keys)]) for s in (p, q)]
    limits = distance_limits(p, q)
    assert np.linalg.norm(rows[0] - rows[1]) == pytest.approx(limits["euclidean"].floor, rel=1e-4)
    divergence = float(sw.js_divergence(*rows, sink=0, convention="kept"))
    assert divergence == pytest.approx(limits["js_divergence"].floor, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.3, 0.5], 0.9, 0.7), "its own mirror image"),
        (([0.5, 0.3], 0.9, 0.9), "both sink masses are 0.9"),
        (([0.5, 0.3], 1.0, 0.9), r"leaves no sink or no content, expected it inside \(0, 1\)"),
        (([0.5, 0.3], 1.5, 0.9), "outside"),
        (([0.5, 0.0], 0.8, 0.9), "part 1 of the content is 0.0"),
        (([0.5, np.nan], 0.8, 0.9), "part 1 of the content is nan"),
        (([0.5], 0.8, 0.9), r"shape \(1,\), expected \(parts,\)"),
    ],
)
def test_refused_triples(arguments, message):
    with pytest.raises(RowError, match=message):
        reversal_triple(*arguments)


def test_refused_requests():
    with pytest.raises(RowError, match="measure='angle', expected one of cosine"):
        reversal_gaps("angle", np.array([0.5, 0.3]), 0.9, 0.8)
    with pytest.raises(RowError, match="samples is -1"):
        reversal_triple([0.5, 0.3], 0.9, 0.8, samples=-1)
    with pytest.raises(RowError, match="outside"):
        distance_limits(0.5, 1.1)


def test_the_module_is_reached_by_its_short_name():
    assert sw.theory is theory_module and "theory" in dir(sw)
