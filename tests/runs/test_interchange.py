"""Interchange studies end to end on tiny models: resumed, refused, opened again."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_model  # noqa: E402
from sinkwise.distances.all_pairs import pair_sums  # noqa: E402
from sinkwise.errors import RowError, RunError  # noqa: E402
from sinkwise.studies.exchanged_pairs import closest_pairs  # noqa: E402
from sinkwise.surgery.evaluation import Evaluation  # noqa: E402
from sinkwise.surgery.interchange import exchange_patterns  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
SMALL = {
    "metrics": ["content", "content/geometric_weights"],
    "shares": [0.25, 0.5],
    "scopes": ["model"],
    "modes": ["split"],
    "seeds": 2,
    "single_pairs": 8,
    "queries": 8,
}


def _decoder(seed=0):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = GPT2Config(n_layer=3, n_head=4, n_embd=32, vocab_size=30, initializer_range=0.3)
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def model():
    return _decoder()


@pytest.fixture(scope="module")
def texts():
    ids = np.random.default_rng(0).integers(0, 30, size=(7, 14)).tolist()
    return ids[:4], ids[4:]


@pytest.fixture(scope="module")
def study(model, texts):
    return sw.interchange_study(model, None, *texts, **SMALL)


def test_every_point_is_the_model_with_its_pairs_exchanged(model, texts, study):
    table = study.curves()
    assert table.metric.tolist().count("random") == 4 and len(table) == 8
    evaluation = Evaluation(model, None, texts[1])
    for point in study.points[:3]:
        lent = {study.heads[b]: study.heads[d] for b, d in point.pairs}
        with exchange_patterns(model, lent, mode=point.mode):
            expected = [result.record() for result in evaluation.measure()]
        assert [d["loss"] for d in point.documents] == pytest.approx(
            [d["loss"] for d in expected], rel=1e-6
        )
    assert study.dense == [result.record() for result in evaluation.dense]
    assert study.measure == "perplexity"
    assert study.card["evaluation"]["documents"] == 3
    assert study.card["calibration"]["documents"] == 4


def test_a_split_leaves_the_declared_sink_to_the_borrower(model, texts):
    options = SMALL | {"metrics": ["content"], "shares": [0.5], "seeds": 0, "single_pairs": 0}
    study = sw.interchange_study(model, None, *texts, **options, sink=(0, 2))
    (point,) = study.points
    lent = {study.heads[b]: study.heads[d] for b, d in point.pairs}
    evaluation = Evaluation(model, None, texts[1])
    losses = {}
    for sink in ((0, 2), "first"):
        with exchange_patterns(model, lent, mode="split", sink=sink):
            losses[sink] = [result.loss for result in evaluation.measure()]
    found = [document["loss"] for document in point.documents]
    assert found == pytest.approx(losses[0, 2], rel=1e-6)
    assert found != pytest.approx(losses["first"], rel=1e-4)


def test_pairs_are_the_closest_on_the_calibration_texts_alone(model, texts, study):
    rows = sw.ModelRows(model, None, texts[0], queries=8)
    sums = None
    for block in rows.blocks():
        more = pair_sums(block, metrics=("content", "content/geometric_weights"))
        sums = more if sums is None else sums.merge(more)
    for name in ("content", "content/geometric_weights"):
        from scipy.spatial.distance import squareform

        distances = squareform(sums.mean(name))
        point = next(p for p in study.points if p.metric == name and p.share == 0.25)
        assert point.pairs == closest_pairs(distances, study.heads, 0.25, "model")


def test_single_pairs_are_held_against_every_distance(study):
    table = study.single_pairs()
    assert len(table) == 8
    for name in ("content", "aitchison", "js_divergence/kept", "content/floor=0.001"):
        assert name in table.columns
    assert set(study.correlations().metric) >= {"content", "content/geometric_weights"}
    assert {"average", "k-medoids"} == set(study.clusters().method)


def test_a_run_that_stops_goes_on_where_it_was(model, texts, study, tmp_path, monkeypatch):
    out = tmp_path / "run"
    measured = []
    measure = Evaluation.measure

    def stops(self):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(1)
        return measure(self)

    monkeypatch.setattr(Evaluation, "measure", stops)
    with pytest.raises(KeyboardInterrupt):
        sw.interchange_study(model, None, *texts, **SMALL, out=out)
    assert not (out / "interchange.json").exists()
    monkeypatch.setattr(Evaluation, "measure", lambda self: measured.append(1) or measure(self))
    steps = []
    found = sw.interchange_study(
        model, None, *texts, **SMALL, out=out, resume=True, progress=lambda *s: steps.append(s)
    )
    assert len(measured) == 8 + 8  # every point and pair once, over both runs
    assert steps[-1] == (4 + 16, 4 + 16) and [d for d, _ in steps] == sorted(d for d, _ in steps)
    for name in ("curves", "single_pairs"):
        expected, got = getattr(study, name)(), getattr(found, name)()
        for column in expected.columns:
            if expected[column].dtype.kind == "f":
                np.testing.assert_allclose(got[column], expected[column], rtol=1e-6, atol=1e-9)
            else:
                assert got[column].tolist() == expected[column].tolist()
    content = json.loads((out / "interchange.json").read_text())
    assert content["schema"] == "sinkwise.interchange/1"
    assert sw.open_interchange(out).to_json() == found.to_json()
    assert sw.open_audit(out).interchange.to_json() == found.to_json()


def test_a_narrower_request_keeps_what_the_study_held(model, texts, tmp_path, monkeypatch):
    out = tmp_path / "run"
    wide = SMALL | {"modes": ["whole", "split"], "seeds": 3}
    first = sw.interchange_study(model, None, *texts, **wide, out=out)
    few = SMALL | {"metrics": ["cosine/kept"], "shares": [0.4]}
    asked = []
    measure = Evaluation.measure
    monkeypatch.setattr(Evaluation, "measure", lambda self: asked.append(1) or measure(self))
    found = sw.interchange_study(model, None, *texts, **few, out=out, resume=True)
    assert len(asked) == 3  # one distance and two seeds; the single pairs are those that are there
    assert sw.open_interchange(out).to_json() == found.to_json()

    def keyed(study):
        names = ["metric", "mode", "scope", "share", "seed"]
        table = study.curves()
        return table.assign(seed=table.seed.map(str)).set_index(names).damage.to_dict()

    assert keyed(found) == keyed(first) | keyed(sw.interchange_study(model, None, *texts, **few))
    order = list(dict.fromkeys(found.curves().metric))
    assert order == ["cosine/kept", "content", "content/geometric_weights", "random"]
    assert found.single_pairs().damage.sort_values().tolist() == pytest.approx(
        first.single_pairs().damage.sort_values().tolist()
    )
    more = few | {"single_pairs": 0, "seeds": 0, "shares": [0.3]}
    last = sw.interchange_study(model, None, *texts, **more, out=out, resume=True)
    assert last.single_pairs().equals(found.single_pairs())
    assert len(last.points) == len(found.points) + 1


def test_further_single_pairs_join_those_that_are_there(model, texts, tmp_path):
    out = tmp_path / "run"
    first = sw.interchange_study(model, None, *texts, **SMALL, out=out)
    more = SMALL | {"metrics": ["cosine/kept"], "single_pairs": 16, "modes": ["whole"]}
    found = sw.interchange_study(model, None, *texts, **more, out=out, resume=True)
    assert set(found.singles.pairs) > set(first.singles.pairs)
    assert set(found.singles.distances) >= {"cosine/kept", *first.singles.distances}
    assert found.singles.pairs == tuple(sorted(found.singles.pairs, key=lambda pair: pair[0]))
    assert {mode: len(rows) for mode, rows in found.singles.documents.items()} == dict.fromkeys(
        ("whole", "split"), len(found.singles.pairs)
    )
    found.correlations(), found.clusters(), found.to_json()


def test_a_folder_of_other_held_out_texts_is_refused(model, texts, tmp_path):
    out = tmp_path / "run"
    few = SMALL | {"metrics": ["content"], "shares": [0.25], "seeds": 0, "single_pairs": 0}
    sw.interchange_study(model, None, *texts, **few, out=out)
    with pytest.raises(RunError, match="resume"):
        sw.interchange_study(model, None, *texts, **few, out=out)
    with pytest.raises(RunError, match="on other held-out documents"):
        sw.interchange_study(model, None, texts[0], texts[1][::-1], **few, out=out, resume=True)


def test_an_audit_alone_has_no_study_beside_it(model, texts, tmp_path):
    audit = sw.audit(model, None, texts[0], out=tmp_path / "run")
    assert audit.interchange is None
    with pytest.raises(RunError, match=r"holds no interchange\.json"):
        sw.open_interchange(tmp_path / "run")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"metrics": ["contents"]}, "no distance is called 'contents'"),
        ({"metrics": ["random"]}, "always there"),
        ({"modes": ["half"]}, "expected some of whole, split"),
        ({"scopes": []}, "expected some of model, layer"),
        ({"shares": [1.5]}, "expected shares such as"),
        ({"seeds": -1}, "at least 0"),
        ({"sink": "found"}, "name positions"),
        ({"documents": 0}, "at least 1"),
    ],
)
def test_options_that_say_nothing_are_refused_before_any_work(model, texts, changed, words):
    with pytest.raises(RowError, match=words):
        sw.interchange_study(model, None, *texts, **(SMALL | changed), progress=pytest.fail)


def test_held_out_texts_that_chose_the_pairs_are_refused(model, texts):
    with pytest.raises(RowError, match="held-out document 1 is calibration document 2"):
        sw.interchange_study(model, None, texts[0], [texts[1][0], texts[0][2]], **SMALL)
    with pytest.raises(RowError, match="give calibration texts and held-out ones"):
        sw.interchange_study(model, None, texts[0], **SMALL)


def test_a_found_sink_serves_whole_rows(model, texts):
    options = SMALL | {"sink": "found", "modes": ["whole"], "seeds": 0, "single_pairs": 0}
    assert len(sw.interchange_study(model, None, *texts, **options).points) == 4


@pytest.mark.parametrize("model_type", ["bert", "dinov2"])
def test_encoders_and_vision_models_are_judged_by_their_states(model_type):
    family = BY_TYPE[model_type]
    rng = np.random.default_rng(1)
    if family.vision:
        inputs = [rng.normal(size=(3, 16, 16)).astype(np.float32) for _ in range(5)]
    else:
        inputs = rng.integers(3, 64, size=(5, 12)).tolist()
    options = SMALL | {"single_pairs": 0, "metrics": ["content"]}
    study = sw.interchange_study(tiny_model(family), None, inputs[:3], inputs[3:], **options)
    table = study.curves()
    assert study.measure == "cosine"
    assert (table.damage > 0).all() and (table.value == table.damage).all()
