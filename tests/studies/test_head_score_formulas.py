"""Scores by hand, greedy choices against brute force, ties and missing values."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkwise.accumulate.head_outputs import GateGradients, HeadOutputs
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.head_scores import (
    Budget,
    Evidence,
    budget,
    removed_heads,
    score_named,
    set_energy,
)
from sinkwise.studies.head_scores.gate_gradients import gate_fisher
from sinkwise.studies.head_scores.greedy import ascending, closest_pairs, least_increase
from sinkwise.studies.head_scores.joint import fisher_matrix, gradient_weighted_gram

HEADS = tuple(HeadId(layer, index) for layer in range(2) for index in range(3))


def _evidence(heads=HEADS, *, profile=None, distances=None, gradients=None, **outputs):
    n = len(heads)
    given = {
        "gram": np.eye(n),
        "constant_gram": np.zeros((n, n)),
        "relative_norm": np.ones(n),
        "norm": np.ones(n),
        "mean_output": np.zeros((n, 1)),
    }
    found = HeadOutputs(heads, **(given | outputs), gradients=gradients or {})
    return Evidence(tuple(heads), found, profile or {}, distances or {})


def _order(name, evidence, sparsity=0.5, scope="model"):
    removed = removed_heads(score_named(name), evidence, sparsity, scope, seed=0)
    return [evidence.heads.index(head) for head in removed]


# ---- values --------------------------------------------------------------------------------


def test_norms_lowest_first():
    found = _evidence(
        norm=np.array([8.0, 2.0, 2.0, 1.0, 1.0, 4.0]),
        relative_norm=np.array([0.3, 0.2, 0.5, 0.4, 0.1, 0.6]),
    )
    assert _order("output_norm", found) == [3, 4, 1]
    assert _order("relative_output_norm", found) == [4, 1, 0]
    # over the layers' means, 4 and 2: 2, 1/2, 1/2, 1/2, 1/2, 2
    assert _order("ahon_ln", found) == [1, 2, 3]


def test_sink_mass_in_four_orders():
    found = _evidence(profile={"sink_mass": np.array([0.9, 0.1, 0.5, 0.2, 0.8, 0.4])})
    assert _order("sink_mass/most", found, 0.6) == [0, 4, 2, 5]
    assert _order("sink_mass/least", found, 0.6) == [1, 3, 5, 2]
    assert _order("sink_mass/most_deep", found, 0.6) == [4, 5, 0, 2]  # one of the deep stays
    assert _order("sink_mass/least_deep", found, 0.6) == [3, 5, 1, 2]


def test_the_middle_layer_of_three_is_not_deep():
    heads = tuple(HeadId(layer, index) for layer in range(3) for index in range(2))
    found = _evidence(heads, profile={"sink_mass": np.array([0.9, 0.9, 0.5, 0.4, 0.2, 0.1])})
    assert _order("sink_mass/most_deep", found, 0.34) == [4, 0]


def test_flattest_and_sharpest():
    found = _evidence(profile={"content_dispersion": np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.0])})
    assert _order("flattest", found) == [1, 3, 5]
    assert _order("sharpest", found) == [4, 2, 0]


def _gates(importance=None, token=None, document=None, n=6):
    return GateGradients(
        np.eye(n) if token is None else token,
        np.eye(n) if document is None else document,
        np.ones(n) if importance is None else importance,
    )


def test_michel_takes_the_texts_own_labels_where_there_are_such():
    true, sampled = np.array([4.0, 3, 1, 2, 6, 5]), np.array([1.0, 2, 3, 4, 5, 6])
    both = {"true": _gates(true), "sampled": _gates(sampled)}
    assert _order("michel", _evidence(gradients=both)) == [2, 3, 1]
    assert _order("michel", _evidence(gradients={"sampled": _gates(sampled)})) == [0, 1, 3]


def test_michel_over_the_layers_euclidean_norm():
    gates = {"true": _gates(np.array([3.0, 4.0, 0.5, 30.0, 40.0, 4.0]))}
    # norms about 5.02 and 50.2: 0.60, 0.80, 0.10, 0.60, 0.80, 0.08
    assert _order("michel/layer_normalised", _evidence(gradients=gates), 0.34) == [5, 2]


def test_gate_fisher_is_the_mean_of_four_vectors_of_mean_one():
    token, document = np.diag([1.0, 3.0]), np.diag([8.0, 0.0])
    sampled = GateGradients(np.diag([5.0, 5.0]), np.diag([0.0, 2.0]), np.ones(2))
    heads = (HeadId(0, 0), HeadId(0, 1))
    found = _evidence(
        heads, gradients={"true": GateGradients(token, document, np.ones(2)), "sampled": sampled}
    )
    # (0.5, 1.5), (2, 0), (1, 1), (0, 2)
    np.testing.assert_allclose(gate_fisher(found), [3.5 / 4, 4.5 / 4])
    alone = _evidence(heads, gradients={"sampled": sampled})
    np.testing.assert_allclose(gate_fisher(alone), [0.5, 1.5])


def test_leave_one_out_may_be_negative():
    found = _evidence(leave_one_out=np.array([0.1, -0.2, 0.0, 0.3, -0.1, 0.2]))
    assert _order("leave_one_out", found) == [1, 4, 2]


def test_gradient_weights_give_the_geometric_mean():
    gram = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    fisher = np.diag([1.0, 16.0, 7.0])
    heads = tuple(HeadId(0, i) for i in range(3))
    found = _evidence(heads, gram=gram, gradients={"sampled": _gates(None, fisher, fisher, 3)})
    f = np.array([1.0, 16.0]) / 8  # of mean 1
    expected = np.sqrt([4 * f[0], 1 * f[1]])
    matrix = gradient_weighted_gram(found)
    np.testing.assert_allclose(np.diag(matrix), [*expected, 0.0])
    np.testing.assert_allclose(matrix[0, 1], (f[0] / 4) ** 0.25 * f[1] ** 0.25)
    assert _order("joint_output_fisher", found, 0.34) == [2]  # a head that writes nothing


def test_fisher_matrices_are_scaled_before_they_are_averaged():
    big, small = np.array([[2.0, 1.0], [1.0, 2.0]]) * 1e6, np.array([[1.0, -1.0], [-1.0, 3.0]])
    heads = (HeadId(0, 0), HeadId(1, 0))
    gates = {"true": _gates(None, big, small, 2), "sampled": _gates(None, small, big, 2)}
    found = _evidence(heads, gradients=gates)
    expected = (big / 2e6 + small / 2) / 2
    np.testing.assert_allclose(fisher_matrix(found, moment="token"), expected)
    np.testing.assert_allclose(fisher_matrix(found, moment="document"), expected)


def test_fisher_matrix_and_output_add_up_at_one_scale():
    """Neither matrix alone makes this choice."""
    gram = np.diag([100.0, 300.0, 200.0])
    token = np.diag([3e-6, 1e-6, 1.4e-6])
    heads = tuple(HeadId(0, i) for i in range(3))
    gates = {"sampled": _gates(None, token, np.eye(3), 3)}
    found = _evidence(heads, gram=gram, gradients=gates)
    assert _order("joint_output", found, 0.34) == [0]
    assert _order("fisher_matrix", found, 0.34) == [1]
    assert _order("fisher_matrix+output", found, 0.34) == [2]


def test_which_of_the_closest_pair_goes():
    d = np.full((6, 6), 9.0)
    np.fill_diagonal(d, 0)
    d[1, 3] = d[3, 1] = 1.0  # L0H1 and L1H0
    found = _evidence(distances={"content": d}, relative_norm=np.array([1, 5, 1, 7, 1, 1.0]))
    assert _order("content", found, 0.17) == [3]
    assert _order("content:goes=earlier", found, 0.17) == [1]
    assert _order("content:goes=weaker", found, 0.17) == [1]
    # within layers every pair is at 9: the first of each, its later head
    assert _order("content", found, 0.34, "layer") == [1, 4]


def test_a_full_layer_gives_its_place_to_the_other_of_the_pair():
    heads = (HeadId(0, 0), HeadId(0, 1), HeadId(1, 0))
    d = np.array([[0, 5.0, 1.0], [5.0, 0, 6.0], [1.0, 6.0, 0]])
    assert _order("content", _evidence(heads, distances={"content": d}), 0.34) == [0]


# ---- what a set does together ----------------------------------------------------------------


def test_energy_of_a_set_by_hand():
    a, b = np.array([1.0, 0.0]), np.array([0.6, 0.8])
    writes = np.stack([a, b, -a])
    gram = writes @ writes.T
    heads = tuple(HeadId(0, i) for i in range(3))
    found = _evidence(heads, gram=gram, constant_gram=gram / 4).outputs
    assert set_energy(found, heads[:2]) == pytest.approx((3.2 / 2, 0.25))
    energy = set_energy(found, [(0, 0), (0, 2)])
    assert energy.ratio == 0
    assert np.isnan(energy.constant_share)
    assert np.isnan(set_energy(found, []).ratio)
    with pytest.raises(RowError, match="L3H1 is none of the 3 heads"):
        set_energy(found, [(3, 1)])


# ---- greedy choices --------------------------------------------------------------------------

LAYERS = np.array([0, 0, 0, 1, 1, 2, 2, 2])


def _budgets():
    heads = [HeadId(int(x), i) for i, x in enumerate(LAYERS)]
    shares = st.sampled_from([0.1, 0.25, 0.4, 0.6])
    return st.builds(
        lambda s, scope: budget(heads, s, scope), shares, st.sampled_from(["model", "layer"])
    )


def _open(removed, limits):
    counts = {x: sum(LAYERS[h] == x for h in removed) for x in limits.caps}
    return [h for h in range(8) if h not in removed and counts[LAYERS[h]] < limits.caps[LAYERS[h]]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limits=_budgets())
def test_joint_choice_equals_trying_every_head_at_every_step(seed, limits):
    v = np.random.default_rng(seed).normal(size=(8, 4))
    m, removed = v @ v.T, []
    for _ in range(limits.total):
        tried = {h: m[np.ix_([*removed, h], [*removed, h])].sum() for h in _open(removed, limits)}
        removed.append(min(tried, key=lambda h: round(tried[h], 9)))
    assert list(least_increase(m, LAYERS, limits)) == removed


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limits=_budgets())
def test_without_cross_terms_the_joint_choice_is_the_best_set(seed, limits):
    values = np.random.default_rng(seed).uniform(0.1, 1, size=8)
    found = least_increase(np.diag(values), LAYERS, limits)
    allowed = [
        s
        for s in combinations(range(8), limits.total)
        if all(sum(LAYERS[h] == x for h in s) <= cap for x, cap in limits.caps.items())
    ]
    best = min(allowed, key=lambda s: values[list(s)].sum())
    assert set(found) == set(best)
    assert ascending(values, LAYERS, limits) == found


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), limits=_budgets(), levels=st.sampled_from([3, 1000]))
def test_pairs_equal_searching_all_that_remain_at_every_step(seed, limits, levels):
    half = np.triu(np.random.default_rng(seed).integers(1, levels, size=(8, 8)), 1)
    d, removed = (half + half.T).astype(float), []
    for _ in range(limits.total):
        may_go = _open(removed, limits)
        pairs = [
            (d[i, j], i, j)
            for i, j in combinations(range(8), 2)
            if i not in removed and j not in removed and (i in may_go or j in may_go)
            if not limits.within_layer or LAYERS[i] == LAYERS[j]
        ]
        _, i, j = min(pairs)  # ties: the pair that comes first
        removed.append(j if j in may_go else i)
    assert list(closest_pairs(d, LAYERS, limits, max)) == removed


def test_ties_go_by_the_order_of_the_heads():
    limits = Budget(4, {0: 2, 1: 1, 2: 2})
    assert ascending(np.ones(8), LAYERS, limits) == (0, 1, 3, 5)
    assert least_increase(np.eye(8), LAYERS, limits) == (0, 1, 3, 5)
    assert closest_pairs(np.ones((8, 8)), LAYERS, limits, max) == (1, 2, 3, 5)


# ---- missing values --------------------------------------------------------------------------


def test_a_head_without_a_value_stays():
    values = np.array([np.nan, 3.0, 2.0, np.nan, 1.0, np.inf, 5.0, -np.inf])
    assert ascending(values, LAYERS, Budget(5, {0: 2, 1: 1, 2: 2})) == (7, 4, 2, 1, 6)
    with pytest.raises(RowError, match=r"5 heads are to go.*give 2; 6 heads have none"):
        ascending(np.where(np.arange(8) < 3, values, np.nan), LAYERS, Budget(5, {0: 2, 1: 1, 2: 2}))


def test_a_pair_without_a_distance_is_passed_over():
    d = np.full((8, 8), np.nan)
    d[5, 6] = d[6, 5] = 2.0
    d[0, 2] = d[2, 0] = 1.0
    assert closest_pairs(d, LAYERS, Budget(2, {0: 2, 1: 1, 2: 2}), max) == (2, 6)
    with pytest.raises(RowError, match="Lower the sparsity"):
        closest_pairs(d, LAYERS, Budget(3, {0: 2, 1: 1, 2: 2}), max)


def test_a_matrix_of_joint_effects_must_be_whole():
    m = np.eye(8)
    m[2, 3] = np.nan
    with pytest.raises(RowError, match="between heads 2 and 3"):
        least_increase(m, LAYERS, Budget(1, {0: 1, 1: 1, 2: 1}))
