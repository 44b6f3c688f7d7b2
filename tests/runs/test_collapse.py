"""A collapse study of real checkpoints: one set of rows, resumable, refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.errors import CaptureError, RowError, RunError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["<s>", "<unk>", *(f"w{i}" for i in range(30))]
SCALES = {0: 1.0, 200: 3.0, 1000: 6.0}


def tokenizer(words: list[str] = WORDS) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing

    known = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    known.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=known, bos_token="<s>", unk_token="<unk>"
    )


def model(scale: float = 1.0, layers: int = 2) -> Any:
    """A tiny decoder whose logits are `scale` squared times those of another."""
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.q_proj.weight *= scale
            layer.self_attn.k_proj.weight *= scale
    return made.eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    parent = tmp_path_factory.mktemp("training")
    for step, scale in SCALES.items():
        folder = parent / f"checkpoint-{step}"
        model(scale).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
    return parent


@pytest.fixture
def training(saved, tmp_path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(saved, tmp_path / "training"))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(f"w{i}" for i in rng.integers(0, 30, size=n)) for n in (14, 17, 12, 15)]


def numbers(study: sw.CollapseStudy) -> dict[str, Any]:
    """What a study says, without how it was made."""
    found = study.to_json()
    return {key: found[key] for key in ("checkpoints", "changes", "overall", "heads", "extremes")}


def test_rows_are_those_of_an_audit_of_each_checkpoint(saved, texts):
    study = sw.collapse_study(saved, None, texts, queries=6)
    assert study.checkpoints.step.tolist() == [0, 200, 1000]
    for row in study.checkpoints.itertuples():
        loaded = sw.load_model(saved / row.name)
        found = sw.audit(loaded, None, texts, queries=6, sink_sets=())
        weights = found.profile["rows"].to_numpy()
        for name in ("sink_mass", "entropy", "entropy_sink", "content_entropy"):
            mean = np.average(found.profile[name].to_numpy(), weights=weights)
            assert getattr(row, name) == pytest.approx(mean, abs=1e-12), name
    assert study.card()["rows"] == int(weights.sum())


def test_folders_files_and_models_in_memory_say_the_same(saved, texts):
    names = {step: f"checkpoint-{step}" for step in SCALES}
    study = sw.collapse_study(saved, None, texts, queries=6)
    models = {names[step]: model(scale) for step, scale in SCALES.items()}
    assert numbers(sw.collapse_study(models, tokenizer(), texts, queries=6)) == numbers(study)
    paths = {name: saved / name / "model.safetensors" for name in names.values()}
    assert numbers(sw.collapse_study(paths, None, texts, queries=6)) == numbers(study)
    loaded = {name: sw.load_model(saved / name) for name in names.values()}
    assert numbers(sw.collapse_study(loaded, None, texts, queries=6)) == numbers(study)


def test_a_folder_opens_again_without_the_checkpoints(training, texts, tmp_path):
    study = sw.collapse_study(training, None, texts, queries=6, out=tmp_path / "out")
    shutil.rmtree(training)
    again = sw.open_collapse(tmp_path / "out")
    assert again.to_json() == study.to_json()
    assert again.to_json() == json.loads((tmp_path / "out" / "collapse.json").read_text())
    assert again.change("checkpoint-1000", "checkpoint-0").total.value > 0


def test_an_interrupted_study_goes_on_where_it_stopped(saved, texts, tmp_path):
    steps: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        steps.append((done, total))
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sw.collapse_study(saved, None, texts, queries=6, out=tmp_path / "out", progress=stop)
    assert steps[-1] == (6, 12)
    with pytest.raises(RunError, match="not finished"):
        sw.open_collapse(tmp_path / "out")
    with pytest.raises(RunError, match="already holds a run"):
        sw.collapse_study(saved, None, texts, queries=6, out=tmp_path / "out")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("document-*.npz")}
    steps.clear()
    options: dict[str, Any] = {"queries": 6, "out": tmp_path / "out", "resume": True}
    study = sw.collapse_study(saved, None, texts, progress=lambda *s: steps.append(s), **options)
    assert steps[0] == (4, 12)
    assert steps[1] == (6, 12)
    assert steps[-1] == (12, 12)
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert numbers(study) == numbers(sw.collapse_study(saved, None, texts, queries=6))


def test_further_checkpoints_join_a_finished_study(training, texts, tmp_path):
    late = training / "checkpoint-1000"
    late.rename(tmp_path / "later")
    options: dict[str, Any] = {"queries": 6, "out": tmp_path / "out"}
    first = sw.collapse_study(training, None, texts, **options)
    assert first.names == ("checkpoint-0", "checkpoint-200")
    (tmp_path / "later").rename(late)
    loaded: list[Any] = []
    study = sw.collapse_study(
        training, None, texts, **options, resume=True, progress=lambda *s: loaded.append(s)
    )
    assert loaded[:2] == [(4, 12), (8, 12)]  # two checkpoints at once, from what is kept
    assert numbers(study) == numbers(sw.collapse_study(training, None, texts, queries=6))


def test_other_checkpoints_join_those_that_the_study_holds(saved, texts, tmp_path):
    """A narrower request, one checkpoint alone, and one in between: nothing is dropped."""
    whole = numbers(sw.collapse_study(saved, None, texts, queries=6))
    places = [saved / f"checkpoint-{step}" for step in SCALES]
    options: dict[str, Any] = {"queries": 6, "out": tmp_path / "out"}
    sw.collapse_study([places[0], places[2]], None, texts, **options)
    steps: list[tuple[int, int]] = []
    study = sw.collapse_study(
        places[1], None, texts, **options, resume=True, progress=lambda *s: steps.append(s)
    )
    assert steps[-1] == (4, 4)  # what is there already is no work
    assert numbers(study) == whole
    assert [one["name"] for one in study.card()["checkpoints"]] == list(study.names)
    again = sw.collapse_study(places[1:], None, texts, **options, resume=True)
    assert numbers(again) == whole == numbers(sw.open_collapse(tmp_path / "out"))


def test_without_steps_further_checkpoints_come_after_those_that_are_there(texts, tmp_path):
    options: dict[str, Any] = {"queries": 6, "out": tmp_path / "out"}
    models = {name: model(scale) for name, scale in zip("zab", SCALES.values(), strict=True)}
    two = {name: models[name] for name in "za"}
    sw.collapse_study(two, tokenizer(), texts, **options)
    further = {name: models[name] for name in "ba"}
    study = sw.collapse_study(further, tokenizer(), texts, **options, resume=True)
    assert study.names == ("z", "a", "b")
    turned = {name: models[name] for name in "abz"}
    study = sw.collapse_study(turned, tokenizer(), texts, **options, resume=True)
    assert study.names == ("a", "b", "z")


def test_a_single_checkpoint_needs_another_that_was_measured(saved, texts, tmp_path):
    one = saved / "checkpoint-0"
    options: dict[str, Any] = {"queries": 6, "out": tmp_path / "out", "resume": True}
    with pytest.raises(RowError, match="1 checkpoint arrived"):
        sw.collapse_study(one, None, texts, **options)
    sw.collapse_study(saved, None, texts, **options)
    lost = next((tmp_path / "out" / "checkpoints").glob("checkpoint-200-*/document-00001.npz"))
    lost.unlink()
    with pytest.raises(RunError, match=r"checkpoint checkpoint-200, and not all .*name it as well"):
        sw.collapse_study(one, None, texts, **options)


def test_a_damaged_file_is_named_with_what_to_do(saved, texts, tmp_path):
    out = tmp_path / "out"
    sw.collapse_study(saved, None, texts, queries=6, out=out)
    file = sorted(out.glob("checkpoints/*/document-00001.npz"))[0]
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunError, match=r"document-00001\.npz is damaged.*--resume"):
        sw.open_collapse(out)
    file.unlink()
    with pytest.raises(RunError, match=r"lacks document 1 of checkpoint .*--resume"):
        sw.open_collapse(out)
    sw.collapse_study(saved, None, texts, queries=6, out=out, resume=True)
    sw.open_collapse(out)


# -- what doesn't belong together -----------------------------------------------------------------


def test_other_settings_are_refused_by_name(saved, texts, tmp_path):
    sw.collapse_study(saved, None, texts, queries=6, out=tmp_path / "out")
    options: dict[str, Any] = {"out": tmp_path / "out", "resume": True}
    with pytest.raises(RunError, match="begun with queries=6, now it is 7"):
        sw.collapse_study(saved, None, texts, queries=7, **options)
    with pytest.raises(RunError, match="begun with other documents"):
        sw.collapse_study(saved, None, texts[::-1], queries=6, **options)
    with pytest.raises(RunError, match="not empty and holds no collapse study"):
        sw.collapse_study(saved, None, texts, queries=6, out=saved)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"dtype": "float99"}, "float99"), ({"sink": 100}, "sink=100 lies beyond every document")],
)
def test_a_wrong_setting_does_not_block_the_folder_for_the_right_one(
    saved, texts, tmp_path, wrong, message
):
    out, steps = tmp_path / "out", []
    with pytest.raises((RowError, CaptureError), match=message):
        sw.collapse_study(
            saved, None, texts, queries=6, out=out, **wrong, progress=lambda *s: steps.append(s)
        )
    assert steps == []
    study = sw.collapse_study(saved, None, texts, queries=6, out=out)
    assert numbers(study) == numbers(sw.collapse_study(saved, None, texts, queries=6))


def test_a_folder_without_a_kept_document_is_begun_anew(training, texts, tmp_path):
    out = tmp_path / "out"
    weights = (training / "checkpoint-0" / "model.safetensors").read_bytes()
    broken = model()
    with torch.no_grad():
        broken.model.layers[1].self_attn.q_proj.weight.fill_(float("nan"))
    broken.save_pretrained(training / "checkpoint-0")
    with pytest.raises((RowError, CaptureError), match="layer 1"):
        sw.collapse_study(training, None, texts, queries=6, out=out)
    (training / "checkpoint-0" / "model.safetensors").write_bytes(weights)
    study = sw.collapse_study(training, None, texts, queries=7, out=out, resume=True)
    assert len(study.names) == 3
    with pytest.raises(RunError, match="begun with queries=7, now it is 6"):
        sw.collapse_study(training, None, texts, queries=6, out=out, resume=True)


def test_other_weights_under_one_name_are_refused(training, texts, tmp_path):
    sw.collapse_study(training, None, texts, queries=6, out=tmp_path / "out")
    model(2.0).save_pretrained(training / "checkpoint-200")
    with pytest.raises(RunError, match="checkpoint checkpoint-200: the folder holds other weights"):
        sw.collapse_study(training, None, texts, queries=6, out=tmp_path / "out", resume=True)


def test_tokenizers_that_differ_are_refused_and_one_for_all_mends_it(training, texts):
    turned = WORDS[:2] + WORDS[2:][::-1]
    tokenizer(turned).save_pretrained(training / "checkpoint-200")
    with pytest.raises(
        RowError, match=r"checkpoint checkpoint-200: document 0 .*processor=tokenizer.*--tokenizer"
    ):
        sw.collapse_study(training, None, texts, queries=6)
    study = sw.collapse_study(training, tokenizer(), texts, queries=6)
    assert len(study.names) == 3


def test_checkpoints_without_a_tokenizer_need_one(training, texts):
    for step in SCALES:
        for file in (training / f"checkpoint-{step}").glob("tokenizer*"):
            file.unlink()
    with pytest.raises(CaptureError, match="checkpoint checkpoint-0: "):
        sw.collapse_study(training, None, texts, queries=6)
    assert len(sw.collapse_study(training, tokenizer(), texts, queries=6).names) == 3


def test_models_of_other_heads_are_refused(texts):
    with pytest.raises(RowError, match=r"checkpoint b: it has 6 heads in 3 layers.* 4 in 2"):
        sw.collapse_study({"a": model(), "b": model(layers=3)}, tokenizer(), texts)


def test_rows_with_another_sink_are_refused():
    z = np.random.default_rng(0).normal(size=(2, 2, 4, 6))
    named = {name: sw.rows(z, sink=sink, logits=True) for name, sink in (("a", 0), ("b", 1))}
    with pytest.raises(RowError, match="checkpoint b: document 0 has other rows"):
        sw.collapse_study(named)


@pytest.mark.parametrize("documents", [(4, 3), (3, 4)])
def test_rows_of_more_or_fewer_documents_are_refused(documents, tmp_path):
    z = np.random.default_rng(0).normal(size=(4, 2, 4, 6))
    rows = {n: sw.rows(z[:m], sink=0, logits=True) for n, m in zip("ab", documents, strict=True)}
    with pytest.raises(RowError, match=r"checkpoint b: .*other rows than at the checkpoints"):
        sw.collapse_study(rows)
    out = tmp_path / "out"
    sw.collapse_study({name: rows["a"] for name in "ac"}, out=out)
    with pytest.raises(RowError, match=r"checkpoint b: .*other rows than at the checkpoints"):
        sw.collapse_study(rows, out=out, resume=True)


def test_a_checkpoint_whose_logits_are_nan_is_named_and_the_others_are_kept(
    training, texts, tmp_path
):
    broken = model()
    with torch.no_grad():
        broken.model.layers[1].self_attn.q_proj.weight.fill_(float("nan"))
    broken.save_pretrained(training / "checkpoint-1000")
    with pytest.raises((RowError, CaptureError), match=r"checkpoint checkpoint-1000: .*layer 1"):
        sw.collapse_study(training, None, texts, queries=6, out=tmp_path / "out")
    paths = [training / f"checkpoint-{step}" for step in (0, 200)]
    study = sw.collapse_study(paths, None, texts, queries=6, out=tmp_path / "out", resume=True)
    assert len(study.names) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink_at": "checkpoint-0"}, 'belongs to sink="found"'),
        ({"sink": "found", "sink_at": "checkpoint-7"}, "none of the checkpoints"),
        ({"level": 1.5}, "level=1.5"),
        ({"peaked": 0.9, "uniform": 0.2}, "peaked < uniform"),
    ],
)
def test_options_that_say_nothing_are_refused_before_anything_is_loaded(
    saved, texts, options, message, monkeypatch
):
    monkeypatch.setattr("sinkwise.capture.load.load_model", None)
    with pytest.raises(RowError, match=message):
        sw.collapse_study(saved, None, texts, **options)


def test_models_need_texts_and_rows_refuse_them(texts):
    z = np.random.default_rng(0).normal(size=(2, 2, 4, 6))
    rows = {name: sw.rows(z, sink=0, logits=True) for name in ("a", "b")}
    with pytest.raises(RowError, match=r"give a list of texts.*processor=tokenizer"):
        sw.collapse_study({"a": model(), "b": model()}, tokenizer())
    with pytest.raises(RowError, match="rows are complete"):
        sw.collapse_study(rows, None, texts)
    with pytest.raises(RowError, match="rows have their sink already"):
        sw.collapse_study(rows, sink=3)


# -- the sink --------------------------------------------------------------------------------------


def test_a_found_sink_is_found_once_and_held(saved, texts, tmp_path):
    out = tmp_path / "out"
    study = sw.collapse_study(saved, None, texts, queries=6, sink="found", out=out)
    card = study.card()
    assert (card["sink"], card["sink_at"]) == ("found", "checkpoint-1000")
    last = sw.ModelRows(model(SCALES[1000]), tokenizer(), texts, queries=6, sink="found")
    held = {b.document: tuple(np.flatnonzero(b.sink.any(0)).tolist()) for b in last.blocks()}
    for document, positions in held.items():
        assert tuple(study._store.layout(document).sink.tolist()) == positions
    first = sw.ModelRows(model(), tokenizer(), texts, queries=6, sink=held)
    mass = []
    for block in first.blocks():
        weights = np.where(block.support, np.exp(block.log_weights.astype(np.float64)), 0)
        mass.append((weights * block.sink).sum(-1) / weights.sum(-1))
    valid = [b.valid for b in first.blocks()]
    pooled = np.concatenate([m[v] for m, v in zip(mass, valid, strict=True)])
    assert study.checkpoints.sink_mass[0] == pytest.approx(pooled.mean(), abs=1e-7)
    other = sw.collapse_study(saved, None, texts, queries=6, sink="found", sink_at="checkpoint-0")
    assert other.card()["sink_at"] == "checkpoint-0"
    again = sw.collapse_study(saved, None, texts, queries=6, sink="found", out=out, resume=True)
    assert numbers(again) == numbers(study)


def test_several_sink_positions_have_a_channel_within(saved, texts):
    shift = sw.collapse_study(saved, None, texts, queries=6, sink=(0, 2)).overall
    assert shift.within_sink.value != 0
    assert shift.residual < 1e-10


def test_a_held_sink_of_another_document_is_refused(texts):
    with pytest.raises(RowError, match="for document 1 of 18 tokens"):
        list(sw.ModelRows(model(), tokenizer(), texts, sink={0: [0], 1: [99]}).blocks())


# -- revisions of a hub model ----------------------------------------------------------------------


def test_revisions_reach_the_loader(saved, texts, monkeypatch):
    """The loader is given the hub id and each revision; what stands in for the hub is a folder."""
    asked: list[tuple[str, str]] = []
    real = sw.load_model

    def load(name: str, *, revision: str, **options: Any) -> Any:
        asked.append((name, revision))
        return real(saved / revision.replace("step", "checkpoint-"), **options)

    monkeypatch.setattr("sinkwise.capture.load.load_model", load)
    study = sw.collapse_study("owner/model", None, texts, queries=6, revisions=["step0", "step200"])
    assert asked == [("owner/model", "step0"), ("owner/model", "step200")]
    assert study.checkpoints.step.tolist() == [0, 200]


# -- one safetensors file --------------------------------------------------------------------------


def test_a_file_beside_its_config_is_a_model(saved):
    file = saved / "checkpoint-200" / "model.safetensors"
    loaded = sw.load_model(file)
    for name, weight in sw.load_model(file.parent).model.state_dict().items():
        assert torch.equal(weight, loaded.model.state_dict()[name]), name
    assert loaded.path == file
    assert sw.ModelRows(loaded.model, loaded.processor, ["w1 w2 w3"]).card()["model"] == (
        "model.safetensors"
    )


def test_files_that_are_no_whole_model_are_refused(training):
    from safetensors.torch import load_file, save_file

    folder = training / "checkpoint-0"
    weights = load_file(folder / "model.safetensors")
    save_file({f"_orig_mod.{k}": v for k, v in weights.items()}, folder / "raw.safetensors")
    with pytest.raises(CaptureError, match=r"lacks .* weights of LlamaForCausalLM.*_orig_mod"):
        sw.load_model(folder / "raw.safetensors")
    save_file(weights, folder / "model-00001-of-00002.safetensors")
    with pytest.raises(CaptureError, match="one of several shards"):
        sw.load_model(folder / "model-00001-of-00002.safetensors")
    with pytest.raises(CaptureError, match="there is no file"):
        sw.load_model(folder / "gone.safetensors")
    save_file(weights, training / "alone.safetensors")
    with pytest.raises(CaptureError, match=r"no config\.json beside it"):
        sw.load_model(training / "alone.safetensors")


def test_one_checkpoint_is_in_memory_at_a_time(saved, texts, monkeypatch):
    import gc
    import weakref

    alive: list[Any] = []
    most = 0
    real = sw.load_model

    def load(name: Any, **options: Any) -> Any:
        nonlocal most
        gc.collect()
        most = max(most, sum(ref() is not None for ref in alive))
        loaded = real(name, **options)
        alive.append(weakref.ref(loaded.model))
        return loaded

    monkeypatch.setattr("sinkwise.capture.load.load_model", load)
    sw.collapse_study(saved, None, texts, queries=6)
    assert len(alive) == 3
    assert most == 0
