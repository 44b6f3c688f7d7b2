"""What is shipped, what is declared, and what may not stand in the files."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import sinkwise

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.slow
def test_the_wheel_holds_text_template_and_licence(tmp_path):
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        described = packed.read(metadata).decode()
    templates = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src/sinkwise/report").iterdir()
        if path.suffix in {".j2", ".css", ".js"}
    }
    assert templates
    assert templates | {"sinkwise/data/demo.txt", "sinkwise/py.typed"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith("tests")]
    assert "Requires-Python: >=3.11" in described
    for extra in ("hf", "report", "jax", "all", "dev"):
        assert f"Provides-Extra: {extra}" in described


def test_versions_agree():
    version = PROJECT["project"]["version"]
    assert sinkwise.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_core_needs_no_extra():
    core = {re.split(r"[<>=!~ \[]", entry)[0] for entry in PROJECT["project"]["dependencies"]}
    assert core == {
        "array-api-compat",
        "numpy",
        "packaging",
        "pandas",
        "scikit-learn",
        "scipy",
        "threadpoolctl",
        "typer",
        "xarray",
    }


def test_layers_of_import_are_kept():
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_every_layer_is_held_by_the_contract():
    layers = set(PROJECT["tool"]["importlinter"]["contracts"][0]["layers"])
    packages = {path.parent.name for path in (ROOT / "src/sinkwise").glob("*/__init__.py")}
    modules = {path.stem for path in (ROOT / "src/sinkwise").glob("*.py")}
    assert layers == packages | modules - {"__init__", "__main__"}


def test_citation_and_hooks_are_valid_yaml():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["references"][0]["year"] == 2026
    assert yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]


def test_the_licence_is_whole():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text


# This file is passed over: it holds the patterns.
NOT_HERE = {
    "the host of a package registry": r"\b(?:pypi|pythonhosted|npmjs)\.(?:org|com)\b",
    "a path of one machine": r"(?<![\w.])/(?:work|root|home/\w+)/(?!\.\.\.)",
    "a number of a private tracker": r"\b[Ii]ssue #?\d+\b",
}


@pytest.mark.parametrize("what", NOT_HERE)
def test_files_do_not_hold(what):
    pattern = re.compile(NOT_HERE[what])
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path == Path(__file__):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_code_is_in_files_of_a_readable_size():
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in (ROOT / "src").rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 450
    }
    assert long == {}
