"""``sinkwise collapse``: what reaches the library, what is shown, every exit code."""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.errors import CaptureError


def _study() -> sw.CollapseStudy:
    z = np.random.default_rng(0).normal(size=(4, 2, 5, 6))
    grown = z + 3 * (np.arange(6) == 0)
    named = {"step0": z, "step50": z, "step100": grown}
    return sw.collapse_study({n: sw.rows(x, sink=0, logits=True) for n, x in named.items()})


@pytest.fixture(scope="module")
def found() -> sw.CollapseStudy:
    return _study()


@pytest.fixture
def studied(calls, monkeypatch, found):
    """What the study was called with; it may be told to raise."""
    record = types.SimpleNamespace(given=None, options={}, raises=None, tokenizer=None)

    def collapse_study(checkpoints, processor, texts, **options):
        record.given, record.options = (checkpoints, processor, texts), options
        out = Path(options["out"])
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").write_text("{}", encoding="utf-8")
        options["progress"](3, 9)
        if record.raises is not None:
            raise record.raises
        return found

    def load_processor(name, kind, **options):
        record.tokenizer = (name, kind, options)
        return "tokenizer"

    module = types.ModuleType("sinkwise.runs.collapse")
    module.__dict__.update(collapse_study=collapse_study, open_collapse=lambda folder: found)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(
        sys.modules["sinkwise.capture.load"], "load_processor", load_processor, raising=False
    )
    return record


def test_the_defaults_are_those_of_the_library():
    from sinkwise.cli.collapse import collapse_command
    from sinkwise.runs.collapse import collapse_study

    command = inspect.signature(collapse_command).parameters
    library = inspect.signature(collapse_study).parameters
    assert int(command["queries"].default) == library["queries"].default
    for name in ("sink", "sink_at", "peaked", "uniform", "level", "seed", "dtype", "device"):
        assert command[name].default == library[name].default, name


def test_flags_reach_the_library(studied, sinkwise, texts):
    words = ["collapse", "owner/model", "--texts", texts, "--out", "runs/c", "--documents", "2"]
    words += ["--revisions", "step0,step100", "--tokenizer", "owner/other", "--sink", "found"]
    words += ["--sink-at", "step0", "--queries", "all", "--max-length", "64", "--seed", "3"]
    words += ["--dtype", "bfloat16", "--peaked", "0.2", "--uniform", "0.9", "--level", "0.9"]
    words += ["--batch-size", "2", "--trust-remote-code", "--quiet"]
    done = sinkwise(*words)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    checkpoints, processor, documents = studied.given
    assert checkpoints == ["owner/model"]
    assert processor == "tokenizer"
    assert studied.tokenizer == ("owner/other", "decoder", {"trust_remote_code": True})
    assert documents == ["One document,\ntwo lines.", "Another."]
    options = {k: v for k, v in studied.options.items() if k != "progress"}
    assert options == {
        "revisions": ("step0", "step100"),
        "sink": "found",
        "sink_at": "step0",
        "queries": "all",
        "max_length": 64,
        "documents": 2,
        "seed": 3,
        "batch_size": 2,
        "dtype": "bfloat16",
        "device": "cpu",
        "trust_remote_code": True,
        "level": 0.9,
        "peaked": 0.2,
        "uniform": 0.9,
        "out": Path("runs/c"),
        "resume": False,
    }


def test_several_checkpoints_keep_their_order(studied, sinkwise, texts):
    done = sinkwise("collapse", "b", "a", "c", "--texts", texts, "--out", "runs/c", "--quiet")
    assert done.exit_code == 0, done.output
    assert studied.given[0] == ["b", "a", "c"]
    assert studied.given[1] is None


def test_the_summary_has_a_row_a_change_and_the_verdict_in_words(studied, sinkwise, texts, found):
    done = sinkwise("collapse", "a", "b", "--texts", texts, "--out", "runs/c")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith("step")]
    assert [row[:2] for row in rows[:3]] == [
        ["step0", "step50"],
        ["step50", "step100"],
        ["step0", "step100"],
    ]
    assert "withheld" in rows[0]
    assert "neither" in rows[0]
    assert "sink grew" in lines[4]
    assert found.overall.words in done.stdout
    assert (Path("runs/c") / "report.html").is_file()


