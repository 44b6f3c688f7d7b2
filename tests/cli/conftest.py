"""Stand-ins for the model and the audit: the command line is tested for what it passes on."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sinkwise.cli.app import app

SUMMARY: dict[str, Any] = {
    "model": "stand-in",
    "heads": 270,
    "layers": 30,
    "documents": 3,
    "rows": 96,
    "sink_mass": {"mean": 0.35, "low": 0.33, "high": 0.37},
    "reversals": [
        {
            "first": "cosine/kept",
            "second": "cosine/dropped",
            "rate": 0.285,
            "low": 0.27,
            "high": 0.3,
        },
        {
            "first": "js_divergence/kept",
            "second": "js_divergence/dropped",
            "rate": 0.21,
            "low": None,
            "high": None,
        },
        {"first": "content", "second": "cosine/kept", "rate": 0.4, "low": 0.3, "high": 0.5},
    ],
}


class StandInAudit:
    """What the command line uses of an audit."""

    def __init__(self, out: Path, raises: BaseException | None = None) -> None:
        self.out = out
        self._raises = raises

    def summary(self) -> dict[str, Any]:
        return SUMMARY

    def report(self, path: Path) -> Path:
        if self._raises is not None:
            raise self._raises
        Path(path).write_text("<html>", encoding="utf-8")
        return Path(path)


class Calls:
    """What the stand-ins were called with, and what they should do."""

    def __init__(self) -> None:
        self.load: dict[str, Any] = {}
        self.audit: dict[str, Any] = {}
        self.documents: list[Any] = []
        self.kind = "decoder"
        self.raises: BaseException | None = None
        self.load_raises: BaseException | None = None
        self.report_raises: BaseException | None = None


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    """Put the stand-ins in place; the working directory is a fresh folder."""
    record = Calls()

    def load_model(name: str, **options: Any) -> Any:
        record.load = {"name": name, **options}
        if record.load_raises is not None:
            raise record.load_raises
        return types.SimpleNamespace(
            model="model",
            processor="processor",
            name=name,
            revision=options["revision"] or "1f2e",
            kind=record.kind,
        )

    def audit(model: Any, processor: Any, texts: list[Any], **options: Any) -> StandInAudit:
        record.audit = options
        record.documents = list(texts)
        out = Path(options["out"])
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").write_text("{}", encoding="utf-8")
        for done in range(1, 4):
            options["progress"](done, 3)
            if record.raises is not None and done == 2:
                raise record.raises
        (out / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")
        return StandInAudit(out, record.report_raises)

    def open_audit(folder: Path) -> StandInAudit:
        from sinkwise.errors import RunError

        if not (Path(folder) / "manifest.json").is_file():
            raise RunError(f"{folder} holds no run")
        return StandInAudit(Path(folder))

    runs = types.ModuleType("sinkwise.runs.audit")
    runs.__dict__.update(audit=audit, open_audit=open_audit)
    load = types.ModuleType("sinkwise.capture.load")
    load.__dict__.update(load_model=load_model)
    monkeypatch.setitem(sys.modules, runs.__name__, runs)
    monkeypatch.setitem(sys.modules, load.__name__, load)
    monkeypatch.chdir(tmp_path)
    return record


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of three documents."""
    path = tmp_path / "texts.txt"
    path.write_text("One document,\ntwo lines.\n\nAnother.\n\n\nA third.\n", encoding="utf-8")
    return path


@pytest.fixture
def sinkwise() -> Any:
    """Run a command line in this process: ``sinkwise("audit", "demo")``."""

    def run(*words: str | Path) -> Any:
        return CliRunner().invoke(app, [str(word) for word in words], prog_name="sinkwise")

    return run
