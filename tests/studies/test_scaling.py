"""Scaling: slopes against second opinions, cover, cards that may not be mixed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.studies.audit import Audit
from sinkwise.studies.cards import card_differences
from sinkwise.studies.scaling import MODEL_COLUMNS, SLOPE_COLUMNS, scaling, slope


def base(strength, documents=4, heads=4, seed=0):
    z = np.random.default_rng(seed).normal(size=(documents, heads, 6, 8))
    z[..., 0] += strength
    return sw.audit(sw.rows(z, sink=0, logits=True))


def run(strength, *, seed=0, **card):
    found = base(strength, seed=seed)
    return Audit(found.store, found.heads, {**found.card(), **card})


def family(kind, strengths, start=10**7):
    return [
        run(s, model=f"{kind}-{i}", model_type=kind, n_parameters=start * 10**i)
        for i, s in enumerate(strengths)
    ]


def test_slopes_are_those_of_a_second_opinion():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(7, 10, 9), rng.random(9)
    found = slope(x, y)
    pairwise = [(y[j] - y[i]) / (x[j] - x[i]) for i, j in combinations(range(9), 2)]
    assert found["theil_sen"] == pytest.approx(np.median(pairwise))
    assert found["least_squares"] == pytest.approx(np.polyfit(x, y, 1)[0])
    assert found["theil_sen_low"] in np.array(pairwise)
    # the textbook t interval
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    error = np.sqrt((residual**2).sum() / 7 / ((x - x.mean()) ** 2).sum())
    assert found["least_squares_high"] == pytest.approx(found["least_squares"] + 2.364624 * error)


@pytest.mark.parametrize("models", [5, 8])
def test_the_intervals_cover(models):
    rng = np.random.default_rng(models)
    ranked = line = 0
    for _ in range(400):
        x = rng.uniform(7, 10, models)
        found = slope(x, 0.1 * x + 0.05 * rng.standard_t(3, models))
        ranked += found["theil_sen_low"] <= 0.1 <= found["theil_sen_high"]
        line += found["least_squares_low"] <= 0.1 <= found["least_squares_high"]
    assert ranked / 400 > 0.93 and line / 400 > 0.92


def test_too_few_models_say_so_in_place_of_a_number():
    x, y = np.arange(7.0, 13), np.array([0.1, 0.25, 0.3, 0.4, 0.5, 0.61])
    two, three, four = (slope(x[:n], y[:n]) for n in (2, 3, 4))
    assert np.isnan(two["theil_sen"]) and "2 of the 3" in two["note"]
    assert np.isfinite(three["theil_sen"]) and np.isnan(three["least_squares_low"])
    assert "no interval: 3 models" in three["note"]
    assert np.isfinite(four["least_squares_low"]) and np.isnan(four["theil_sen_low"])
    assert "4 models can't reach 0.95" in four["note"]
    assert np.isfinite(slope(x[:4], y[:4], level=0.9)["theil_sen_low"])
    assert "one size" in slope(np.full(5, 8.0), y[:5])["note"]
    flat = slope(x, np.zeros(6))
    assert flat["theil_sen"] == 0 and np.isnan(flat["least_squares_low"]) and flat["note"]


def test_within_families_and_across():
    runs = [*family("a", (0, 1, 2, 3, 4)), *family("b", (4, 3, 2)), *family("c", (1, 2))]
    found = scaling(runs)
    assert tuple(found.models) == MODEL_COLUMNS and tuple(found.slopes) == SLOPE_COLUMNS
    assert list(found.models.parameters) == sorted(found.models.parameters)
    mass = found.slopes[found.slopes.statistic == "sink_mass"].set_index("family")
    assert list(mass.index) == ["a", "b", "all models"]
    assert list(mass.models) == [5, 3, 10]
    assert mass.theil_sen["a"] > 0 > mass.theil_sen["b"]
    assert mass.theil_sen_low["a"] > 0 and np.isnan(mass.theil_sen_low["b"])
    assert any("c (2)" in note for note in found.notes)
    assert any("mixes size" in note for note in found.notes)
    assert found.shared["sink"] == 0


def test_the_statistics_are_those_of_the_audit():
    audit = run(1.5, model="m", n_parameters=10)
    row = scaling([audit]).models.iloc[0]
    summary = audit.summary()["sink_mass"]
    assert row.sink_mass == pytest.approx(summary["mean"])
    assert (row.sink_mass_low, row.sink_mass_high) == pytest.approx(
        (summary["low"], summary["high"])
    )
    assert [row["heads_over_0.3"], row["heads_over_0.8"]] == pytest.approx(
        [s["share"] for s in summary["share_over"]]
    )


def test_two_runs_of_a_model_count_once():
    one, two = run(1, model="m", n_parameters=10), run(1, model="m", n_parameters=10, seed=1)
    other = run(1, model="n", n_parameters=100)
    found = scaling([one, two, other])
    assert list(found.models.runs) == [2, 1]
    mean = (float(one.profile.sink_mass.mean()) + float(two.profile.sink_mass.mean())) / 2
    assert found.models.sink_mass[0] == pytest.approx(mean)
    assert np.isnan(found.models.sink_mass_low[0])
    assert any("2 runs averaged" in note for note in found.notes)
    weights = {"weights_fingerprint": "abc", "n_parameters": 10}
    twins = [run(1, model="x", **weights), run(1, model="y", **weights)]
    assert list(scaling(twins).models.runs) == [2]
    with pytest.raises(sw.RunError, match="are they one model"):
        scaling([one, run(1, model="m", n_parameters=11)])


def test_cards_that_measure_different_things_are_not_mixed():
    one = run(1, model="m", n_parameters=10, queries=64, begins_with="bos")
    other = run(1, model="n", n_parameters=99, queries=32, begins_with="text")
    with pytest.raises(
        sw.RunError, match=r"begins_with, queries .*bos.*--allow begins_with,queries"
    ):
        scaling([one, other])
    with pytest.raises(sw.RunError, match="differ in queries"):
        scaling([one, other], allow=["begins_with"])
    found = scaling([one, other], allow=["begins_with", "queries"])
    assert any("begins_with, as allowed" in note for note in found.notes)
    assert "queries" not in found.shared
    with pytest.raises(sw.RowError, match="allow='dtype'"):
        scaling([one, other], allow=["dtype"])


def test_other_digits_and_other_lengths_are_noted():
    one = run(1, model="m", n_parameters=10, dtype="float32", lengths={"mean": 100.0})
    other = run(1, model="n", n_parameters=99, dtype="bfloat16", lengths={"mean": 140.0})
    notes = " / ".join(scaling([one, other]).notes)
    assert "differ in dtype" in notes and "100 to 140 tokens" in notes


def test_parameters_come_from_the_card_or_by_hand():
    with pytest.raises(sw.RunError, match=r"no parameter count .*--parameters"):
        scaling([run(1, model="m")])
    found = scaling([run(1, model="m")], parameters={"m": 7}, families={"m": "f"})
    assert list(found.models.parameters) == [7] and list(found.models.family) == ["f"]
    assert list(scaling([run(1, model="m")], parameters={"m (1)": 8}).models.parameters) == [8]
    with pytest.raises(sw.RunError, match="parameters names 'z'"):
        scaling([run(1, model="m", n_parameters=3)], parameters={"z": 7})
    with pytest.raises(sw.RowError, match=r"are 1\.5, expected a whole number"):
        scaling([run(1, model="m")], parameters={"m": 1.5})


def test_nothing_to_say_is_said():
    found = scaling([run(1, model="m", n_parameters=10)])
    assert found.slopes.theil_sen.isna().all()
    assert any("nothing can be said" in note for note in found.notes)
    with pytest.raises(sw.RunError, match="no runs"):
        scaling([])
    with pytest.raises(sw.RowError, match="level=95"):
        scaling([run(1, model="m", n_parameters=10)], level=95)


def test_differences_name_what_changes_the_measure_first():
    first = {"sink": "first", "versions": {"torch": "1", "numpy": "2"}, "new": 1, "model": "m"}
    second = {"sink": [0], "versions": {"torch": "2", "numpy": "2"}, "model": "m"}
    found = card_differences(first, second)
    assert found.values.tolist() == [
        ["measure", "sink", "first", [0]],
        ["computation", "versions.torch", "1", "2"],
        ["other", "new", 1, None],
    ]
    assert len(card_differences(first, first)) == 0
