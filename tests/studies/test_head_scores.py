"""What every score must do, whoever adds it; and that the registry is whole."""

from __future__ import annotations

import importlib
import json
import pickle
import pkgutil
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.accumulate.head_outputs import GateGradients, HeadOutputs
from sinkwise.distances.all_pairs import count_of
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies import head_scores
from sinkwise.studies.head_scores import (
    DEFAULT,
    SCORES,
    Evidence,
    budget,
    distances_of,
    registry,
    removed_heads,
    score_named,
)

LAYERS = (4, 1, 5, 5, 2, 4)  # heads of each layer: uneven, one with a single head
HEADS = tuple(HeadId(layer, index) for layer, n in enumerate(LAYERS) for index in range(n))
H = len(HEADS)
EXCHANGED = (5, 1, 3, 2, 4, 0)  # layers of one size change places
LAYER = np.array([head.layer for head in HEADS])

VARIANTS = (
    "content/floor=0.02",
    "content:goes=earlier",
    "js_divergence/kept:goes=weaker",
    "content/floor=0.02:goes=weaker",
)
NAMES = (*SCORES, *VARIANTS)
BY_ORDER = {n for n in NAMES if score_named(n).parameters.get("goes") in ("later", "earlier")}
BY_DEPTH = {"sink_mass/most_deep", "sink_mass/least_deep"} | BY_ORDER


def _outer_products(rng, same_layer=False):
    vectors = rng.normal(size=(H, 8)) * rng.uniform(0.1, 2, size=(H, 1))
    gram = vectors @ vectors.T
    return np.where(LAYER[:, None] == LAYER, gram, 0.0) if same_layer else gram


def evidence(seed=0, names=NAMES):
    """Random measurements of the heads, none of them alike."""
    rng = np.random.default_rng(seed)
    gradients = {
        label: GateGradients(
            _outer_products(rng), _outer_products(rng), rng.uniform(0.1, 1, size=H)
        )
        for label in ("true", "sampled")
    }
    gram = _outer_products(rng, same_layer=True)
    outputs = HeadOutputs(
        heads=HEADS,
        gram=gram,
        constant_gram=gram / 3,
        relative_norm=rng.uniform(0.01, 0.1, size=H),
        norm=rng.uniform(1, 9, size=H),
        mean_output=rng.normal(size=(H, 2)),
        gradients=gradients,
        leave_one_out=rng.normal(size=H),
    )
    distances = {}
    for name in distances_of(score_named(n) for n in names):
        half = np.triu(rng.uniform(0.1, 1, size=(H, H)), 1)
        distances[name] = half + half.T
    profile = {name: rng.uniform(size=H) for name in ("sink_mass", "content_dispersion")}
    return Evidence(HEADS, outputs, profile, distances)


EVIDENCE = evidence()


def _chosen(name, found=EVIDENCE, sparsity=0.4, scope="model"):
    return removed_heads(score_named(name), found, sparsity, scope, seed=7)


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.25, 0.5, 0.68])
@pytest.mark.parametrize("scope", ["model", "layer"])
@pytest.mark.parametrize("name", NAMES)
def test_the_right_number_goes_and_no_layer_is_emptied(name, scope, sparsity):
    removed = _chosen(name, sparsity=sparsity, scope=scope)
    assert len(set(removed)) == len(removed)
    assert set(removed) <= set(HEADS)
    gone = [sum(head.layer == layer for head in removed) for layer in range(len(LAYERS))]
    assert all(g < n for g, n in zip(gone, LAYERS, strict=True))
    if scope == "model":
        assert len(removed) == round(sparsity * H)
    else:
        assert gone == [min(round(sparsity * n), n - 1) for n in LAYERS]


@pytest.mark.parametrize("name", NAMES)
def test_deterministic_and_growing(name):
    few, many = _chosen(name, sparsity=0.2), _chosen(name, sparsity=0.5)
    assert few == _chosen(name, sparsity=0.2)
    assert few == many[: len(few)]