def test_one_document_has_values_without_intervals(found):
    from sinkwise.cli.collapse import _row

    z = np.random.default_rng(0).normal(size=(1, 2, 5, 6))
    named = {"a": z, "b": z + 3 * (np.arange(6) == 0)}
    study = sw.collapse_study({n: sw.rows(x, sink=0, logits=True) for n, x in named.items()})
    row = _row(study.overall)
    assert row[2] == f"{study.overall.total.value:+.3f}"
    assert "nan" not in " ".join(row)
    low = found.overall.total.low
    assert f"[{low:+.3f}, " in _row(found.overall)[2]


def test_json_is_all_of_stdout(studied, sinkwise, texts, found):
    done = sinkwise("collapse", "a", "b", "--texts", texts, "--out", "runs/c", "--json")
    assert json.loads(done.stdout) == found.to_json()
    assert done.stderr == ""


def test_an_error_of_the_work_is_exit_1(studied, sinkwise, texts):
    studied.raises = CaptureError("checkpoint b: no such model")
    done = sinkwise("collapse", "a", "b", "--texts", texts, "--out", "runs/c")
    assert done.exit_code == 1
    assert "sinkwise: checkpoint b: no such model" in done.stderr


def test_an_interruption_says_how_to_go_on(studied, sinkwise, texts):
    studied.raises = KeyboardInterrupt()
    done = sinkwise("collapse", "a", "my b", "--texts", texts, "--out", "runs/c")
    assert done.exit_code == 130
    assert "3 of 9 documents are done" in done.stderr
    assert f"sinkwise collapse a 'my b' --texts {texts} --out runs/c --resume" in done.stderr


def test_an_existing_run_needs_resume(studied, sinkwise, texts):
    words = ("collapse", "a", "b", "--texts", texts, "--out", "runs/c")
    sinkwise(*words)
    again = sinkwise(*words)
    assert again.exit_code == 1
    assert "--resume" in again.stderr
    assert sinkwise(*words, "--resume").exit_code == 0
    assert studied.options["resume"] is True


def test_a_run_that_kept_no_document_needs_no_resume(studied, sinkwise, texts):
    folder = Path("runs/c")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"complete": false}', encoding="utf-8")
    words = ("collapse", "a", "b", "--texts", texts, "--out", folder)
    assert sinkwise(*words).exit_code == 0
    (folder / "manifest.json").write_text('{"complete": false}', encoding="utf-8")
    (folder / "rows").mkdir()
    (folder / "rows" / "document-00000.npz").write_bytes(b"")
    again = sinkwise(*words)
    assert (again.exit_code, "--resume" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a", "b", "--out", "runs/c"], "--texts"),
        (["a", "b", "--texts", "texts.txt"], "--out DIR"),
        (["a", "b", "--texts", "texts.txt", "--out", "d", "--sink", "x"], "neither 'first'"),
        (["a", "b", "--texts", "texts.txt", "--out", "d", "--queries", "0"], "query rows"),
        (["a", "b", "--texts", "texts.txt", "--out", "d", "--zeros", "exclude"], "nothing to do"),
        (["a", "b", "--texts", "texts.txt", "--out", "d", "--peaked", "2"], "--peaked"),
        (["--texts", "texts.txt", "--out", "d"], "CKPT"),
    ],
)
def test_usage_errors(studied, sinkwise, texts, words, said):
    done = sinkwise("collapse", *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert studied.given is None


def test_report_reads_a_study_over_checkpoints(studied, sinkwise, found):
    Path("run").mkdir()
    Path("run/collapse.json").write_text("{}", encoding="utf-8")
    done = sinkwise("report", "run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == found.to_json()
    assert "Entropy over checkpoints" in Path("run/report.html").read_text(encoding="utf-8")
