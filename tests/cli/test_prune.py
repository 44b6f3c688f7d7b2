"""``sinkwise prune``: what reaches the library, what is shown, every exit code."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from sinkwise.errors import CaptureError
from sinkwise.studies.prune_study import PruneStudy


def _study():
    def records(rise):
        return [{"loss": (3 + rise) * n, "tokens": n} for n in (10, 20, 30)]

    names = {"fisher_matrix": "joint", "content": "pairs", "random": "random"}
    points = [
        {
            "score": name,
            "scope": "model",
            "sparsity": share,
            "seed": seed,
            "operation": "zero",
            "removed": [[0, 1]],
            "documents": records(share * worse),
        }
        for share in (0.1, 0.2)
        for name, seed, worse in (
            ("fisher_matrix", None, 1),
            ("content", None, 9),
            *(("random", seed, 3 + seed) for seed in range(5)),
        )
    ]
    scores = [
        {"name": name, "title": name, "kind": kind, "classical": False, "parameters": {}}
        for name, kind in names.items()
    ]
    return PruneStudy.from_points(
        dense={"metric": "perplexity", "documents": records(0)},
        points=points,
        scores=scores,
        card={},
        predicted=None,
        seed=0,
        versions={},
    )


@pytest.fixture
def studied(calls, monkeypatch):
    """What the study was called with; it may be told to raise."""
    record = types.SimpleNamespace(texts=None, held_out=None, options={}, raises=None)

    def prune_study(model, processor, texts, eval_texts, **options):
        record.texts, record.held_out, record.options = texts, eval_texts, options
        out = Path(options["out"])
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").write_text("{}", encoding="utf-8")
        options["progress"](3, 9)
        if record.raises is not None:
            raise record.raises
        return _study()

    module = types.ModuleType("sinkwise.runs.prune")
    module.__dict__.update(prune_study=prune_study)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return record


@pytest.fixture
def held_out(tmp_path):
    path = tmp_path / "heldout.txt"
    path.write_text("Held out.\n\nThis too.\n", encoding="utf-8")
    return path


def test_lists_and_flags_reach_the_study(studied, sinkwise, texts, held_out, tmp_path):
    result = sinkwise(
        *("prune", "gpt2", "--texts", texts, "--eval", held_out, "--out", tmp_path / "run"),
        *("--score", "content,joint_output", "--sparsity", "0.1,0.25", "--scope", "model,layer"),
        *("--operation", "mean", "--max-length", "64", "--seed", "3"),
    )
    assert result.exit_code == 0, result.stderr
    assert studied.held_out == ["Held out.", "This too."]
    options = studied.options
    assert options["scores"] == ("content", "joint_output")
    assert options["sparsity"] == (0.1, 0.25)
    assert options["scope"] == ("model", "layer")
    assert options["operation"] == ("mean",)
    assert (options["max_length"], options["seed"], options["resume"]) == (64, 3, False)
    assert "fisher_matrix" in result.stdout
    assert "prune.json" in result.stdout


def test_scores_that_are_not_asked_for_are_the_library_s_own(
    studied, sinkwise, texts, held_out, tmp_path
):
    line = ("prune", "gpt2", "--texts", texts, "--eval", held_out, "--out", tmp_path / "run")
    assert sinkwise(*line).exit_code == 0
    assert "scores" not in studied.options
    assert sinkwise(*line[:-1], tmp_path / "other", "--score", "").exit_code == 2


def test_json_alone_on_stdout(studied, sinkwise, texts, held_out, tmp_path):
    result = sinkwise(
        *("prune", "gpt2", "--texts", texts, "--eval", held_out, "--out", tmp_path / "run"),
        "--json",
    )
    assert json.loads(result.stdout)["schema"] == "sinkwise.prune/1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prune", "gpt2"], "--texts FILE"),
        (["prune", "gpt2", "--texts", "a.txt"], "--eval FILE"),
        (["prune", "gpt2", "--texts", "a.txt", "--eval", "b.txt"], "--out DIR"),
        (["prune", "demo", "--scope", "block"], "--scope"),
        (["prune", "demo", "--operation", "halve"], "--operation"),
        (["prune", "demo", "--sparsity", "many"], "--sparsity"),
        (["prune", "demo", "--random-seeds", "2"], "--random-seeds"),
    ],
)
def test_usage_errors(studied, calls, sinkwise, words, said):
    result = sinkwise(*words)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert calls.load == {}


def test_an_unknown_score_is_said_before_the_model_is_loaded(
    studied, calls, sinkwise, texts, held_out, tmp_path
):
    result = sinkwise(
        *("prune", "gpt2", "--texts", texts, "--eval", held_out, "--out", tmp_path / "run"),
        *("--score", "joint_outputs"),
    )
    assert result.exit_code == 1
    assert "did you mean 'joint_output'" in result.stderr
    assert calls.load == {}


def test_an_error_of_the_work_and_an_interruption(studied, sinkwise, texts, held_out, tmp_path):
    words = ("prune", "gpt2", "--texts", texts, "--eval", held_out, "--out", tmp_path / "run")
    studied.raises = CaptureError("no head was found")
    result = sinkwise(*words)
    assert (result.exit_code, "sinkwise: no head was found" in result.stderr) == (1, True)
    studied.raises = KeyboardInterrupt()
    result = sinkwise(*words, "--resume")
    assert result.exit_code == 130
    assert "3 of 9 steps are done" in result.stderr
    assert "--resume" in result.stderr
