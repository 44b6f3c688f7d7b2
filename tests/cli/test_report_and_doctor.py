"""``sinkwise report`` and ``sinkwise doctor``."""

from __future__ import annotations

import json
import sys
import types
from importlib import metadata, util
from pathlib import Path

import pytest


def test_report_writes_beside_the_run_or_where_told(calls, sinkwise):
    sinkwise("audit", "demo", "--out", "run")
    Path("run/report.html").unlink()
    result = sinkwise("report", "run")
    assert result.exit_code == 0, result.output
    assert Path("run/report.html").is_file()
    assert "run/report.html" in result.stderr
    assert sinkwise("report", "run", "--out", "page.html", "--quiet").output == ""
    assert Path("page.html").is_file()
    assert json.loads(sinkwise("report", "run", "--json").stdout)["heads"] == 270


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_report_of_no_run_is_exit_1(calls, sinkwise, folder):
    result = sinkwise("report", folder)
    assert result.exit_code == 1
    assert "holds no run" in result.stderr


def test_report_without_folder_is_exit_2(calls, sinkwise):
    assert sinkwise("report").exit_code == 2


@pytest.fixture
def families(monkeypatch):
    """Stand in for the check of model families."""
    module = types.ModuleType("sinkwise.capture.doctor")
    module.__dict__["check_families"] = lambda: [
        {"model_type": "gpt2", "status": "equal", "why": "", "more": 1},
        {"model_type": "bloom", "status": "refused", "why": "no attention interface"},
    ]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_doctor_json(families, sinkwise):
    result = sinkwise("doctor", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert found["models"] == [
        {"model_type": "gpt2", "status": "equal", "why": ""},
        {"model_type": "bloom", "status": "refused", "why": "no attention interface"},
    ]
    extras = {extra["name"]: extra for extra in found["extras"]}
    assert set(extras) == {"hf", "report", "jax"}
    assert extras["hf"]["install"] == 'pip install "sinkwise[hf]"'
    assert all(extra["installed"] and extra["missing"] == [] for extra in extras.values())


def test_doctor_names_what_is_missing(families, sinkwise, monkeypatch):
    version = metadata.version

    def without_plotly(name):
        if name == "plotly":
            raise metadata.PackageNotFoundError(name)
        return "2.0.0" if name == "torch" else version(name)  # older than the extra asks for

    monkeypatch.setattr(metadata, "version", without_plotly)
    result = sinkwise("doctor")
    assert result.exit_code == 0, result.output
    assert 'lacks plotly: pip install "sinkwise[report]"' in result.stdout
    assert 'lacks torch: pip install "sinkwise[hf]"' in result.stdout
    assert "bloom            refused    no attention interface" in result.stdout


def test_doctor_without_pytorch(sinkwise, monkeypatch):
    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "torch" else find(name))
    result = sinkwise("doctor")
    assert result.exit_code == 0, result.output
    assert "not checked" in result.stdout
    assert json.loads(sinkwise("doctor", "--json").stdout)["models"] == []
