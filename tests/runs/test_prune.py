"""Pruning studies end to end on tiny models: proved, resumed, refused, opened again."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.errors import RowError, RunError  # noqa: E402
from sinkwise.runs.prune import ALWAYS  # noqa: E402
from sinkwise.studies.prune_study import PruneStudy  # noqa: E402
from sinkwise.surgery.evaluation import Evaluation  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
SMALL = {
    "scores": ["joint_output_fisher", "content", "content/geometric_weights"],
    "sparsity": [0.25, 0.5],
    "queries": 8,
}


@pytest.fixture(scope="module")
def model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=3,
        n_head=4,
        n_embd=32,
        vocab_size=30,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
    )
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def texts():
    ids = np.random.default_rng(0).integers(3, 30, size=(7, 14)).tolist()
    return ids[:4], ids[4:]


def test_every_point_is_what_switching_off_gives(model, texts):
    study = sw.prune_study(
        model, None, *texts, **SMALL, scope=["model", "layer"], operation=["zero", "mean"]
    )
    assert set(study.points.score) == {*SMALL["scores"], *ALWAYS}
    random = study.points.query("score == 'random'")
    assert set(random.groupby(["operation", "scope", "sparsity"]).size()) == {5}
    outputs = sw.head_outputs(model, None, texts[0])
    held = Evaluation(model, None, texts[1])
    for row in study.points.iloc[::7].itertuples():
        means = outputs if row.operation == "mean" else None
        with sw.switch_off(model, row.removed, operation=row.operation, means=means):
            results = held.measure()
        loss, tokens = sum(r.loss for r in results), sum(r.tokens for r in results)
        assert row.value == pytest.approx(np.exp(loss / tokens), rel=1e-6)
        dense = sum(r.loss for r in held.dense)
        assert row.damage == pytest.approx((loss - dense) / tokens, abs=1e-7)
        layers = [layer for layer, _ in row.removed]
        assert max(layers.count(layer) for layer in set(layers)) < 4
        if row.scope == "layer":
            assert all(layers.count(layer) == 4 * row.sparsity for layer in range(3))
    assert study.predicted["verdict"]


def test_a_run_is_kept_resumed_and_opened_again(model, texts, tmp_path, monkeypatch):
    out = tmp_path / "run"
    asked = []
    measure = Evaluation.measure

    def counted(self):
        asked.append(1)
        if len(asked) == 9:
            raise KeyboardInterrupt
        return measure(self)

    monkeypatch.setattr(Evaluation, "measure", counted)
    with pytest.raises(KeyboardInterrupt):
        sw.prune_study(model, None, *texts, **SMALL, out=out)
    assert len(list((out / "points").glob("point-*.json"))) == 8
    assert not (out / "prune.json").exists()
    with pytest.raises(RunError, match="resume"):
        sw.prune_study(model, None, *texts, **SMALL, out=out)
    steps = []
    found = sw.prune_study(
        model, None, *texts, **SMALL, out=out, resume=True, progress=lambda *at: steps.append(at)
    )
    assert steps[-1][0] == steps[-1][1]
    kept = json.loads((out / "prune.json").read_text(encoding="utf-8"))
    assert {"dense", "points", "best", "predicted"} <= kept.keys()
    assert PruneStudy.from_json(kept) == found == sw.open_audit(out).pruning
    before = len(asked)
    again = sw.prune_study(model, None, *texts, **SMALL, out=out, resume=True)
    assert len(asked) == before  # nothing is evaluated twice
    assert again.points.equals(found.points)
    whole = sw.prune_study(model, None, *texts, **SMALL)
    assert whole.points.equals(found.points)


def test_sets_that_two_scores_choose_are_run_once(model, texts, monkeypatch):
    asked = []
    measure = Evaluation.measure
    monkeypatch.setattr(Evaluation, "measure", lambda self: (asked.append(1), measure(self))[1])
    study = sw.prune_study(model, None, *texts, **SMALL)
    sets = {json.dumps(sorted(removed)) for removed in study.points.removed}
    assert len(asked) == len(sets) <= len(study.points)


def test_points_of_other_held_out_texts_are_refused(model, texts, tmp_path):
    sw.prune_study(model, None, *texts, **SMALL, out=tmp_path / "run")
    with pytest.raises(RunError, match="can't be compared"):
        sw.prune_study(
            model, None, texts[0], texts[1][:2], **SMALL, out=tmp_path / "run", resume=True
        )


def test_a_narrower_request_keeps_what_the_study_held(model, texts, tmp_path):
    out = tmp_path / "run"
    cells = {"scope": ["model", "layer"], "operation": ["zero", "mean"]}
    first = sw.prune_study(model, None, *texts, **SMALL, **cells, out=out)
    few = SMALL | {"scores": ["michel", "sink_mass/most"], "sparsity": 0.5}
    found = sw.prune_study(model, None, *texts, **few, random_seeds=6, out=out, resume=True)
    assert sw.open_audit(out).pruning == found

    def keyed(study):
        names = ["score", "operation", "scope", "sparsity", "seed"]
        table = study.points.assign(seed=study.points.seed.map(str)).set_index(names)
        return table.damage.to_dict()

    fresh = keyed(sw.prune_study(model, None, *texts, **few, random_seeds=6))
    assert keyed(found) == keyed(first) | fresh
    assert [score["name"] for score in found.scores][:2] == ["michel", "sink_mass/most"]
    assert found.damages.cells[:2] == (("zero", "model", 0.25), ("zero", "model", 0.5))
    assert found.best().cells.score.notna().all()


def test_heads_judged_alone_on_other_tokens_are_refused(model, texts, tmp_path):
    options = SMALL | {"out": tmp_path / "run", "sparsity": 0.25}
    alone = options | {"scores": "leave_one_out"}
    sw.prune_study(model, None, *texts, **alone, leave_one_out_tokens=20)
    with pytest.raises(RunError, match="leave_one_out_tokens=20, now it is 40"):
        sw.prune_study(model, None, *texts, **alone, leave_one_out_tokens=40, resume=True)
    found = sw.prune_study(model, None, *texts, **options, resume=True)
    assert found.card["leave_one_out_tokens"] == 20
    assert "leave_one_out" in set(found.points.score)


@pytest.mark.parametrize("content", ['{"x":', "[]", '{"x": 1}'])
def test_a_damaged_point_is_removed_and_evaluated_anew(model, texts, tmp_path, content):
    out = tmp_path / "run"
    options = SMALL | {"scores": "michel", "sparsity": 0.25, "out": out}
    first = sw.prune_study(model, None, *texts, **options)
    point = next((out / "points").glob("point-*.json"))
    point.write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=r"point-.*damaged: remove this one file .*--resume"):
        sw.prune_study(model, None, *texts, **options, resume=True)
    point.unlink()
    assert sw.prune_study(model, None, *texts, **options, resume=True).points.equals(first.points)


def test_a_study_that_cannot_be_joined_says_what_to_do(model, texts, tmp_path):
    out = tmp_path / "run"
    sw.prune_study(model, None, *texts, **SMALL, out=out)
    (out / "prune.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"prune\.json is damaged.*remove it"):
        sw.prune_study(model, None, *texts, **SMALL, out=out, resume=True)


def test_a_damaged_calibration_says_what_to_remove(model, texts, tmp_path):
    out = tmp_path / "run"
    sw.prune_study(model, None, *texts, **SMALL, out=out)
    (out / "calibration" / "outputs.npz").write_bytes(b"PK broken")
    with pytest.raises(RunError, match=r"outputs\.npz is damaged"):
        sw.prune_study(model, None, *texts, **SMALL, out=out, resume=True)


@pytest.mark.parametrize("name", ["bert", "dinov2"])
def test_encoders_and_vision_models_are_judged_by_their_states(name):
    inputs = tiny_inputs(BY_TYPE[name])
    study = sw.prune_study(
        tiny_model(BY_TYPE[name]), None, inputs[:1], inputs[1:], **SMALL, operation="mean"
    )
    assert study.metric == "cosine"
    assert (study.points.damage > 0).all()


def test_leave_one_out_is_measured_when_it_is_asked_for(model, texts):
    study = sw.prune_study(
        model, None, *texts, scores="leave_one_out", sparsity=0.25, leave_one_out_tokens=20
    )
    alone = sw.surgery.leave_one_out.leave_one_out(model, None, texts[0], tokens=20)
    heads = [(layer, index) for layer in range(3) for index in range(4)]
    first = heads[int(np.argmin(alone))]
    row = study.points.query("score == 'leave_one_out'").iloc[0]
    assert tuple(row.removed[0]) == first


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scores": "joint_outputs"}, "did you mean 'joint_output'"),
        ({"sparsity": 10}, "expected a share between 0 and 1"),
        ({"sparsity": []}, "sparsity is empty"),
        ({"scope": "block"}, "expected 'model' or 'layer'"),
        ({"operation": "halve"}, "expected 'zero' or 'mean'"),
        ({"random_seeds": 3}, "at least 5"),
        ({"sparsity": 0.01}, "removes no head"),
    ],
)
def test_options_that_say_nothing_are_refused(model, texts, changed, said):
    with pytest.raises(RowError, match=said):
        sw.prune_study(model, None, *texts, **{**SMALL, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sparsity": [0.25, 0.99]}, "at most 9 can go"),
        ({"sparsity": [0.25, 0.01], "scope": ["model", "layer"]}, "removes no head"),
        ({"sparsity": [0.5, 0.05], "scope": "layer"}, "scope='layer' removes no head"),
    ],
)
def test_a_share_that_cannot_be_met_is_refused_before_anything_is_measured(
    model, texts, tmp_path, changed, said
):
    out = tmp_path / "run"
    with pytest.raises(RowError, match=said):
        sw.prune_study(model, None, *texts, **{**SMALL, **changed}, out=out, progress=pytest.fail)
    assert not out.exists()


@pytest.mark.parametrize("scope", ["model", "layer"])
@pytest.mark.parametrize("sparsity", [0.1, 0.6])
def test_a_model_of_one_head_a_layer_cannot_lose_any(texts, scope, sparsity):
    from transformers import GPT2Config, GPT2LMHeadModel

    alone = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=1, n_embd=8, vocab_size=30))
    with pytest.raises(RowError, match="each of its 2 layers has one head, and no layer is ever"):
        sw.prune_study(alone, None, *texts, **SMALL | {"sparsity": sparsity, "scope": scope})


def test_held_out_texts_that_chose_the_heads_are_refused(model, texts):
    with pytest.raises(RowError, match="held-out document 1 is calibration document 0"):
        sw.prune_study(model, None, texts[0], [texts[1][0], texts[0][0]], **SMALL)
    with pytest.raises(RowError, match="give calibration texts and held-out texts"):
        sw.prune_study(model, None, texts[0])
