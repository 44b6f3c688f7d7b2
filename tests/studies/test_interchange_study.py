"""The study of exchanged patterns as an object: tables, bands, and its file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sinkwise.errors import RunError
from sinkwise.rowdata import HeadId
from sinkwise.studies.interchange import (
    CURVE_COLUMNS,
    RANDOM,
    ExchangePoint,
    InterchangeStudy,
    Singles,
)

HEADS = tuple(HeadId(layer, index) for layer in range(3) for index in range(4))
TOKENS = (20, 30, 25, 40)


def _records(damage, *, key="loss"):
    if key == "damage":
        return [{"damage": damage, "tokens": n} for n in TOKENS]
    return [{"loss": (3 + damage) * n, "tokens": n} for n in TOKENS]


def _point(metric, damage, share=0.25, mode="split", scope="model", seed=None, **options):
    return ExchangePoint(
        metric, mode, scope, share, seed, ((5, 0), (9, 4)), _records(damage, **options), 0.75
    )


@pytest.fixture
def study():
    points = (
        _point("content", 0.1),
        _point("cosine/kept", 0.5),
        _point("js_divergence/kept", 0.25),
        *(_point(RANDOM, damage, seed=n) for n, damage in enumerate((0.2, 0.4, 0.3))),
        _point("content", 0.7, share=0.5, mode="whole", scope="layer"),
    )
    pairs = ((5, 0), (5, 1), (5, 2), (9, 0), (9, 1), (9, 2), (11, 3), (11, 4), (11, 5))
    near = {"content": [1, 2, 3] * 3, "cosine/kept": [3.0, float("nan"), 1.0] * 3}
    found = {"split": [_records(0.1 * n) for n in [1, 2, 3] * 3]}
    singles = Singles(pairs, near, {("content", "average"): [0, 0, 0, 1, 0, 0] + [1] * 6}, found)
    return InterchangeStudy(HEADS, "perplexity", _records(0), points, singles, {"a": {"b": 1}}, 7)


def test_values_are_perplexities_and_damage_is_the_rise_in_their_logarithm(study):
    table = study.curves()
    assert tuple(table.columns) == CURVE_COLUMNS
    row = table.iloc[0]
    assert row.value == pytest.approx(np.exp(3.1)) and row.damage == pytest.approx(0.1)
    assert study.dense_outcome["value"] == pytest.approx(np.exp(3))
    assert row.heads == 2 and row.top1_agreement == 0.75


def test_each_distance_is_held_against_the_random_pairs_of_its_cell(study):
    table = study.curves().set_index(["metric", "share"])
    assert table.against_random["content", 0.25] == "below"
    assert table.against_random["js_divergence/kept", 0.25] == "inside"
    assert table.against_random["cosine/kept", 0.25] == "above"
    assert table.against_random["content", 0.5] == ""  # no random pairs there
    assert set(table.against_random[RANDOM]) == {""}
    band = study.random_band()
    assert band[["mode", "scope", "share", "seeds"]].values.tolist() == [
        ["split", "model", 0.25, 3]
    ]
    assert band[["least", "mean", "most"]].values[0] == pytest.approx([0.2, 0.3, 0.4])


def test_the_best_of_each_cell_is_the_least_damage(study):
    best = study.best()
    assert best[["metric", "share"]].values.tolist() == [["content", 0.25], ["content", 0.5]]


def test_single_pairs_carry_their_distances(study):
    table = study.single_pairs()
    assert table.columns.tolist()[-2:] == ["content", "cosine/kept"]
    assert table.borrower[0] == "L1H1" and table.donor[0] == "L0H0"
    assert table.damage.to_numpy() == pytest.approx([0.1, 0.2, 0.3] * 3)
    told = study.correlations().set_index("metric")
    assert told.within["content"] == 1 and told.index[0] == "content"
    assert study.clusters().comparisons[0] == 2  # only L2H3's donors lie in two clusters


def test_the_file_gives_the_study_back(study):
    text = json.dumps(study.to_json(), allow_nan=False)
    again = InterchangeStudy.from_json(json.loads(text))
    assert again.to_json() == study.to_json()
    for name in ("curves", "random_band", "best", "single_pairs", "correlations", "clusters"):
        first, second = getattr(study, name)(), getattr(again, name)()
        assert first.to_json() == second.to_json(), name
    point = study.to_json()["points"][3]
    assert point["metric"] == RANDOM and point["seed"] == 0
    assert point["pairs"] == [[[1, 1], [0, 0]], [[2, 1], [1, 0]]]
    assert study.to_json()["points"][0]["seed"] is None


def test_without_singles_their_tables_are_empty(study):
    bare = InterchangeStudy(HEADS, "perplexity", study.dense, study.points)
    assert bare.to_json()["singles"] is None
    for table in (bare.single_pairs(), bare.correlations(), bare.clusters()):
        assert len(table) == 0 and len(table.columns)
    assert InterchangeStudy.from_json(bare.to_json()).singles is None


def test_encoders_have_no_value_but_their_damage():
    dense = _records(0.0, key="damage")
    points = (_point("content", 0.02, key="damage"),)
    found = InterchangeStudy(HEADS, "cosine", dense, points).curves().iloc[0]
    assert found.value == found.damage == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c | {"schema": "sinkwise.interchange/9"}, "has the schema"),
        (lambda c: {k: v for k, v in c.items() if k != "dense"}, "damaged .KeyError"),
        (lambda c: c | {"heads": [[0, 0]]}, "damaged"),
        (lambda c: [], "has the schema None"),
    ],
)
def test_a_file_that_is_not_one_is_refused_by_name(study, change, words):
    with pytest.raises(RunError, match=words):
        InterchangeStudy.from_json(change(study.to_json()))
