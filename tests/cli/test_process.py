"""The command as a process of its own: streams, signals, and what help imports."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

HEAVY = {"jax", "numba", "numpy", "pandas", "plotly", "scipy", "sklearn", "torch", "transformers"}

# A run of the command in which the model and the audit are stand-ins.
STAND_IN = """
import sys, time, types
from pathlib import Path

def audit(model, processor, texts, *, out, progress, **options):
    Path(out).mkdir(parents=True)
    Path(out, "manifest.json").write_text("{}")
    for done in range(1, 6):
        progress(done, 5)
        time.sleep(PAUSE)
    return types.SimpleNamespace(report=lambda path: None, summary=lambda: SUMMARY)

SUMMARY = {"model": "m", "heads": 1, "layers": 1, "documents": 5, "rows": 5, "reversals": [],
           "sink_mass": {"mean": 0.5, "low": None, "high": None}}
loaded = types.SimpleNamespace(model=0, processor=0, name="m", revision=None, kind="decoder")
for name, content in (
    ("sinkwise.capture.load", {"load_model": lambda name, **options: loaded}),
    ("sinkwise.runs.audit", {"audit": audit}),
):
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules[name] = module

from sinkwise.cli.app import app
app(prog_name="sinkwise")
"""


def stand_in(pause: float) -> list[str]:
    return [sys.executable, "-c", STAND_IN.replace("PAUSE", str(pause))]


@pytest.mark.parametrize(
    "words", [["--help"], ["audit", "--help"], ["scaling", "--help"], ["guide"], ["--version"]]
)
def test_help_loads_nothing_heavy(words):
    code = f"""
        import sys
        from sinkwise.cli.app import app
        try:
            app({words!r}, prog_name="sinkwise")
        except SystemExit as end:
            assert not end.code, end.code
        print(sorted(set(sys.modules) & {HEAVY!r}), file=sys.stderr)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout
    assert done.stderr.strip() == "[]"


def test_python_dash_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "sinkwise", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("sinkwise ")


def test_no_arguments_show_help():
    done = subprocess.run([sys.executable, "-m", "sinkwise"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "audit" in done.stdout + done.stderr


def test_json_stands_alone_on_stdout(tmp_path):
    done = subprocess.run(
        [*stand_in(0), "audit", "demo", "--json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(done.stdout)["documents"] == 5
    assert done.stderr == ""


def test_an_interrupt_ends_with_130_and_the_line_that_resumes(tmp_path):
    process = subprocess.Popen(
        [*stand_in(60), "audit", "demo", "--seed", "3"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    before = ""
    while "1 of 5" not in before:
        line = process.stderr.readline()
        assert line, before
        before += line
    process.send_signal(signal.SIGINT)
    _, after = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in after
    assert "  sinkwise audit demo --seed 3 --resume" in after.splitlines()


def test_a_bar_on_a_terminal_and_lines_elsewhere(tmp_path):
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*stand_in(0.05), "audit", "demo"], stderr=child, stdout=subprocess.DEVNULL, cwd=tmp_path
    )
    os.close(child)
    shown = b""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([parent], [], [], 1)[0]:
            try:
                part = os.read(parent, 4096)
            except OSError:  # Linux: the other end has closed
                break
            if not part:
                break
            shown += part
    os.close(parent)
    assert process.wait(timeout=30) == 0
    assert b"\r" in shown and b"100%" in shown
    assert b"5 of 5" not in shown

    elsewhere = subprocess.run(
        [*stand_in(0), "audit", "demo", "--out", "second"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "Documents: 5 of 5" in elsewhere.stderr
    assert "\r" not in elsewhere.stderr
    assert Path(tmp_path, "second").is_dir()


def test_a_reader_that_goes_away_is_no_traceback(tmp_path):
    done = subprocess.run(
        f"'{sys.executable}' -m sinkwise audit --help | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert "Traceback" not in done.stderr
