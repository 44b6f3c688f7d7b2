"""Pruning studies against numbers worked out by hand, and intervals against simulation."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sinkwise.errors import RowError, RunError
from sinkwise.studies.head_scores import DEFAULT, SCORES
from sinkwise.studies.prune_best import best_score
from sinkwise.studies.prune_cells import Cell, Damages
from sinkwise.studies.prune_classical import against_classical
from sinkwise.studies.prune_intervals import jackknife, pooled_and_without
from sinkwise.studies.prune_study import PruneStudy

TOKENS = (10, 20, 10)
DENSE = (30.0, 50.0, 28.0)  # 108 nats over 40 tokens

KINDS = {
    DEFAULT: ("joint", False),
    "joint_output": ("joint", False),
    "michel": ("single", True),
    "relative_output_norm": ("single", True),
    "js_divergence/kept": ("pairs", True),
    "cosine/kept": ("pairs", True),
    "content": ("pairs", True),
    "random": ("random", False),
}


def documents(rises, metric="perplexity"):
    """Records whose summed damage in each document is `rises`; None for a ruined document."""
    if metric == "perplexity":
        return [
            {"loss": None if rise is None else loss + rise, "tokens": n}
            for rise, loss, n in zip(rises, DENSE, TOKENS, strict=True)
        ]
    return [
        {"damage": None if rise is None else rise / n, "tokens": n}
        for rise, n in zip(rises, TOKENS, strict=True)
    ]


def point(score, rises, *, sparsity=0.1, scope="model", operation="zero", seed=None, metric=None):
    return {
        "score": score,
        "scope": scope,
        "sparsity": sparsity,
        "seed": seed,
        "operation": operation,
        "removed": [[0, 1], [2, 0]],
        "documents": documents(rises, metric or "perplexity"),
        "top1_agreement": 0.75,
        "energy_ratio": 1.2,
        "constant_share": 0.4,
    }


def study(*points, metric="perplexity", predicted=None, **changed):
    names = dict.fromkeys(p["score"] for p in points)
    scores = [
        {
            "name": name,
            "title": f"by {name}",
            "kind": KINDS[name][0],
            "classical": KINDS[name][1],
            "parameters": {"rescored": "never"},
        }
        for name in names
    ]
    given = {
        "dense": {"metric": metric, "documents": documents((0, 0, 0), metric)},
        "points": points,
        "scores": scores,
        "card": {"evaluation": {"window": 64}},
        "predicted": predicted,
        "seed": 3,
        "versions": {"sinkwise": "0"},
    }
    return PruneStudy.from_points(**given | changed)


def t_interval(without, value):
    """The delete-one jackknife, written out."""
    g = len(without)
    centre = sum(without) / g
    error = math.sqrt((g - 1) / g * sum((w - centre) ** 2 for w in without))
    reach = stats.t.ppf(0.975, g - 1) * error
    return value - reach, value + reach


# -- values ----------------------------------------------------------------------------------


def test_perplexity_is_exp_of_the_total_loss_over_all_tokens():
    found = study(point("michel", (1.0, 5.0, 2.0)))
    assert found.dense_outcome["value"] == pytest.approx(math.exp(108 / 40))
    row = found.points.iloc[0]
    assert row.value == pytest.approx(math.exp(116 / 40))
    losses, left = (31.0, 55.0, 30.0), (30, 20, 30)
    without = [(116 - loss) / n for loss, n in zip(losses, left, strict=True)]
    low, high = t_interval(without, 116 / 40)
    assert (row.low, row.high) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)))


def test_damage_is_paired_by_document_and_narrower_than_the_value():
    row = study(point("michel", (1.0, 5.0, 2.0))).points.iloc[0]
    assert row.damage == pytest.approx(8 / 40)
    low, high = t_interval([7 / 30, 3 / 20, 6 / 30], 8 / 40)
    assert (row.damage_low, row.damage_high) == (pytest.approx(low), pytest.approx(high))
    assert high - low < math.log(row.high / row.low)


@pytest.mark.parametrize("metric", ["cosine", "kl"])
def test_other_metrics_pool_mean_damage_by_tokens(metric):
    row = study(point("michel", (1.0, 5.0, 2.0), metric=metric), metric=metric).points.iloc[0]
    low, high = t_interval([7 / 30, 3 / 20, 6 / 30], 8 / 40)
    assert (row.value, row.low, row.high) == pytest.approx((0.2, low, high))
    assert (row.damage, row.damage_low) == pytest.approx((0.2, low))
    assert np.isnan(row.kl) if metric == "cosine" else row.kl == pytest.approx(0.2)


def test_points_hold_what_was_measured():
    row = study(point("random", (1.0, 1.0, 1.0), seed=4)).points.iloc[0]
    assert (row.heads, row.removed, row.seed) == (2, [[0, 1], [2, 0]], 4)
    assert (row.top1_agreement, row.energy_ratio, row.constant_share) == (0.75, 1.2, 0.4)
    assert (row.kind, row.classical) == ("random", False)
    assert np.isnan(row.kl)


def test_damage_may_be_negative():
    found = study(point("michel", (-1.0, -3.0, -2.0)))
    assert found.points.damage.tolist() == pytest.approx([-6 / 40])
    assert found.points.value.iloc[0] < found.dense_outcome["value"]


# -- a ruined model, a single document -------------------------------------------------------


@pytest.mark.parametrize("lost", [None, float("nan"), float("inf")])
@pytest.mark.parametrize("metric", ["perplexity", "cosine"])
def test_a_loss_that_is_not_finite_is_infinite_damage(lost, metric):
    ruined = point("content", (1.0, 1.0, 1.0), metric=metric)
    ruined["documents"][1]["loss" if metric == "perplexity" else "damage"] = lost
    found = study(ruined, point("michel", (1.0, 1.0, 1.0), metric=metric), metric=metric)
    row = found.points.iloc[0]
    assert row.value == row.damage == math.inf
    assert np.isnan(row.low) and np.isnan(row.damage_high)
    assert "not finite" in row.note
    assert found.to_json()["points"][0]["damage"]["value"] is None
    assert found.best().score == "michel"
    assert found.best().not_told_apart == ()
    assert any("content: the loss is not finite in 1" in words for words in found.warnings())
    assert found == PruneStudy.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))


def test_a_perplexity_too_large_for_a_float_keeps_its_damage():
    row = study(point("content", (8_000.0, 16_000.0, 8_000.0))).points.iloc[0]
    assert row.value == math.inf
    assert row.damage == pytest.approx(800.0)
    assert "too large" in row.note


def test_a_single_document_has_values_and_no_interval():
    one = study(
        *(
            point(name, (rise, 0, 0)) | {"documents": [{"loss": 30.0 + rise, "tokens": 10}]}
            for name, rise in (("michel", 1.0), (DEFAULT, 2.0))
        ),
        dense={"metric": "perplexity", "documents": [{"loss": 30.0, "tokens": 10}]},
    )
    kept = one.to_json()
    assert kept["dense"]["low"] is None
    first = kept["points"][0]
    assert first["value"] == pytest.approx(math.exp(3.1))
    assert first["low"] is first["high"] is first["damage"]["low"] is None
    assert first["note"] == "one document: no interval"
    assert one.best().score == "michel"
    assert one.best().not_told_apart == (DEFAULT,)
    assert "one document" in one.best().note
    assert "one held-out document" in one.warnings()[0]
    assert np.isnan(one.paired("michel", DEFAULT).low.iloc[0])


def test_a_document_that_predicts_nothing_does_not_count():
    found = study(
        point("michel", (1.0, 5.0, 2.0))
        | {"documents": [*documents((1.0, 5.0, 2.0)), {"loss": 0.0, "tokens": 0}]},
        dense={
            "metric": "perplexity",
            "documents": [*documents((0, 0, 0)), {"loss": 0.0, "tokens": 0}],
        },
    )
    want = study(point("michel", (1.0, 5.0, 2.0)))
    assert found.points.damage_low.iloc[0] == pytest.approx(want.points.damage_low.iloc[0])
    assert found.damages.interval.low[0, 0] == pytest.approx(want.points.damage_low.iloc[0])


# -- pairs of scores -------------------------------------------------------------------------


def test_paired_difference_by_hand():
    found = study(point("michel", (1.0, 5.0, 2.0)), point("content", (3.0, 4.0, 5.0)))
    row = found.paired("content", "michel").iloc[0]
    low, high = t_interval([2 / 30, 5 / 20, 1 / 30], 4 / 40)
    assert row.difference == pytest.approx(0.1)
    assert (row.low, row.high) == (pytest.approx(low), pytest.approx(high))
    back = found.paired("michel", "content").iloc[0]
    assert (back.difference, back.low) == (pytest.approx(-0.1), pytest.approx(-high))


def test_a_random_score_is_paired_by_the_mean_over_its_seeds():
    drawn = [point("random", (1.0 * k, 2.0 * k, 3.0 * k), seed=k) for k in (0, 1, 5)]
    found = study(point("michel", (2.0, 4.0, 6.0)), *drawn)
    row = found.paired("random", "michel").iloc[0]
    assert (row.difference, row.low, row.high) == pytest.approx((0, 0, 0))


def test_paired_leaves_out_cells_that_one_of_them_lacks():
    found = study(
        point("michel", (1, 2, 3)),
        point("content", (1, 2, 3)),
        point("content", (1, 2, 3), scope="layer"),
    )
    assert found.paired("michel", "content").scope.tolist() == ["model"]
    with pytest.raises(RowError, match=r"no point is of the score 'fisher'; there are michel"):
        found.paired("michel", "fisher")


@pytest.mark.parametrize(("n", "statistic"), [(8, "difference"), (8, "ratio"), (16, "ratio")])
def test_intervals_of_differences_and_ratios_hold_the_truth(n, statistic):
    # 3,000 studies of log-normal rises that two scores share in part; the share's own standard
    # error is 0.004
    rng = np.random.default_rng(n)
    studies = 3_000
    tokens = rng.integers(100, 255, size=n).astype(float)
    shared = rng.normal(0, 0.5, size=(n, studies))
    noise = rng.normal(0, 0.3, size=(2, n, studies))
    rate = np.array([0.2, 0.3])[:, None, None] * np.exp(shared + noise - (0.25 + 0.09) / 2)
    sums = (tokens[:, None] * rate).transpose(1, 0, 2)  # documents, scores, studies as cells
    cells = tuple(Cell("zero", "model", i / studies) for i in range(studies))
    damages = Damages(("a", "b"), cells, sums, tokens)
    if statistic == "difference":
        found, truth = damages.difference(0, 1), -0.1
    else:
        found = jackknife(
            np.log(damages.value[0] / damages.value[1]),
            np.log(damages.without[:, 0] / damages.without[:, 1]),
        )
        truth = math.log(2 / 3)
    assert 0.91 <= ((found.low <= truth) & (truth <= found.high)).mean() <= 0.98


# -- random sets and warnings ----------------------------------------------------------------


def banded(*damages):
    """A study of five random sets of damage 0.1 to 0.5, beside scores of given damages."""
    names = ("michel", "content", "joint_output", "cosine/kept")
    drawn = [point("random", (4.0 * k, 0, 0), seed=k) for k in range(1, 6)]
    chosen = [point(name, (40 * d, 0, 0)) for name, d in zip(names, damages, strict=False)]
    return study(*chosen, *drawn)


def test_the_band_is_least_median_and_most_over_seeds():
    row = banded().random_band().iloc[0]
    assert row.seeds == 5
    assert (row["least"], row["median"], row["most"]) == pytest.approx((0.1, 0.3, 0.5))
    assert row.value_median == pytest.approx(math.exp(2.7 + 0.3))


def test_scores_inside_and_above_the_band_are_warned_of_by_name():
    found = banded(0.05, 0.7, 0.1, 0.3)
    curves = found.curves().set_index("score")
    assert curves.against_random.to_dict() == {
        "michel": "below",
        "content": "above",
        "joint_output": "inside",  # at its lower edge: some random set did as well
        "cosine/kept": "inside",
    }
    assert curves.loc["michel", "random_median"] == pytest.approx(0.3)
    warned = {words.split(" ")[0]: words for words in found.warnings()}
    assert set(warned) == {"content", "joint_output", "cosine/kept"}
    assert "worse than every random set in 1" in warned["content"]
    assert "worse than every" not in warned["cosine/kept"]


def test_warnings_name_the_cells():
    drawn = [
        point("random", (4.0 * k, 0, 0), seed=k, sparsity=s)
        for k in (1, 2)
        for s in (0.1, 0.2, 0.3)
    ]
    chosen = [point("michel", (r, 0, 0), sparsity=s) for s, r in ((0.1, 1), (0.2, 5), (0.3, 9))]
    assert study(*chosen, *drawn).warnings() == [
        "michel (by michel): no better than some random set in 2 of 3 cells (worse than every "
        "random set in 1): 20 and 30 % anywhere, zero"
    ]


def test_a_ruined_score_is_above_a_ruined_band():
    found = study(
        point("content", (None, 0, 0)),
        *(point("random", (None, 0, 0), seed=k) for k in range(2)),
    )
    assert found.curves().against_random.tolist() == ["above"]


def test_without_random_sets_nothing_is_worth_anything():
    found = study(point("michel", (1, 2, 3)))
    assert found.curves().against_random.tolist() == [""]
    assert found.warnings() == [
        "no random sets were evaluated: nothing says what any score is worth"
    ]


# -- against the classical scores ------------------------------------------------------------


def two_cells(**rises):
    """Points of scores in two cells, damage the same share of each document's tokens."""
    return [
        point(name.replace("__", "/"), [d * n for n in TOKENS], sparsity=share)
        for name, damages in rises.items()
        for share, d in zip((0.1, 0.3), damages, strict=True)
    ]


