"""``sinkwise interchange``: what reaches the library, what is shown, every exit code."""

from __future__ import annotations

import inspect
import json
import sys
import types
from pathlib import Path

import pytest

from sinkwise.errors import CaptureError
from sinkwise.rowdata import HeadId
from sinkwise.studies.interchange import RANDOM, ExchangePoint, InterchangeStudy, Singles

HEADS = (HeadId(0, 0), HeadId(0, 1), HeadId(1, 0), HeadId(1, 1))


def _study():
    def records(loss):
        return [{"loss": loss * n, "tokens": n} for n in (10, 20, 30)]

    points = [
        ExchangePoint(name, "split", "model", share, seed, ((2, 0),), records(loss + share))
        for share in (0.1, 0.2)
        for name, seed, loss in (("content", None, 3), (RANDOM, 0, 3.2), (RANDOM, 1, 3.4))
    ]
    pairs = tuple((borrower, donor) for borrower in (2, 3) for donor in (0, 1))
    singles = Singles(pairs, {"content": [1, 2, 1, 2]}, {}, {"split": [records(3)] * 4})
    return InterchangeStudy(HEADS, "perplexity", records(2.9), tuple(points), singles)


@pytest.fixture
def studied(calls, monkeypatch):
    """What the study was called with; it may be told to raise."""
    record = types.SimpleNamespace(texts=None, held_out=None, options={}, raises=None)

    def interchange_study(model, processor, texts, eval_texts, **options):
        record.texts, record.held_out, record.options = texts, eval_texts, options
        out = Path(options["out"])
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").write_text("{}", encoding="utf-8")
        options["progress"](3, 9)
        if record.raises is not None:
            raise record.raises
        return _study()

    module = types.ModuleType("sinkwise.runs.interchange")
    module.__dict__.update(interchange_study=interchange_study)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return record


@pytest.fixture
def held_out(tmp_path):
    path = tmp_path / "heldout.txt"
    path.write_text("Held out.\n\nThis too.\n", encoding="utf-8")
    return path


def test_demo_parts_its_own_chapters_into_those_that_choose_and_those_that_judge(studied, sinkwise):
    result = sinkwise("interchange", "demo")
    assert result.exit_code == 0, result.output
    assert len(studied.texts) == len(studied.held_out) == 8
    assert not set(studied.texts) & set(studied.held_out)
    assert studied.options["max_length"] == 256
    assert studied.options["out"] == Path("runs/demo-interchange")
    assert Path("runs/demo-interchange/report.html").is_file()


def test_one_held_out_document_is_not_called_documents():
    from sinkwise.cli.interchange import _short_summary

    dense = [{"loss": 30.0, "tokens": 10}]
    point = ExchangePoint("content", "split", "model", 0.1, None, ((2, 0),), dense)
    found = InterchangeStudy(HEADS, "perplexity", dense, (point,))
    assert "4 heads, 1 held-out document; dense" in _short_summary(found, Path("runs/i"), None)
    assert "3 held-out documents; dense" in _short_summary(_study(), Path("runs/i"), None)


def test_the_defaults_are_those_of_the_library():
    from sinkwise.cli.interchange import interchange_command
    from sinkwise.runs.interchange import interchange_study

    library, command = (
        {name: p.default for name, p in inspect.signature(f).parameters.items()}
        for f in (interchange_study, interchange_command)
    )
    assert command["metrics"] is None  # not passed on: the library's own
    for name in ("scopes", "modes"):
        assert command[name] == ",".join(library[name])
    assert command["shares"] == ",".join(map(str, library["shares"]))
    assert command["queries"] == str(library["queries"])
    for name in ("seeds", "single_pairs", "sink", "seed", "max_length", "documents"):
        assert command[name] == library[name]


def test_flags_reach_the_library(studied, calls, sinkwise, texts, held_out):
    result = sinkwise(
        *("interchange", "m", "--texts", texts, "--eval", held_out, "--out", "run"),
        *("--metric", "content, content/floor=0.01", "--share", "0.25", "--scope", "layer"),
        *("--mode", "split", "--seeds", "2", "--single-pairs", "0", "--sink", "0,2"),
        *("--queries", "all", "--seed", "4", "--documents", "1", "--dtype", "bfloat16"),
    )
    assert result.exit_code == 0, result.output
    options = studied.options
    assert options["metrics"] == ("content", "content/floor=0.01")
    assert (options["shares"], options["scopes"], options["modes"]) == (
        (0.25,),
        ("layer",),
        ("split",),
    )
    assert (options["seeds"], options["single_pairs"], options["seed"]) == (2, 0, 4)
    assert (options["sink"], options["queries"], options["documents"]) == ((0, 2), "all", 1)
    assert calls.load["dtype"] == "bfloat16"


def test_a_table_of_values_by_share(studied, sinkwise):
    result = sinkwise("interchange", "demo")
    lines = result.stdout.splitlines()
    assert "dense perplexity 18.17" in lines[0]
    content = next(line for line in lines if "content" in line)
    assert content.split() == ["split", "model", "content", "22.2", "24.53"]
    random = next(line for line in lines if "random" in line)
    assert random.split() == ["split", "model", "random", "27.11-33.12", "29.96-36.6"]
    assert any("interchange.json" in line for line in lines)
    assert "Steps: 3 of 9" in result.stderr


def test_json_is_all_of_stdout_and_quiet_says_nothing(studied, sinkwise):
    result = sinkwise("interchange", "demo", "--json")
    assert json.loads(result.stdout)["schema"] == "sinkwise.interchange/1"
    assert result.stderr == ""
    result = sinkwise("interchange", "demo", "--quiet", "--out", "other")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_an_error_of_the_work_is_exit_1(studied, sinkwise):
    studied.raises = CaptureError("layer 3 has no attention function")
    result = sinkwise("interchange", "demo")
    assert result.exit_code == 1
    assert result.stderr.rstrip().endswith("sinkwise: layer 3 has no attention function")


def test_an_interruption_says_how_to_go_on(studied, sinkwise):
    studied.raises = KeyboardInterrupt()
    result = sinkwise("interchange", "demo", "--share", "0.2", "--mode", "split")
    assert result.exit_code == 130
    assert "3 of 9 steps are done" in result.stderr
    line = "  sinkwise interchange demo --share 0.2 --mode split --resume"
    assert line in result.stderr.splitlines()


def test_an_existing_run_needs_resume(studied, sinkwise):
    assert sinkwise("interchange", "demo").exit_code == 0
    again = sinkwise("interchange", "demo")
    assert again.exit_code == 1 and "--resume" in again.stderr
    assert sinkwise("interchange", "demo", "--resume").exit_code == 0
    assert studied.options["resume"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpt2", "--eval", "heldout.txt", "--out", "run"], "--texts FILE"),
        (["gpt2", "--texts", "texts.txt", "--out", "run"], "--eval FILE"),
        (["demo", "--texts", "texts.txt"], "--eval FILE"),
        (["gpt2", "--texts", "texts.txt", "--eval", "heldout.txt"], "--out DIR"),
        (["demo", "--share", "0.1,2"], "'0.1,2'"),
        (["demo", "--share", "ten"], "'ten'"),
        (["demo", "--mode", "half"], "'half'"),
        (["demo", "--scope", "model,block"], "'block'"),
        (["demo", "--metric", ","], "--metric"),
        (["demo", "--seeds", "-1"], "--seeds"),
        (["demo", "--sink", "last"], "'last'"),
    ],
)
def test_usage_errors(studied, calls, sinkwise, texts, held_out, words, said):
    result = sinkwise("interchange", *words)
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")
    assert calls.load == {}
