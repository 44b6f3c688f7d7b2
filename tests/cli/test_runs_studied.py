"""``sinkwise regime``, ``scaling``, ``compare`` and ``guide`` on small real runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.studies.guide import GUIDE, guide_markdown


def _with_card(source, target, **card):
    """Copy a run under another card."""
    shutil.copytree(source, target)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["card"] |= card
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of arrays, with and without strong sinks, of unlike documents."""
    parent = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    found = []
    for i, slope in enumerate((0.0, 2.0)):
        z = rng.normal(size=(1, 4, 6, 8)) + 0.1 * rng.normal(size=(6, 4, 6, 8))
        z[..., 0] += slope * np.arange(4)[:, None]
        found.append(parent / f"run{i}")
        sw.audit(sw.rows(z, sink=0, logits=True), out=found[-1])
    return found


@pytest.fixture(scope="module")
def family(runs, tmp_path_factory):
    """Five models of one family, every second with strong sinks."""
    parent = tmp_path_factory.mktemp("family")
    return [
        _with_card(
            runs[i % 2],
            parent / f"m{i}",
            model=f"m{i}",
            model_type="kin",
            n_parameters=10 ** (6 + i),
        )
        for i in range(5)
    ]


def test_regime_of_one_run_shows_verdict_why_record_and_outcome(runs, sinkwise):
    result = sinkwise("regime", runs[1])
    assert result.exit_code == 0, result.output
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert list(lines) == ["Verdict", "Why", "Record", "What happened", "Thresholds"]
    assert lines["Verdict"].startswith("classical unsafe")
    assert "one hit, one abstention, one miss" in lines["Record"]
    assert lines["What happened"].split(".")[0] in ("hit", "miss")
    found = json.loads(sinkwise("regime", runs[1], "--json").stdout)
    assert found["verdict"] == "classical unsafe" and "one miss" in found["record"]
    assert found["outcome"]["result"] in ("hit", "miss")
    assert sinkwise("regime", runs[1], "--quiet").output == ""


def test_regime_of_several_runs_is_a_table_and_a_fit_or_why_not(runs, sinkwise):
    result = sinkwise("regime", *runs)
    assert result.exit_code == 0, result.output
    assert str(runs[0]) in result.stdout and "one miss" in result.stdout
    assert "No fit: 2 models with an outcome" in result.stdout
    found = json.loads(sinkwise("regime", *runs, "--json").stdout)
    assert len(found["runs"]) == 2 and found["fit"] is None and "2 models" in found["fit_refused"]


def test_regime_fits_where_there_are_models_enough(family, sinkwise, monkeypatch):
    from sinkwise.studies import regime_fit

    outcomes = iter([False, True, False, True, True] * 2)
    base = {"resolved_share": 0.5, "result": "hit"}
    monkeypatch.setattr(
        regime_fit,
        "regime_outcome",
        lambda audit: {**base, "misled": (m := next(outcomes)), "rate": 0.3 if m else 0.0},
    )
    result = sinkwise("regime", *family)
    assert result.exit_code == 0, result.output
    for words in ("Fitted to these runs", "On models left out", "The frozen rule on the same"):
        assert words in result.stdout
    found = json.loads(sinkwise("regime", *family, "--json").stdout)
    assert set(found["fit"]["score"]) == {"hits", "misses", "abstentions", "frozen"}
    assert len(found["fit"]["left_out"]) == 5