def test_ratio_to_the_best_classical_score_by_hand():
    found = study(
        *two_cells(
            **{DEFAULT: (0.1, 0.9)},
            joint_output=(0.01, 0.01),  # not classical: never the denominator
            michel=(0.2, 0.8),
            relative_output_norm=(0.4, 0.6),
            random=(0.001, 0.001),
        )
    ).against_classical()
    assert found.cells.classical.tolist() == ["michel", "relative_output_norm"]
    assert found.cells.ratio.tolist() == pytest.approx([0.5, 1.5])
    assert found.geometric_mean == pytest.approx(math.sqrt(0.75))
    assert found.worst == ("30 % anywhere, zero", pytest.approx(1.5))
    # the same ratio in every document: no spread
    assert (found.low, found.high) == pytest.approx((math.sqrt(0.75),) * 2)
    assert found.note == ""


def test_interval_of_the_mean_ratio_is_the_jackknife_of_the_mean_log_ratio():
    one, other = (1.0, 5.0, 2.0), (3.0, 6.5, 3.3)
    found = study(
        point(DEFAULT, one),
        point(DEFAULT, other, scope="layer"),
        point("michel", other),
        point("michel", (6, 11.5, 6), scope="layer"),
    ).against_classical()

    def log_ratio(skip):
        kept = [i for i in range(3) if i != skip]
        cells = ((one, other), (other, (6, 11.5, 6)))
        return sum(
            math.log(sum(a[i] for i in kept) / sum(b[i] for i in kept)) for a, b in cells
        ) / len(cells)

    low, high = t_interval([log_ratio(i) for i in range(3)], log_ratio(None))
    assert (found.geometric_mean, found.low, found.high) == pytest.approx(
        (math.exp(log_ratio(None)), math.exp(low), math.exp(high))
    )


