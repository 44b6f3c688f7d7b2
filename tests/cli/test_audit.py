"""``sinkwise audit``: what reaches the library, what is shown, every exit code."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sinkwise.errors import CaptureError, MissingExtraError, RunError


def test_demo_brings_text_length_queries_and_folder(calls, sinkwise):
    result = sinkwise("audit", "demo")
    assert result.exit_code == 0, result.output
    assert len(calls.documents) == 16
    assert calls.documents[0].startswith("This is the book of the generations of Adam")
    options = calls.audit
    assert (options["max_length"], options["queries"], options["documents"]) == (256, 32, 16)
    assert options["out"] == Path("runs/demo")
    assert options["model_name"] == "demo" and options["revision"] == "1f2e"
    assert Path("runs/demo/report.html").is_file()


def test_demo_settings_can_be_changed(calls, sinkwise):
    result = sinkwise(
        "audit", "demo", "--documents", "2", "--max-length", "48", "--queries", "8", "--out", "x"
    )
    assert result.exit_code == 0, result.output
    assert len(calls.documents) == 2
    assert (calls.audit["max_length"], calls.audit["queries"]) == (48, 8)


def test_defaults_for_a_model_of_ones_own(calls, sinkwise, texts):
    result = sinkwise("audit", "gpt2", "--texts", texts, "--out", "run")
    assert result.exit_code == 0, result.output
    assert calls.load == {
        "name": "gpt2",
        "dtype": "float32",
        "device": "cpu",
        "revision": None,
        "trust_remote_code": False,
    }
    assert calls.documents == ["One document,\ntwo lines.", "Another.", "A third."]
    passed = {key: value for key, value in calls.audit.items() if key != "progress"}
    assert passed == {
        "sink": "first",
        "sink_sets": ("first", "first4", "bos", "found"),
        "repeated_tokens": 0,
        "queries": 64,
        "max_length": None,
        "documents": None,
        "seed": 0,
        "batch_size": None,
        "out": Path("run"),
        "resume": False,
        "model_name": "gpt2",
        "revision": "1f2e",
    }


def test_flags_reach_the_library(calls, sinkwise, texts):
    result = sinkwise(
        *("audit", "gpt2", "--texts", texts, "--out", "run", "--dtype", "bfloat16"),
        *("--device", "cuda:1", "--revision", "main", "--trust-remote-code", "--seed", "7"),
        *("--batch-size", "3", "--sink", "0,4", "--queries", "all", "--documents", "2"),
        *("--zeros", "error", "--resume"),
    )
    assert result.exit_code == 0, result.output
    assert calls.load["dtype"] == "bfloat16" and calls.load["device"] == "cuda:1"
    assert calls.load["revision"] == "main" and calls.load["trust_remote_code"] is True
    assert calls.audit["sink"] == (0, 4) and calls.audit["queries"] == "all"
    assert calls.audit["seed"] == 7 and calls.audit["batch_size"] == 3
    assert calls.audit["resume"] is True
    assert calls.documents == ["One document,\ntwo lines.", "Another."]


def test_one_position_is_one_sink(calls, sinkwise, texts):
    assert sinkwise("audit", "m", "--texts", texts, "--out", "run", "--sink", "3").exit_code == 0
    assert calls.audit["sink"] == 3


def test_summary_and_progress(calls, sinkwise):
    result = sinkwise("audit", "demo")
    assert "Sink mass  0.350  [0.330, 0.370]" in result.stdout
    assert "cosine          0.285  [0.270, 0.300]" in result.stdout
    assert "Jensen-Shannon  0.210  (too few documents for an interval)" in result.stdout
    assert str(Path("runs/demo/report.html")) in result.stdout
    assert "Documents: 3 of 3" in result.stderr
    assert "Documents" not in result.stdout


def test_json_is_all_of_stdout(calls, sinkwise):
    result = sinkwise("audit", "demo", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["sink_mass"]["mean"] == 0.35
    assert result.stderr == ""


def test_quiet_says_nothing(calls, sinkwise):
    result = sinkwise("audit", "demo", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_no_report_extra_is_said_and_not_fatal(calls, sinkwise):
    calls.report_raises = MissingExtraError('needs plotly: pip install "sinkwise[report]"')
    result = sinkwise("audit", "demo", "--out", "other")
    assert result.exit_code == 0
    assert 'pip install "sinkwise[report]"' in result.stderr
    assert "sinkwise report other" in result.stderr
    assert "Report:" not in result.stdout


# Exit code 1: an error of the work.


def test_an_error_is_a_message_without_traceback(calls, sinkwise):
    calls.raises = CaptureError("layer 3 has no attention function")
    result = sinkwise("audit", "demo")
    assert result.exit_code == 1
    assert result.stderr.rstrip().endswith("sinkwise: layer 3 has no attention function")
    assert "Traceback" not in result.output


def test_a_missing_model_is_exit_1(calls, sinkwise, texts):
    calls.load_raises = CaptureError("no model 'nobody/nothing'")
    result = sinkwise("audit", "nobody/nothing", "--texts", texts, "--out", "run")
    assert result.exit_code == 1
    assert "nobody/nothing" in result.stderr
    assert not Path("run").exists()


def test_a_missing_extra_names_the_line_that_installs_it(calls, sinkwise):
    calls.load_raises = ModuleNotFoundError("No module named 'torch'", name="torch")
    result = sinkwise("audit", "demo")
    assert result.exit_code == 1
    assert 'needs torch: pip install "sinkwise[hf]"' in result.stderr


def test_a_full_disk_is_exit_1_without_traceback(calls, sinkwise):
    calls.raises = OSError(28, "No space left on device")
    result = sinkwise("audit", "demo")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr


def test_a_bug_keeps_its_traceback(calls, sinkwise):
    calls.raises = ZeroDivisionError("ours")
    result = sinkwise("audit", "demo")
    assert isinstance(result.exception, ZeroDivisionError)


def test_an_existing_run_is_not_overwritten(calls, sinkwise, texts):
    line = ("audit", "gpt2", "--texts", texts, "--out", "a run", "--seed", "5")
    assert sinkwise(*line).exit_code == 0
    calls.audit = {}
    again = sinkwise(*line)
    assert again.exit_code == 1
    assert calls.audit == {}
    typed = next(row for row in again.stderr.splitlines() if row.startswith("  sinkwise"))
    assert shlex.split(typed) == ["sinkwise", *map(str, line), "--resume"]
    assert sinkwise(*shlex.split(typed)[1:]).exit_code == 0
    assert calls.audit["resume"] is True


def test_resume_with_other_settings_is_refused(calls, sinkwise):
    assert sinkwise("audit", "demo").exit_code == 0
    calls.raises = RunError("queries was 32 and is now 16")
    result = sinkwise("audit", "demo", "--resume", "--queries", "16")
    assert result.exit_code == 1
    assert "queries was 32 and is now 16" in result.stderr


def test_an_empty_folder_is_taken(calls, sinkwise):
    Path("run").mkdir()
    assert sinkwise("audit", "demo", "--out", "run").exit_code == 0


@pytest.mark.parametrize("resume", [(), ("--resume",)])
def test_a_folder_of_other_files_is_left_alone(calls, sinkwise, resume):
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("mine", encoding="utf-8")
    result = sinkwise("audit", "demo", "--out", "thesis", *resume)
    assert result.exit_code == 1
    assert "not a run" in result.stderr
    assert [path.name for path in Path("thesis").iterdir()] == ["chapter.tex"]


def test_a_file_for_a_folder(calls, sinkwise, texts):
    result = sinkwise("audit", "demo", "--out", texts)
    assert result.exit_code == 1
    assert "is a file" in result.stderr


# Exit code 2: a wrong command line; nothing is loaded.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit"], "MODEL"),
        (["audit", "gpt2", "--out", "run"], "--texts FILE"),
        (["audit", "gpt2", "--texts", "texts.txt"], "--out DIR"),
        (["audit", "demo", "--sink-sets", "first,second"], "is no sink set"),
        (["audit", "demo", "--sink", "last"], "'last'"),
        (["audit", "demo", "--sink", "0,,1"], "'0,,1'"),
        (["audit", "demo", "--sink", "-1"], "negative"),
        (["audit", "demo", "--sink", "1,1"], "twice"),
        (["audit", "demo", "--queries", "0"], "'0'"),
        (["audit", "demo", "--queries", "many"], "'many'"),
        (["audit", "demo", "--zeros", "exclude"], "logits"),
        (["audit", "demo", "--zeros", "replace=1e-9"], "logits"),
        (["audit", "demo", "--zeros", "ignore"], "no zero rule"),
        (["audit", "demo", "--documents", "0"], "--documents"),
        (["audit", "demo", "--max-length", "2"], "--max-length"),
        (["audit", "demo", "--seed", "-1"], "--seed"),
        (["audit", "demo", "--seeds", "1"], "--seeds"),
        (["reproduce", "demo"], "reproduce"),
    ],
)
def test_usage_errors(calls, sinkwise, texts, words, said):
    result = sinkwise(*words)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert calls.load == {}
    assert not Path("runs").exists()


# Exit code 130: interrupted.


def test_an_interruption_says_how_to_resume(calls, sinkwise):
    calls.raises = KeyboardInterrupt()
    result = sinkwise("audit", "demo", "--queries", "8")
    assert result.exit_code == 130
    assert "2 documents are done" in result.stderr
    assert "  sinkwise audit demo --queries 8 --resume" in result.stderr.splitlines()


# Documents that cannot be used.


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "holds no document"),
        ("blank.txt", b" \n\n\t\n", "holds no document"),
        ("empty.jsonl", b"", "one JSON object a line"),
        ("latin.txt", "caf\xe9".encode("latin-1"), "not UTF-8"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": ', "line 2 is not JSON"),
        ("list.jsonl", b'["a"]\n', "line 1 is a JSON list"),
        ("keys.jsonl", b'{"text": "a"}\n\n{"content": "b"}\n', "line 3 has no string under 'text'"),
        ("null.jsonl", b'{"text": null}\n', "no string under 'text'"),
        ("page.pdf", b"%PDF", "ends in '.pdf'"),
        ("cat.png", b"", "is one image"),
    ],
)
def test_a_bad_file_is_named_with_its_line(calls, sinkwise, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    result = sinkwise("audit", "gpt2", "--texts", path, "--out", "run")
    assert result.exit_code == 1
    assert name in result.stderr and said in result.stderr
    assert calls.audit == {}
    assert not Path("run").exists()


def test_a_missing_file_is_refused_before_the_model_loads(calls, sinkwise):
    result = sinkwise("audit", "gpt2", "--texts", "nowhere.txt", "--out", "run")
    assert result.exit_code == 1
    assert "nowhere.txt" in result.stderr
    assert calls.load == {}


def test_text_for_a_vision_model_and_images_for_a_text_model(calls, sinkwise, texts, tmp_path):
    (tmp_path / "pictures").mkdir()
    result = sinkwise("audit", "gpt2", "--texts", tmp_path / "pictures", "--out", "run")
    assert result.exit_code == 1 and "reads text" in result.stderr
    calls.kind = "vision"
    result = sinkwise("audit", "vit", "--texts", texts, "--out", "run")
    assert result.exit_code == 1 and "folder of images" in result.stderr


@pytest.mark.parametrize(
    "name",
    ["with space.txt", "quo'te.txt", "dollar$HOME.txt", "ünï.txt", "--dashes.txt", "{brace}.txt"],
)
def test_hostile_paths_survive_and_can_be_pasted(calls, sinkwise, tmp_path, name):
    path = tmp_path / name
    path.write_text("A document.", encoding="utf-8")
    out = f"run of {name}"
    line = ["audit", "gpt2", f"--texts={path}", f"--out={out}"]
    assert sinkwise(*line).exit_code == 0
    assert calls.documents == ["A document."]
    assert Path(out, "report.html").is_file()
    again = sinkwise(*line)
    typed = next(row for row in again.stderr.splitlines() if row.startswith("  sinkwise"))
    words = shlex.split(typed)
    assert str(path) in words and out in words


def test_an_out_name_with_leading_dashes_resumes(calls, sinkwise, texts):
    line = ["audit", "gpt2", "--texts", str(texts), "--out=--odd"]
    assert sinkwise(*line).exit_code == 0
    again = sinkwise(*line)
    typed = next(row for row in again.stderr.splitlines() if row.startswith("  sinkwise"))
    assert sinkwise(*shlex.split(typed)[1:]).exit_code == 0