def _permuted(found, order):
    """The same heads, numbered in another order within the model."""
    square = np.ix_(order, order)
    outputs = found.outputs
    return Evidence(
        HEADS,
        replace(
            outputs,
            gram=outputs.gram[square],
            constant_gram=outputs.constant_gram[square],
            relative_norm=outputs.relative_norm[order],
            norm=outputs.norm[order],
            mean_output=outputs.mean_output[order],
            gradients={
                label: GateGradients(
                    g.token_fisher[square], g.document_fisher[square], g.importance[order]
                )
                for label, g in outputs.gradients.items()
            },
            leave_one_out=outputs.leave_one_out[order],
        ),
        {name: values[order] for name, values in found.profile.items()},
        {name: values[square] for name, values in found.distances.items()},
    )


@pytest.mark.parametrize("scope", ["model", "layer"])
@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_ORDER - {"random"}))
def test_the_order_of_heads_within_layers_means_nothing(name, scope):
    rng = np.random.default_rng(3)
    order = np.concatenate([rng.permutation(np.flatnonzero(x == LAYER)) for x in np.unique(LAYER)])
    removed = _chosen(name, scope=scope)
    moved = _chosen(name, _permuted(EVIDENCE, order), scope=scope)
    assert [order[HEADS.index(head)] for head in moved] == [HEADS.index(head) for head in removed]


@pytest.mark.parametrize("name", sorted(set(NAMES) - BY_DEPTH - {"random"}))
def test_the_depth_of_a_layer_means_nothing_unless_its_name_says_so(name):
    swapped = np.concatenate([np.flatnonzero(x == LAYER) for x in EXCHANGED])
    removed = _chosen(name)
    moved = _chosen(name, _permuted(EVIDENCE, swapped))
    assert [swapped[HEADS.index(head)] for head in moved] == [HEADS.index(h) for h in removed]


@pytest.mark.parametrize("name", sorted(BY_DEPTH))
def test_and_where_its_name_says_so_it_does(name):
    swapped = np.concatenate([np.flatnonzero(x == LAYER) for x in EXCHANGED])
    moved = _chosen(name, _permuted(EVIDENCE, swapped))
    assert {int(swapped[HEADS.index(h)]) for h in moved} != {HEADS.index(h) for h in _chosen(name)}


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", NAMES)
def test_units_mean_nothing(name, scale):
    outputs = EVIDENCE.outputs
    scaled = Evidence(
        HEADS,
        replace(
            outputs,
            gram=outputs.gram * scale,
            constant_gram=outputs.constant_gram * scale,
            relative_norm=outputs.relative_norm * scale,
            norm=outputs.norm * scale,
            gradients={
                label: GateGradients(
                    g.token_fisher * scale, g.document_fisher * scale**0.5, g.importance * scale
                )
                for label, g in outputs.gradients.items()
            },
            leave_one_out=outputs.leave_one_out * scale,
        ),
        {"sink_mass": EVIDENCE.profile["sink_mass"] * 0.5}  # masses stay masses
        | {"content_dispersion": EVIDENCE.profile["content_dispersion"] * scale},
        {key: values * scale for key, values in EVIDENCE.distances.items()},
    )
    assert _chosen(name, scaled) == _chosen(name)