def test_a_score_is_not_held_against_itself():
    found = study(*two_cells(michel=(0.1, 0.1), content=(0.2, 0.4))).against_classical("michel")
    assert found.cells.classical.tolist() == ["content", "content"]
    with pytest.raises(RowError, match="no classical score beside 'content'"):
        study(*two_cells(content=(0.1, 0.1))).against_classical("content")
    with pytest.raises(RowError, match="no point is of the score '"):
        study(*two_cells(content=(0.1, 0.1))).against_classical()


def test_ratios_are_withheld_where_the_classical_damage_is_none():
    found = study(
        point(DEFAULT, (1, 2, 1)),
        point("michel", (-1, 3, -1)),  # 1/40, interval around 0
        point(DEFAULT, (1, 2, 1), scope="layer"),
        point("michel", (-1, -2, -1), scope="layer"),
        point(DEFAULT, (1, 2, 1), sparsity=0.3),
        point("michel", (None, 0, 0), sparsity=0.3),
        point(DEFAULT, (1, 2, 1), sparsity=0.5),
        point("michel", (2, 4, 2), sparsity=0.5),
    ).against_classical()
    assert found.cells.ratio.isna().tolist() == [True, True, True, False]
    assert "told from 0" in found.cells.note[0]
    assert "told from 0" in found.cells.note[1]
    assert "usable model" in found.cells.note[2]
    assert found.geometric_mean == pytest.approx(0.5)
    assert (found.cells_used, found.note) == (1, "3 of 4 cells are not in the mean")


