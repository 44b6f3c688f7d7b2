"""Audits of pretrained models from end to end, and figures that any later change must keep.

The figures are those of the bundled chapters and of crops of two photographs.  Other documents give
somewhat others (MiniLM's dispersion 0.16 to 0.18), so bounds are about a quarter either way: wide
enough for another choice of rows, too narrow for a wrong sink, head order or convention.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from own_attention import eager_weights

import sinkwise as sw
from sinkwise.capture.queries import choose_queries


def _audited(source, inputs, out, *, processor=None, **options):
    """An audit written to a folder and read back, as one has it the next day."""
    made = sw.audit(source, processor, inputs, out=out, **options)
    opened = sw.open_audit(out)
    assert opened.profile.equals(made.profile)
    assert opened.distances.equals(made.distances)
    return opened


@pytest.fixture(scope="module")
def smollm2_audit(smollm2, chapters, tmp_path_factory):
    out = tmp_path_factory.mktemp("smollm2") / "run"
    return _audited(smollm2, chapters[:4], out, queries=16, max_length=256)


@pytest.fixture(scope="module")
def minilm_audit(minilm, chapters, tmp_path_factory):
    out = tmp_path_factory.mktemp("minilm") / "run"
    return _audited(minilm, chapters[:8], out, queries=16, max_length=128)


@pytest.fixture(scope="module")
def dinov2_audit(dinov2, pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("dinov2") / "run"
    return _audited(dinov2, pictures[:8], out, queries=16)


# heads, layers, bounds of the mean sink mass, bounds of its standard deviation over heads
FIGURES = [
    ("smollm2", 270, 30, (0.27, 0.45), (0.18, 0.30)),
    ("minilm", 72, 6, (0.20, 0.32), (0.12, 0.22)),
    ("dinov2", 72, 12, (0.07, 0.13), (0.06, 0.11)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads", "layers", "mean", "dispersion"), FIGURES)
def test_sink_mass_and_its_dispersion(request, name, heads, layers, mean, dispersion):
    audit = request.getfixturevalue(f"{name}_audit")
    masses = audit.profile.sink_mass
    assert masses.sizes["head"] == heads
    assert audit.grid("sink_mass").shape == (layers, heads // layers)
    assert mean[0] < float(masses.mean()) < mean[1]
    assert dispersion[0] < float(masses.std()) < dispersion[1]
    assert (audit.profile.sink_mass_low <= masses).all()
    assert (masses <= audit.profile.sink_mass_high).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "minilm", "dinov2"])
def test_every_study_of_a_real_model_is_finite_and_written(request, tmp_path, name):
    audit = request.getfixturevalue(f"{name}_audit")
    summary = audit.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["rows"] == 16 * summary["documents"] and not summary["rows_excluded"]
    for metric in ("content", "content_angle", "aitchison", "cosine", "js_divergence", "euclidean"):
        assert np.isfinite(audit.distances[metric].values).all(), metric
    rates = audit.reversals()["rate"]
    assert rates.between(0, 1).all()
    # among 72 heads whose sinks differ, the convention turns some triples around and not most
    js = audit.reversals().set_index(["first", "second"]).rate
    assert 0 < js["js_divergence/kept", "js_divergence/dropped"] < 0.5
    page = audit.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert summary["model"] in page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "minilm", "dinov2"])
def test_exact_rates_agree_with_the_sampled_protocol(request, name):
    table = request.getfixturevalue(f"{name}_audit").reversals()
    # 50,000 triples: a standard error of at most 0.0022, four of them for 36 rates
    assert (table.rate - table.sampled_rate).abs().max() < 4 * 0.5 / np.sqrt(50_000)
    assert (table.margin_weighted_rate < table.rate).mean() > 0.8  # most flips are near-ties


@pytest.mark.slow
def test_the_sinks_found_are_where_massive_activations_are(request):
    """SmolLM2 has secondary sinks, occurrences of one word; the encoder and the ViT have none."""
    smollm2, minilm, dinov2 = (
        request.getfixturevalue(f"{n}_audit").sinks() for n in ("smollm2", "minilm", "dinov2")
    )
    assert all(0 in found for found in smollm2.documents.found)
    beside = [t for tokens in smollm2.documents.tokens for t in tokens[1:]]
    assert len(beside) >= 3 and set(beside) == {" the"}
    early = smollm2.layers[smollm2.layers.layer.between(4, 9)]
    assert (early.secondary_mass > early.declared_mass / 2).all()
    for evidence in (minilm, dinov2):
        assert evidence.documents.found.tolist() == [(0,)] * 8
    assert not smollm2.warning and not minilm.warning and not dinov2.warning


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bos"), [("smollm2", False), ("minilm", True), ("dinov2", False)])
def test_verdicts_under_other_sink_sets(request, name, bos):
    table = request.getfixturevalue(f"{name}_audit").sink_sets().set_index("sink_set")
    assert ("bos" in table.index) == bos  # [CLS] begins MiniLM's documents; SmolLM2 has no BOS
    assert table.against_declared["first"] == 0
    assert table.sink_mass["first4"] > table.sink_mass["declared"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("smollm2", (0.1, 0.35)), ("minilm", (0.3, 0.55))])
def test_position_explains_some_and_nearest_heads_share_more(request, name, share):
    null = request.getfixturevalue(f"{name}_audit").positional_null()
    assert share[0] < null.share < share[1]
    assert null.nearest.beyond.median() > 0.4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verdict"),
    [("smollm2", "classical unsafe"), ("minilm", "abstain"), ("dinov2", "classical safe")],
)
def test_the_regime_rule_on_three_models(request, name, verdict):
    found = request.getfixturevalue(f"{name}_audit").regime()
    assert found["verdict"] == verdict
    assert found["record"]


@pytest.mark.slow
def test_masses_are_those_of_the_models_own_attention(minilm_audit, minilm, chapters):
    expected = []
    for number, text in enumerate(chapters[:8]):
        inputs = minilm.processor(text, truncation=True, max_length=128, return_tensors="pt")
        queries = choose_queries(128, 16, start=0, seed=0, document=number)
        expected.append(eager_weights(minilm.model, inputs)[:, queries, 0])
    np.testing.assert_allclose(
        minilm_audit.profile.sink_mass, np.concatenate(expected, axis=1).mean(1), atol=1e-5
    )