def _with_only(needs):
    """Evidence that lacks whatever a score doesn't say it needs."""
    nothing, one = np.full((H, H), np.nan), np.full(H, np.nan)
    outputs = EVIDENCE.outputs
    if "outputs" not in needs:
        outputs = replace(outputs, gram=nothing, constant_gram=nothing, relative_norm=one, norm=one)
    if "gradients" not in needs:
        outputs = replace(outputs, gradients={})
    if "leave_one_out" not in needs:
        outputs = replace(outputs, leave_one_out=None)
    rows = "rows" in needs
    return Evidence(
        HEADS, outputs, EVIDENCE.profile if rows else {}, EVIDENCE.distances if rows else {}
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_score_needs_what_it_says_and_no_more(name):
    needs = score_named(name).needs
    assert _chosen(name, _with_only(needs)) == _chosen(name)
    for need in needs:
        with pytest.raises(RowError):
            _chosen(name, _with_only(needs - {need}))


@pytest.mark.parametrize("name", NAMES)
def test_a_score_can_be_recorded_and_sent_to_another_process(name):
    score = score_named(name)
    assert score.name == name
    assert score.title
    assert json.loads(json.dumps(dict(score.parameters))) == dict(score.parameters)
    if score.kind != "random":
        assert "rescored" in score.parameters
    copy = pickle.loads(pickle.dumps(score))
    assert removed_heads(copy, EVIDENCE, 0.4, "model", 7) == _chosen(name)


def test_every_module_with_scores_is_in_the_registry():
    modules = [
        importlib.import_module(f"{head_scores.__name__}.{found.name}")
        for found in pkgutil.iter_modules(head_scores.__path__)
    ]
    families = {m.__name__ for m in modules if hasattr(m, "SCORES") and m is not registry}
    assert families == {m.__name__ for m in registry.FAMILIES}
    assert len(SCORES) == sum(len(m.SCORES) for m in registry.FAMILIES)
    assert DEFAULT in SCORES


def test_every_distance_that_a_pair_score_goes_by_can_be_measured():
    for name in distances_of(SCORES.values()):
        assert count_of(name)


def test_a_name_that_is_no_score_is_told_what_there_is():
    with pytest.raises(RowError, match=r"did you mean 'joint_output'.*fisher_matrix"):
        score_named("joint_outputs")
    with pytest.raises(RowError, match="cosine/dropped"):
        score_named("cosine/zeroed")
    with pytest.raises(RowError, match="goes=weaker"):
        score_named("content:goes=deeper")
    for floor in ("0", "1", "x", "0.0010", "nan"):
        with pytest.raises(RowError, match=r"content/floor=0\.01"):
            score_named(f"content/floor={floor}")
    with pytest.raises(RowError, match="no score"):
        score_named("michel:goes=weaker")


def test_a_random_score_needs_its_seed_and_another_seed_is_another_set():
    with pytest.raises(RowError, match="seed=0"):
        removed_heads(SCORES["random"], EVIDENCE, 0.3, "model")
    sets = {removed_heads(SCORES["random"], EVIDENCE, 0.3, "model", seed) for seed in range(5)}
    assert len(sets) == 5


@pytest.mark.parametrize(
    ("sparsity", "scope", "says"),
    [(1.0, "model", "below 1"), (-0.1, "layer", "below 1"), (np.nan, "model", "share"),
     (10, "model", "0.1 for 10 %"), (0.1, "heads", "model, layer"), (0.8, "model", "0.71 or less")],
)  # fmt: skip
def test_a_budget_that_can_not_be_is_refused(sparsity, scope, says):
    with pytest.raises(RowError, match=says):
        budget(HEADS, sparsity, scope)


def test_evidence_of_another_model_is_refused():
    outputs = replace(EVIDENCE.outputs, heads=HEADS[::-1])
    with pytest.raises(RowError, match="calibrate and audit the same model"):
        Evidence(HEADS, outputs)
    with pytest.raises(RowError, match=r"'sink_mass' has shape \(3,\)"):
        Evidence(HEADS, EVIDENCE.outputs, {"sink_mass": np.zeros(3)})
    with pytest.raises(RowError, match=r"'content' has shape"):
        Evidence(HEADS, EVIDENCE.outputs, {}, {"content": np.zeros((H, 2))})


def test_the_evidence_of_an_audit():
    weights = np.random.default_rng(0).dirichlet(np.ones(6), size=(2, 3, 4, 6))
    found = sw.audit(sw.rows(list(weights.transpose(1, 0, 2, 3, 4)[:, :, :]), sink=0))
    n = len(found.heads)
    outputs = HeadOutputs(
        found.heads, np.eye(n), np.eye(n), np.ones(n), np.ones(n), np.zeros((n, 1))
    )
    more = {"aitchison_angle": np.ones((n, n))}
    evidence = Evidence.of_audit(found, outputs, more)
    np.testing.assert_array_equal(evidence.of_profile("sink_mass"), found.profile.sink_mass)
    kept = found.distances.js_divergence.sel(convention="kept")
    np.testing.assert_array_equal(evidence.distance("js_divergence/kept"), kept)
    np.testing.assert_array_equal(evidence.distance("content"), found.distances.content)
    assert evidence.distance("aitchison_angle").sum() == n * n
    with pytest.raises(RowError, match="js_divergence/kept"):
        evidence.distance("js_divergence")


def test_the_documented_table_is_the_registry():
    page = Path(__file__).parents[2] / "docs" / "studies" / "head-scores.md"
    found = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names, _, needs, classical, _ = (c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1])
            row = (frozenset(needs.split(", ")) - {""}, classical == "c")
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), row)
    assert found == {name: (score.needs, score.classical) for name, score in SCORES.items()}