def test_a_score_that_did_no_damage_keeps_its_ratio_and_leaves_the_mean():
    found = study(
        point(DEFAULT, (-1, -2, -1)),
        point("michel", (2, 4, 2)),
        point(DEFAULT, (1, 2, 1), sparsity=0.5),
        point("michel", (2, 4, 2), sparsity=0.5),
    ).against_classical()
    assert found.cells.ratio.tolist() == pytest.approx([-0.5, 0.5])
    assert "left out of the mean" in found.cells.note[0]
    assert (found.geometric_mean, found.cells_used) == (pytest.approx(0.5), 1)


def test_a_ruined_score_has_an_infinite_ratio():
    found = study(
        *two_cells(michel=(0.1, 0.2)),
        point(DEFAULT, (1, 2, 1)),
        point(DEFAULT, (None, 2, 1), sparsity=0.3),
    ).against_classical()
    assert found.cells.ratio[1] == found.geometric_mean == math.inf
    assert np.isnan(found.high)
    assert found.worst == ("30 % anywhere, zero", math.inf)


def test_without_a_ratio_there_is_no_mean_and_no_worst_cell():
    found = study(*two_cells(michel=(0.0, 0.0), **{DEFAULT: (0.1, 0.1)}))
    got = found.against_classical()
    assert np.isnan(got.geometric_mean) and got.worst is None and got.cells_used == 0
    assert found.to_json()["against_classical"]["worst"] is None


