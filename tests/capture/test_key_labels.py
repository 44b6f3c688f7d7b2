"""What comes with captured rows beside their logits, and the repeated-token control."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaModel

import sinkwise as sw
from sinkwise.capture.repeated_tokens import repeated_token_control, repeated_token_documents
from sinkwise.capture.source import ModelRows


class Words:
    """A tokenizer of whole words that begins every text with its own token, as Llama's does."""

    bos_token_id, cls_token_id, pad_token_id, padding_side = 1, None, 0, "right"
    model_max_length = 10**30

    def __init__(self, bos=True):
        self.words, self.bos = ["<pad>", "<s>"], bos

    def __call__(self, text, add_special_tokens=True, truncation=False, max_length=None, **_):
        ids = [self._id(word) for word in text.split()]
        ids = [1, *ids] if add_special_tokens and self.bos else ids
        return {"input_ids": ids[:max_length] if truncation else ids}

    def _id(self, word):
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def decode(self, ids):
        return " ".join(self.words[i] for i in ids)


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=128,
    )
    return LlamaModel(config).eval()


def test_value_norms_are_those_of_each_query_head_s_own_group(llama):
    ids = [5, 9, 7, 30, 2, 8]
    (block,) = ModelRows(llama, None, [ids], queries="all").blocks()
    layer = llama.layers[0]
    with torch.no_grad():
        hidden = layer.input_layernorm(llama.embed_tokens(torch.tensor(ids)))
        values = layer.self_attn.v_proj(hidden).view(len(ids), 3, -1).norm(dim=-1)
    for head in range(6):
        np.testing.assert_allclose(block.keys.value_norms[head], values[:, head // 2], rtol=1e-5)


def test_value_norms_follow_the_padding(llama):
    texts = [[5, 9, 7, 30, 2, 8], [4, 3, 2, 9]]
    together = list(ModelRows(llama, None, texts, queries="all", batch_size=2).blocks())
    alone = list(ModelRows(llama, None, texts[1:], queries="all").blocks())
    np.testing.assert_allclose(
        together[1].keys.value_norms, alone[0].keys.value_norms, rtol=1e-4, atol=1e-6
    )


def test_weights_times_value_norms_make_the_profile(llama):
    found = sw.audit(llama, None, [[5, 9, 7, 30, 2, 8], [1, 2, 3, 4, 5]], queries="all")
    blocks = list(
        ModelRows(llama, None, [[5, 9, 7, 30, 2, 8], [1, 2, 3, 4, 5]], queries="all").blocks()
    )
    total, rows = np.zeros(12), 0
    for block in blocks:
        z = np.where(block.support, block.log_weights.astype(float), -np.inf)
        p = np.exp(z - z.max(-1, keepdims=True)) * block.keys.value_norms[:, None]
        total += (p[..., 0] / p.sum(-1)).sum(-1)
        rows += block.n_rows
    np.testing.assert_allclose(found.profile.value_weighted_sink_mass, total / rows, rtol=1e-6)
    low, high = (found.profile[f"value_weighted_sink_mass_{end}"] for end in ("low", "high"))
    assert (low <= high).all()


def test_tokens_and_the_beginning_token_come_with_the_rows(llama):
    (block,) = ModelRows(llama, Words(), ["the king went out to the king"]).blocks()
    assert block.keys.tokens.tolist() == ["<s>", "the", "king", "went", "out", "to", "the", "king"]
    assert np.flatnonzero(block.keys.bos).tolist() == [0]
    (block,) = ModelRows(llama, Words(bos=False), ["the king went out"]).blocks()
    assert not block.keys.bos.any()
    (block,) = ModelRows(llama, None, [[3, 4, 5]]).blocks()
    assert block.keys.tokens is None


def test_models_without_a_beginning_token_have_no_such_sink_set(llama):
    texts = ["the king went out to the gate", "and the queen went in at the gate"]
    with_bos = sw.audit(llama, Words(), texts).sink_sets()
    without = sw.audit(llama, Words(bos=False), texts).sink_sets()
    assert with_bos.sink_set.tolist() == ["declared", "first", "first4", "bos", "found"]
    assert without.sink_set.tolist() == ["declared", "first", "first4", "found"]


def test_a_found_sink_is_each_document_s_own(llama):
    rows = ModelRows(llama, None, [[5, 9, 7, 30, 2, 8], [1, 2, 3, 4, 5, 6]], sink="found")
    assert rows.card()["sink"] == "found"
    for block in rows.blocks():
        assert block.sink.any(-1).all()
    assert sw.audit(llama, None, [[5, 9, 7, 30, 2, 8]], sink="found").declared_positions == ()


def test_the_control_repeats_one_token_of_each_text_with_the_tokenizer_s_own_before_it():
    words = Words()
    found = repeated_token_documents(words, ["the king", "a gate"], documents=3, length=4, seed=0)
    for (text, ids), source in zip(found, ["the king", "a gate", "the king"], strict=True):
        assert text in source.split()
        assert ids == [1, *[words.words.index(text)] * 4]
    again = repeated_token_documents(words, ["the king", "a gate"], documents=3, length=4, seed=0)
    assert again == found


def test_the_control_gives_a_mass_for_every_head_and_leaves_the_model(llama):
    before = {name: value.clone() for name, value in llama.state_dict().items()}
    found = repeated_token_control(llama, Words(), ["the king went", "out"], documents=2, length=9)
    assert len(found["sink_mass"]) == 12 and len(found["tokens"]) == 2
    assert all(0 < mass < 1 for mass in found["sink_mass"])
    for name, value in llama.state_dict().items():
        assert torch.equal(value, before[name])
    rows = ModelRows(llama, None, [[1, *[2] * 9]], queries=16)  # by hand, for the first token
    assert np.isfinite(next(iter(rows.blocks())).log_weights).all()


def test_a_control_needs_text(llama):
    with pytest.raises(sw.RowError, match="repeated_tokens"):
        sw.audit(llama, None, [[5, 9, 7, 30]], repeated_tokens=2)
    with pytest.raises(sw.InputTypeError, match="tokenizer"):
        repeated_token_control(llama, None, ["a b c"])


def test_the_control_is_kept_with_the_run(llama, tmp_path):
    texts = ["the king went out to the gate", "and the queen went in"]
    fresh = sw.audit(llama, Words(), texts, repeated_tokens=2, out=tmp_path / "run")
    assert sw.open_audit(tmp_path / "run").repeated_tokens() == fresh.repeated_tokens()
    assert sw.audit(llama, Words(), texts).repeated_tokens() is None
