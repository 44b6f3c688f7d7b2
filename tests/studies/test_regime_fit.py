"""Refitting the regime rule: brute force, models never split, refusals."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkwise as sw
from sinkwise.studies.regime_fit import (
    REGIME_COLUMNS,
    fit_regime,
    fit_thresholds,
    regime_table,
)


def table(spreads, misled, models=None):
    names = [f"r{i}" for i in range(len(spreads))]
    return pd.DataFrame(
        {"run": names, "model": models or names, "dispersion": spreads, "misled": misled}
    )


runs = st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=1, max_size=8)


@settings(deadline=None, max_examples=60)
@given(runs, st.sampled_from([0.0, 0.25, 1.0]), st.randoms())
def test_no_pair_of_cuts_costs_less_whatever_the_order(found, cost, rng):
    d = np.array([n / 30 for n, _ in found])
    bad = np.array([b for _, b in found])
    low, high, reached = fit_thresholds(d, bad, cost)
    assert low <= high

    def price(a, b):
        misses = (bad & (d < a)).sum() + (~bad & (d > b)).sum()
        return misses + cost * ((d >= a) & (d <= b)).sum()

    assert reached == pytest.approx(price(low, high))
    grid = np.arange(0, 31) / 60 + 1e-3  # between any two spreads, and beyond both ends
    best = min(price(a, b) for a, b in product(np.append(grid, 0.5), repeat=2) if a <= b)
    assert reached <= best + 1e-9
    order = list(range(len(d)))
    rng.shuffle(order)
    assert fit_thresholds(d[order], bad[order], cost) == (low, high, reached)


def test_a_cheap_abstention_takes_the_muddled_middle_and_a_dear_one_does_not():
    d = np.array([0.02, 0.04, 0.14, 0.16, 0.30, 0.32])
    bad = np.array([False, False, True, False, True, True])
    low, high, cost = fit_thresholds(d, bad, 0.25)
    assert (low, high) == pytest.approx((0.09, 0.23)) and cost == 0.5
    low, high, cost = fit_thresholds(d, bad, 0.9)
    assert low == high and cost == 1


def test_two_runs_of_a_model_never_split():
    # model m's two runs are the only ones in the middle: judged without both, they are misses
    spreads = [0.02, 0.04, 0.20, 0.21, 0.30, 0.32]
    misled = [False, False, False, False, True, True]
    fit = fit_regime(table(spreads, misled, ["a", "b", "m", "m", "c", "d"]))
    assert fit.score["hits"] == 4 and fit.score["misses"] == 2
    of_m = fit.table[fit.table.model == "m"]
    assert list(of_m.safe_below) == pytest.approx([0.17] * 2) and set(of_m.result) == {"miss"}
    apart = fit_regime(table(spreads, misled))
    assert apart.score["misses"] == 0
    together = fit_regime(table(spreads, misled), models={"r2": "m", "r3": "m"})
    assert together.score == fit.score


def test_the_frozen_rule_stands_beside_and_a_rule_that_says_nothing_is_seen():
    spreads, misled = [0.05, 0.08, 0.15, 0.25, 0.3, 0.31], [False] * 3 + [True] * 3
    fit = fit_regime(table(spreads, misled))
    assert fit.score["frozen"] == {"hits": 5, "misses": 0, "abstentions": 1}
    assert (fit.cost, fit.constant_cost) == (0, 3)
    assert "one miss" in fit.record
    backwards = fit_regime(table(spreads, misled[::-1]))
    assert backwards.cost == pytest.approx(1.5)  # the rule can only be silent


@pytest.mark.parametrize(
    ("misled", "words"),
    [
        ([False, True, False, True], "4 models"),
        ([True] * 6, "6 in which .* misled and 0"),
        ([True] * 5 + [False], "2 of either"),
        ([None] * 3 + [True, False, True], "3 models"),
    ],
)
def test_too_few_models_are_refused(misled, words):
    with pytest.raises(sw.RowError, match=words):
        fit_regime(table(np.linspace(0.05, 0.3, len(misled)), misled))


def test_four_models_in_six_runs_are_four():
    with pytest.raises(sw.RowError, match="4 models"):
        fit_regime(table([0.1] * 6, [True, False] * 3, list("aabbcd")))


def test_misuse():
    with pytest.raises(sw.RowError, match="abstention_cost=2"):
        fit_regime(table([0.1], [True]), abstention_cost=2)
    with pytest.raises(sw.RowError, match="no column 'model'"):
        fit_regime(table([0.1], [True]).drop(columns="model"))
    with pytest.raises(sw.RowError, match="is not between 0 and"):
        fit_regime(table([0.1] * 5 + [0.7], [True, False] * 3))
    with pytest.raises(sw.InputTypeError, match="one run arrived"):
        regime_table("runs/a")
    with pytest.raises(sw.InputTypeError, match="class int"):
        regime_table([3])


def test_runs_become_a_table(tmp_path):
    rng = np.random.default_rng(0)
    folders = []
    for i, slope in enumerate((0.0, 2.0)):
        z = rng.normal(size=(1, 5, 6, 8)) + 0.1 * rng.normal(size=(6, 5, 6, 8))
        z[..., 0] += slope * np.arange(5)[:, None]
        folders.append(tmp_path / f"run{i}")
        sw.audit(sw.rows(z, sink=0, logits=True), out=folders[-1])
    found = regime_table(folders)
    assert tuple(found.columns) == REGIME_COLUMNS
    assert list(found.run) == [str(f) for f in folders]
    assert found.verdict[1] == "classical unsafe" and found.dispersion[0] < found.dispersion[1]
    assert "one miss" in found.attrs["record"]
    with pytest.raises(sw.RunError, match="given twice"):
        regime_table([folders[0], tmp_path / "." / "run0"])
    with pytest.raises(sw.RowError, match="single head"):
        regime_table([sw.audit(sw.rows(z[:, :1], sink=0, logits=True))])