def test_the_registry_counts_output_norms_as_classical_and_random_never():
    for name in ("relative_output_norm", "ahon_ln", "michel", "fisher", "leave_one_out"):
        assert SCORES[name].classical, name
    assert not SCORES["random"].classical
    assert not SCORES[DEFAULT].classical


# -- the best score --------------------------------------------------------------------------


def test_best_is_the_least_geometric_mean_over_cells():
    # arithmetic means would say content: 0.25 against 0.255
    found = study(*two_cells(michel=(0.01, 0.5), content=(0.2, 0.3), random=(0.001, 0.001))).best()
    assert found.score == "michel"
    assert found.ranking.score.tolist() == ["michel", "content"]
    assert found.ranking.damage.tolist() == pytest.approx([math.sqrt(0.005), math.sqrt(0.06)])
    assert found.ranking.over_best[1] == pytest.approx(math.sqrt(12))
    assert found.cells.score.tolist() == ["michel", "content"]
    assert found.ranking.cells_best.tolist() == [1, 1]


def test_scores_whose_paired_interval_holds_none_are_not_told_apart():
    # the first two rise and fall together, so a small difference shows; the third does not
    found = study(
        point("michel", (1.0, 4.0, 3.0)),
        point("joint_output", (1.1, 4.4, 3.3)),
        point("content", (3.0, 4.0, 1.5)),
    ).best()
    assert found.score == "michel"
    assert found.not_told_apart == ("content",)
    assert found.cells.not_told_apart[0] == ("content",)
    assert found.ranking.set_index("score").told_apart.to_dict() == {
        "michel": False,
        "joint_output": True,
        "content": False,
    }


def test_equal_scores_are_ties():
    found = study(point("michel", (1, 2, 3)), point("content", (1, 2, 3))).best()
    assert found.score == "michel"
    assert found.not_told_apart == ("content",)
    assert found.ranking.over_best.tolist() == [1.0, 1.0]


def test_cells_without_a_logarithm_are_left_out_and_named():
    found = study(
        *two_cells(content=(0.1, 0.1)),
        point("michel", (-1, -2, -1)),
        point("michel", (8, 16, 8), sparsity=0.3),
    ).best()
    assert found.cells_left_out == ("10 % anywhere, zero",)
    assert found.cells_used == ("30 % anywhere, zero",)
    assert found.score == "content"
    assert found.cells.score.tolist() == [
        "michel",
        "content",
    ]  # by cell it is the best all the same


def test_no_cell_left_gives_no_best_score():
    found = study(point("michel", (-1, -2, -1)), point("content", (1, 2, 1))).best()
    assert found.score is None
    assert "not positive" in found.note
    assert found.cells.score.tolist() == ["michel"]


def test_a_score_without_a_point_in_some_cell_is_not_compared_over_all():
    found = study(
        *two_cells(michel=(0.2, 0.2), content=(0.3, 0.3)), point("joint_output", (0.1, 0.2, 0.1))
    ).best()
    assert found.score == "michel"
    assert "joint_output" in found.note
    assert found.cells.score.tolist() == ["joint_output", "michel"]