def test_scaling(family, sinkwise, tmp_path):
    result = sinkwise("scaling", *family, "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "kin" in result.stdout and "Theil-Sen" in result.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "per factor of ten" in page and "cdn.plot.ly" not in page.split("</head>")[0]
    found = json.loads(sinkwise("scaling", *family, "--json").stdout)
    assert [m["parameters"] for m in found["models"]] == [10**i for i in range(6, 11)]
    assert {s["family"] for s in found["slopes"]} == {"kin", "all models"}
    assert sinkwise("scaling", *family, "--quiet").output == ""


def test_scaling_with_sizes_by_hand(runs, sinkwise):
    sizes = [f"--parameters={run}={size}" for run, size in zip(runs, ("1e6", "2_000"), strict=True)]
    found = json.loads(sinkwise("scaling", *runs, *sizes, "--json").stdout)
    assert [m["parameters"] for m in found["models"]] == [2000, 10**6]
    assert found["slopes"][0]["theil_sen"] is None
    assert "2 of the 3 models" in found["slopes"][0]["note"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 1, "holds no parameter count (n_parameters)"),
        (["--parameters", "many"], 2, "not of the form RUN=VALUE"),
        (["--parameters", "x=many"], 2, "no number of parameters"),
        (["--parameters", "x=5"], 1, "parameters names 'x'"),
        (["--allow", "colour"], 1, "allow='colour' is none of"),
    ],
)
def test_scaling_says_what_to_type(runs, sinkwise, words, code, message):
    result = sinkwise("scaling", *runs, *words)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_scaling_refuses_cards_that_differ(family, runs, sinkwise, tmp_path):
    odd = _with_card(family[0], tmp_path / "odd", model="odd", sink="first")
    result = sinkwise("scaling", *family, odd)
    assert result.exit_code == 1 and "--allow sink" in result.stderr
    assert sinkwise("scaling", *family, odd, "--allow", "sink").exit_code == 0


def test_compare_prints_the_differences_first(runs, sinkwise, tmp_path):
    other = _with_card(runs[1], tmp_path / "other", sink=[0, 1])
    result = sinkwise("compare", runs[0], other)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("The runs differ in what they measure: sink.")
    assert result.stdout.index("The cards differ in") < result.stdout.index("All heads")
    assert "Note: not paired" in result.stdout and "Verdicts on which head" in result.stdout
    assert result.stderr == ""


def test_compare_json_and_pairing(runs, sinkwise, tmp_path):
    twin = _with_card(runs[0], tmp_path / "twin")
    found = json.loads(sinkwise("compare", runs[0], twin, "--json").stdout)
    assert found["paired"] is True and found["differences"] == []
    assert all(row["change"] == 0 for row in found["model"])
    assert len(found["geometry"]) == 9 and found["geometry"][0]["rate"] == 0
    found = json.loads(sinkwise("compare", runs[0], runs[1], "--paired", "--json").stdout)
    assert found["paired"] is True
    result = sinkwise("compare", runs[0], twin, "--unpaired")
    assert "The cards say the same." in result.stdout and "Note: not paired" in result.stdout
    assert sinkwise("compare", runs[0], twin, "--quiet").output == ""


def test_compare_of_two_models_is_refused_unless_meant(family, sinkwise):
    result = sinkwise("compare", family[0], family[1])
    assert result.exit_code == 1 and "--different-models" in result.stderr
    assert sinkwise("compare", family[0], family[1], "--different-models").exit_code == 0


@pytest.mark.parametrize("command", ["regime", "scaling", "compare"])
def test_a_folder_without_a_run_is_exit_1_and_no_folder_exit_2(sinkwise, tmp_path, command):
    folders = [tmp_path / "a", tmp_path / "b"][: 1 + (command == "compare")]
    result = sinkwise(command, *folders)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert str(tmp_path / "a") in result.stderr
    assert sinkwise(command).exit_code == 2


def test_the_guide_is_readable_and_whole(sinkwise):
    result = sinkwise("guide")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 88
    assert result.stdout.count("  Report") == len(GUIDE)
    assert sinkwise("guide", "--markdown").stdout == guide_markdown()
    found = json.loads(sinkwise("guide", "--json").stdout)["questions"]
    assert [q["question"] for q in found] == [a.question for a in GUIDE]
    assert set(found[0]) == {"question", "estimator", "safe", "misleads", "report"}


def test_the_guide_by_words(sinkwise):
    assert sinkwise("guide", "entropy", "sharpened").stdout.count("  Report") == 1
    result = sinkwise("guide", "zebra")
    assert result.exit_code == 2 and "zebra" in result.stderr


def test_as_a_process(runs):
    done = subprocess.run(
        [sys.executable, "-m", "sinkwise", "regime", str(runs[1]), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["verdict"] == "classical unsafe" and done.stderr == ""
