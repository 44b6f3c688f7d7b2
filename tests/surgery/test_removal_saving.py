"""What save_pretrained writes is enough: bit-equal by load_pruned, by from_pretrained if it can."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from sinkwise.capture.load import load_model  # noqa: E402
from sinkwise.capture.pruned.load import load_pruned  # noqa: E402
from sinkwise.errors import CaptureError, InputTypeError  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402

FAMILIES = [
    *("gpt2", "gpt_neox", "llama", "qwen2", "mistral", "gemma2", "gpt_oss", "phi3", "qwen3"),
    *("bert", "roberta", "vit", "dinov2", "dinov3_vit", "t5", "mixtral"),
]
UNEVEN = [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 3)]
EVEN = [(layer, index) for layer in range(3) for index in (2, 3)]


@pytest.mark.parametrize("family", FAMILIES)
def test_uneven_heads_come_back_bit_equal(family, model_of, inputs_of, run, tmp_path):
    removed = remove_heads(model_of(family), UNEVEN)
    removed.save_pretrained(tmp_path)
    again = load_pruned(tmp_path)
    assert type(again) is type(removed) and not again.training
    assert torch.equal(run(again, inputs_of(family)), run(removed, inputs_of(family)))
    assert again.config.sinkwise_removed == removed.config.sinkwise_removed
    saved = again.state_dict()
    assert all(torch.equal(saved[name], w) for name, w in removed.state_dict().items())
    again.save_pretrained(tmp_path / "twice")
    assert torch.equal(
        run(load_pruned(tmp_path / "twice"), inputs_of(family)), run(removed, inputs_of(family))
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral", "gpt_oss", "vit", "dinov2"])
def test_even_heads_come_back_by_transformers_own_loader(
    family, model_of, inputs_of, run, tmp_path
):
    removed = remove_heads(model_of(family), EVEN)
    assert removed.config.num_attention_heads == 2 and removed.config.head_dim == 8
    removed.save_pretrained(tmp_path)
    inputs = inputs_of(family)
    for again in (type(removed).from_pretrained(tmp_path), load_pruned(tmp_path)):
        assert torch.equal(run(again, inputs), run(removed, inputs))
    if family in ("llama", "qwen2", "mistral", "gpt_oss"):
        assert removed.config.num_key_value_heads == 1
        assert all(layer.self_attn.config is removed.config for layer in removed.model.layers)


@pytest.mark.parametrize(
    ("family", "heads"),
    [
        ("bert", EVEN),  # its head width is hidden size over heads
        ("gpt2", EVEN),
        ("llama", EVEN[:-2]),  # one layer keeps all
        ("llama", [(0, 0), (1, 0), (2, 0)]),  # 3 query heads over 2 key/value heads
        ("llama", [(0, 2), (0, 3), (1, 2), (1, 3), (2, 1), (2, 2)]),  # 2 over 2 and 2 over 1
    ],
)
def test_what_a_config_can_not_say_is_not_said_by_halves(family, heads, model_of, tmp_path):
    model = model_of(family)
    removed = remove_heads(model, heads)
    assert removed.config.num_attention_heads == model.config.num_attention_heads
    assert {layer["layer"] for layer in removed.config.sinkwise_removed["layers"]} == {
        layer for layer, _ in heads
    }
    removed.save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        type(removed).from_pretrained(tmp_path)


def test_removing_from_a_reloaded_model_goes_on_from_there(model_of, inputs_of, run, tmp_path):
    model, inputs = model_of("llama"), inputs_of("llama")
    remove_heads(model, [(0, 0), (1, 1), (1, 2)]).save_pretrained(tmp_path)
    twice = remove_heads(load_pruned(tmp_path), [(0, 0), (1, 1), (2, 3)])  # were 1, 3, 3
    once = remove_heads(model, [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 3)])
    assert twice.config.sinkwise_removed == once.config.sinkwise_removed
    assert torch.equal(run(twice, inputs), run(once, inputs))


def test_removing_until_it_is_even_lets_transformers_load_it(model_of, inputs_of, run, tmp_path):
    model = model_of("llama")
    for head in ((0, 3), (1, 3), (2, 3), (0, 2), (1, 2), (2, 2)):
        model = remove_heads(model, [head])
    assert model.config.num_attention_heads == 2 and not model.config.sinkwise_removed["layers"]
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert torch.equal(run(again, inputs_of("llama")), run(model, inputs_of("llama")))
    fewer = remove_heads(again, [(0, 1)])
    fewer.save_pretrained(tmp_path / "fewer")
    reloaded = load_pruned(tmp_path / "fewer")
    assert torch.equal(run(reloaded, inputs_of("llama")), run(fewer, inputs_of("llama")))


def test_dtype_shards_and_tied_weights(model_of, inputs_of, run, tmp_path):
    dense = model_of("llama", tie_word_embeddings=True)
    dense.save_pretrained(tmp_path / "dense")
    dense = type(dense).from_pretrained(tmp_path / "dense", dtype=torch.bfloat16)
    removed = remove_heads(dense, UNEVEN)
    removed.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    again = load_pruned(tmp_path)
    assert again.dtype == torch.bfloat16 and again.lm_head.weight is again.model.embed_tokens.weight
    assert torch.equal(run(again, inputs_of("llama")), run(removed, inputs_of("llama")))
    assert load_pruned(tmp_path, dtype="float32").dtype == torch.float32


@pytest.fixture
def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(64)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words)


@pytest.mark.parametrize(("family", "kind"), [("llama", "decoder"), ("bert", "encoder")])
@pytest.mark.parametrize("heads", [UNEVEN, EVEN])
def test_every_command_loads_it(family, kind, heads, model_of, inputs_of, run, tokenizer, tmp_path):
    removed = remove_heads(model_of(family), heads)
    removed.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.kind == kind
    assert torch.equal(run(loaded.model, inputs_of(family)), run(removed, inputs_of(family)))


def test_a_masked_model_comes_back_with_its_word_head(
    model_of, inputs_of, run, tokenizer, tmp_path
):
    from transformers import BertConfig, BertForMaskedLM

    masked = BertForMaskedLM(BertConfig.from_dict(model_of("bert").config.to_dict())).eval()
    removed = remove_heads(masked, UNEVEN)
    removed.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path).model
    assert type(loaded).__name__ == "BertForMaskedLM"
    assert torch.equal(run(loaded, inputs_of("bert")), run(removed, inputs_of("bert")))


def test_the_states_of_a_model_saved_with_another_head(model_of, inputs_of, tokenizer, tmp_path):
    """AutoModel of an answering model: names lose their prefix, the head is left out."""
    from transformers import BertConfig, BertForQuestionAnswering

    answering = BertForQuestionAnswering(BertConfig.from_dict(model_of("bert").config.to_dict()))
    removed = remove_heads(answering.eval(), UNEVEN)
    removed.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model(tmp_path).model
    assert type(loaded).__name__ == "BertModel"
    with torch.no_grad():
        found = loaded(**inputs_of("bert")).last_hidden_state
        expected = removed.bert(**inputs_of("bert")).last_hidden_state
    assert torch.equal(found, expected)


@pytest.mark.parametrize("heads", [UNEVEN, EVEN])
def test_audit_of_its_folder(heads, model_of, tokenizer, tmp_path):
    typer = pytest.importorskip("typer.testing")
    from sinkwise.cli.app import app

    remove_heads(model_of("llama"), heads).save_pretrained(tmp_path / "pruned")
    tokenizer.save_pretrained(tmp_path / "pruned")
    texts = tmp_path / "texts.txt"
    texts.write_text(
        "\n\n".join(" ".join(f"w{3 + (i * k) % 60}" for i in range(30)) for k in (1, 7))
    )
    arguments = ["audit", str(tmp_path / "pruned"), "--texts", str(texts)]
    done = typer.CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["heads"] == 12 - len(heads)


def spoiled(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.pop("model.layers.0.self_attn.q_proj.weight"), "missing_keys.*q_proj"),
        (lambda w: w.update(stranger=torch.ones(2)), "unexpected_keys: stranger"),
        (
            lambda w: w.update({"model.layers.0.self_attn.q_proj.weight": torch.ones(32, 32)}),
            "aren't those of the LlamaForCausalLM with heads removed",
        ),
    ],
)
def test_weights_that_do_not_belong_to_the_config_are_refused(change, told, model_of, tmp_path):
    remove_heads(model_of("llama"), UNEVEN).save_pretrained(tmp_path)
    spoiled(tmp_path, change)
    with pytest.raises(CaptureError, match=told):
        load_pruned(tmp_path)


def test_a_folder_that_is_not_of_a_pruned_model_says_what_to_type(model_of, tmp_path):
    model_of("llama").save_pretrained(tmp_path)
    with pytest.raises(CaptureError, match=r"no heads were removed from .*sinkwise\.load_model"):
        load_pruned(tmp_path)
    with pytest.raises(CaptureError, match=r"no config\.json"):
        load_pruned(tmp_path.parent)
    with pytest.raises(InputTypeError, match="a model name of class LlamaForCausalLM"):
        load_pruned(model_of("llama"))


def test_weights_must_be_there_and_are_never_unpickled(model_of, tmp_path):
    removed = remove_heads(model_of("llama"), UNEVEN)
    removed.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CaptureError, match="check that the folder is whole"):
        load_pruned(tmp_path)
    torch.save(removed.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CaptureError, match="safetensors"):
        load_pruned(tmp_path)


def test_weights_that_are_cut_short_are_named(model_of, tmp_path):
    remove_heads(model_of("llama"), UNEVEN).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    for load in (load_pruned, load_model):
        with pytest.raises(CaptureError, match=r"SafetensorError.*check that the folder is whole"):
            load(tmp_path)
    with pytest.raises(CaptureError, match="could not be loaded"):
        load_model(weights)


def test_a_record_that_keeps_a_head_twice_is_refused(model_of, tmp_path):
    remove_heads(model_of("llama"), UNEVEN).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for layer in config["sinkwise_removed"]["layers"]:
        layer["kept"] = layer["kept"][:1] * len(layer["kept"])
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CaptureError, match="ascending heads"):
        load_pruned(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 99}, "version 99"),
        ({"layers": [{"layer": 0}]}, "install the version that saved the model"),
        ("yes", "version yes"),
    ],
)
def test_a_record_of_another_version_is_refused(change, told, model_of, tmp_path):
    remove_heads(model_of("llama"), UNEVEN).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    held = config["sinkwise_removed"]
    config["sinkwise_removed"] = held | change if isinstance(change, dict) else change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CaptureError, match=told):
        load_pruned(tmp_path)


def test_a_class_that_transformers_does_not_have_is_refused(model_of, tmp_path):
    remove_heads(model_of("llama"), UNEVEN).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["OurOwnModel"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CaptureError, match=r"OurOwnModel.*transformers' own"):
        load_pruned(tmp_path)