def test_all_ruined_leaves_no_best():
    found = study(point("michel", (None, 1, 1)), point("content", (1, None, 1))).best()
    assert found.score is None
    assert found.cells.score.tolist() == [None]
    assert found.cells.note.tolist() == ["no score left a usable model"]


damage_arrays = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.lists(st.floats(0.01, 5), min_size=6, max_size=6), min_size=n, max_size=n)
)


@given(damage_arrays)
@settings(max_examples=50, deadline=None)
def test_best_has_the_least_product_of_damages(rows):
    sums = np.array(rows).reshape(len(rows), 3, 2)
    tokens = np.arange(1.0, len(rows) + 1)
    damages = Damages(
        ("a", "b", "c"), (Cell("zero", "model", 0.1), Cell("zero", "layer", 0.1)), sums, tokens
    )
    found = best_score(damages, ["a", "b", "c"])
    product_of = {name: np.prod(damages.value[i]) for i, name in enumerate("abc")}
    assert product_of[found.score] == pytest.approx(min(product_of.values()))
    for i, name in enumerate("abc"):
        row = found.ranking.set_index("score").loc[name]
        assert row.damage == pytest.approx(math.sqrt(product_of[name]))
        held = against_classical(damages, name, [n for n in "abc" if n != name])
        assert held.cells.damage.tolist() == pytest.approx(damages.value[i].tolist())


@given(damage_arrays)
@settings(max_examples=50, deadline=None)
def test_leaving_a_document_out_is_pooling_the_others(rows):
    sums, tokens = np.array(rows), np.arange(1.0, len(rows) + 1)
    value, without = pooled_and_without(sums, tokens)
    np.testing.assert_allclose(value, sums.sum(0) / tokens.sum())
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        np.testing.assert_allclose(without[i], sums[others].sum(0) / tokens[others].sum())


# -- the regime rule -------------------------------------------------------------------------

UNSAFE, SAFE, ABSTAIN = (
    {"verdict": verdict, "why": "the spread"}
    for verdict in ("classical unsafe", "classical safe", "abstain")
)


@pytest.mark.parametrize(
    ("predicted", "js", "content", "verdict", "result"),
    [
        (UNSAFE, 0.5, 0.1, "content", "hit"),
        (UNSAFE, 0.1, 0.5, "classical", "miss"),
        (SAFE, 0.1, 0.5, "classical", "hit"),
        (SAFE, 0.5, 0.1, "content", "miss"),
        (ABSTAIN, 0.1, 0.5, "classical", "abstained"),
        (UNSAFE, 0.2, 0.2, "undecided", "undecided"),
        (None, 0.1, 0.5, "classical", "undecided"),
    ],
)
def test_the_rule_beside_what_happened(predicted, js, content, verdict, result):
    points = two_cells(js_divergence__kept=(js, js), content=(content, content))
    found = study(*points, predicted=predicted).happened()
    assert (found["classical"], found["verdict"], found["result"]) == (
        "js_divergence/kept",
        verdict,
        result,
    )
    assert found["ratio"] == pytest.approx(content / js)


def test_mean_replacement_is_no_deletion():
    found = study(
        point("js_divergence/kept", (1, 2, 1)),
        point("content", (2, 4, 2)),
        point("js_divergence/kept", (4, 8, 4), operation="mean"),
        point("content", (1, 2, 1), operation="mean"),
        point("cosine/kept", (3, 6, 3)),
    ).happened()
    assert (found["verdict"], found["ratio"]) == ("classical", pytest.approx(2.0))
    assert found["cells"].less_damage.tolist() == ["js_divergence/kept", "content", "content"]
    assert found["cells"].classical.tolist() == ["js_divergence/kept"] * 2 + ["cosine/kept"]


def test_a_ruinous_content_distance_loses():
    points = (point("js_divergence/kept", (1, 2, 1)), point("content", (None, 2, 1)))
    found = study(*points, predicted=UNSAFE).happened()
    assert (found["verdict"], found["ratio"], found["result"]) == ("classical", math.inf, "miss")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("michel",), "classical pair score"),
        (("content",), "classical pair score"),
        (("cosine/kept",), "content was not"),
    ],
)
def test_nothing_happened_where_one_side_is_missing(names, why):
    found = study(*(point(name, (1, 2, 1)) for name in names), predicted=UNSAFE).happened()
    assert found["result"] == "undecided"
    assert why in found["why"]


