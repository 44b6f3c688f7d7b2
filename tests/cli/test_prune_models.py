"""``sinkwise prune`` on tiny saved models that are judged by their labels, the whole way."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sinkwise import load_model, remove_heads
from sinkwise.cli.app import app


@pytest.fixture
def classifier(tmp_path):
    """A saved image classifier, two folders of pictures, and the model itself."""
    from PIL import Image
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
        num_labels=5,
        initializer_range=0.4,
    )
    model = ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "model")
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path / "model")
    draw = np.random.default_rng(0)
    for folder in ("calibration", "held_out"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            pixels = draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    return tmp_path, model


@pytest.fixture
def masked_model(tmp_path):
    """A saved masked language model and two files of texts."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=12,
        max_position_embeddings=32,
        initializer_range=0.4,
    )
    BertForMaskedLM(config).save_pretrained(tmp_path / "model")
    symbols = "?#$abcdefgh"
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(symbols)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="# $A $", special_tokens=[("#", 1), ("$", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="?", cls_token="#", sep_token="$"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    draw = np.random.default_rng(0)
    for name in ("calibration", "held_out"):
        texts = [" ".join(draw.choice(list("abcdefgh"), 12)) for _ in range(3)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return tmp_path


def _prune(model, calibration, held_out, out):
    line = ["prune", model, "--texts", calibration, "--eval", held_out, "--out", out]
    line += ["--score", "joint_output,fisher,random", "--sparsity", "0.25", "--json"]
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == 0, result.output
    return json.loads((out / "prune.json").read_text(encoding="utf-8"))


def test_an_image_classifier_is_judged_by_its_labels(classifier):
    folder, model = classifier
    study = _prune(folder / "model", folder / "calibration", folder / "held_out", folder / "run")
    assert study["dense"]["metric"] == "kl" and study["dense"]["value"] == 0
    for point in study["points"]:
        assert point["value"] > 0 and 0 <= point["top1_agreement"] <= 1
    # the divergence of one set, by hand: its heads taken out of the model in memory
    point = next(p for p in study["points"] if p["score"] == "joint_output")
    loaded = load_model(folder / "model")
    smaller = remove_heads(loaded.model, [tuple(head) for head in point["removed"]])
    from sinkwise.cli.documents import locate_documents

    pictures = locate_documents(folder / "held_out").read()
    divergence, same = [], 0
    for picture in pictures:
        pixels = loaded.processor(images=picture, return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            dense = model(pixels).logits.double().log_softmax(-1)
            now = smaller(pixels).logits.double().log_softmax(-1)
        divergence.append(float((dense.exp() * (dense - now)).sum()))
        same += int(dense.argmax() == now.argmax())
    assert point["value"] == pytest.approx(np.mean(divergence), rel=1e-4)
    assert point["top1_agreement"] == pytest.approx(same / len(pictures))


def test_a_masked_language_model_is_judged_by_its_labels(masked_model):
    study = _prune(
        masked_model / "model",
        masked_model / "calibration.txt",
        masked_model / "held_out.txt",
        masked_model / "run",
    )
    assert study["dense"]["metric"] == "kl"
    assert all(point["value"] > 0 for point in study["points"])
    assert type(load_model(masked_model / "model").model).__name__ == "BertForMaskedLM"


def test_a_classifier_without_heads_loads_with_its_labels(classifier):
    folder, model = classifier
    smaller = remove_heads(model, [(0, 1), (1, 0), (1, 2)])
    smaller.save_pretrained(folder / "smaller")
    (folder / "model" / "preprocessor_config.json").rename(
        folder / "smaller" / "preprocessor_config.json"
    )
    again = load_model(folder / "smaller").model
    pixels = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(again(pixels).logits, smaller(pixels).logits)