# -- the file --------------------------------------------------------------------------------


def full():
    names = (DEFAULT, "michel", "js_divergence/kept", "content")
    grid = list(product(("zero", "mean"), ("model", "layer"), (0.1, 0.2)))
    rng = np.random.default_rng(0)
    points = [
        point(name, rng.random(3) * 5, operation=o, scope=s, sparsity=x)
        for name in names
        for o, s, x in grid
    ]
    points += [
        point("random", rng.random(3) * 5, operation=o, scope=s, sparsity=x, seed=k)
        for o, s, x in grid
        for k in range(5)
    ]
    return study(*points, predicted=UNSAFE)


def test_prune_json_has_the_keys_of_its_schema():
    kept = full().to_json()
    assert kept["schema"] == "sinkwise.prune/1"
    assert {"metric", "value", "low", "high"} <= set(kept["dense"])
    assert {"best", "predicted", "points", "warnings", "card", "seed", "versions"} <= set(kept)
    keys = {"score", "scope", "sparsity", "seed", "operation", "removed", "metric"}
    for entry in kept["points"]:
        assert keys | {"value", "low", "high", "damage", "documents"} <= set(entry)
        assert set(entry["damage"]) == {"value", "low", "high"}
        assert entry["metric"] == "perplexity"
        assert (entry["seed"] is None) == (entry["score"] != "random")
    assert kept["predicted"] == UNSAFE
    assert kept["best"]["score"] in KINDS
    assert {"verdict", "result", "why"} <= set(kept["happened"])


def test_json_round_trip():
    first = full()
    text = json.dumps(first.to_json(), allow_nan=False)
    again = PruneStudy.from_json(json.loads(text))
    assert again == first
    assert json.dumps(again.to_json()) == text
    assert again.points.equals(first.points)


@pytest.mark.parametrize("content", [{}, {"schema": "sinkwise.prune/2"}, []])
def test_another_schema_is_refused(content):
    with pytest.raises(RunError, match=r"this version reads 'sinkwise\.prune/1'"):
        PruneStudy.from_json(content)


@pytest.mark.parametrize("key", ["dense", "points", "scores", "card", "predicted", "level"])
def test_a_damaged_file_is_named(key):
    kept = full().to_json()
    del kept[key]
    with pytest.raises(RunError, match=rf"prune\.json is damaged \(KeyError: '{key}'\)"):
        PruneStudy.from_json(kept)


def test_points_that_cannot_be_used_are_refused():
    good = point("michel", (1, 2, 3))
    with pytest.raises(RowError, match="lacks removed"):
        study({k: v for k, v in good.items() if k != "removed"})
    with pytest.raises(RowError, match="arrived twice"):
        study(good, good)
    with pytest.raises(RowError, match="not among the scores"):
        study(good, scores=[])
    with pytest.raises(RowError, match="same documents"):
        study(good | {"documents": good["documents"][:2]})
    with pytest.raises(RowError, match="dense model's loss is not finite"):
        study(good, dense={"metric": "perplexity", "documents": documents((None, 0, 0))})


def test_a_study_without_points_says_nothing_and_can_be_kept():
    empty = study()
    assert len(empty.points) == len(empty.curves()) == len(empty.random_band()) == 0
    assert empty.best().score is None
    assert empty == PruneStudy.from_json(empty.to_json())


def test_a_cell_without_a_usable_model_has_no_name_beside_cells_that_have_one():
    found = study(
        point("michel", (1, 2, 3)),
        point("michel", (None, 2, 3), scope="layer"),
        point("joint_output", (1, 2, 3), scope="layer"),
        point("joint_output", (None, 2, 3)),
    )
    ruined = replace(found, records=tuple(r for r in found.records if r["score"] == "michel"))
    assert ruined.best().cells.score.tolist() == ["michel", None]
    assert found.against_classical("joint_output").cells.classical.tolist() == ["michel", None]


def test_tables_are_the_readers_own():
    found = study(point("michel", (1, 2, 3)))
    for table in (found.points, found.curves()):
        table["damage"] = 0.0
    assert found.points.damage.iloc[0] == found.curves().damage.iloc[0] == pytest.approx(6 / 40)
