"""Decoders that differ in how much attention they have to leave on the first token."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import torch
from experiments.byte_pairs import train_tokenizer
from experiments.decoders import (
    VARIANTS,
    first_key_mass,
    held_out_perplexity,
    new_decoder,
    train_decoder,
    unigram_perplexity,
    windows,
    with_first_key_mass,
)
from experiments.training import Recipe, next_token_loss

import sinkwise as sw
from experiments import decoders
from sinkwise.capture.load import load_model
from sinkwise.cli.documents import locate_documents
from sinkwise.errors import RowError

TINY = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
TEXTS = [f"And God said unto number {n}, Let there be light and {n} waters." for n in range(40)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocabulary=300, max_length=16)


@pytest.fixture
def model(tokenizer):
    return new_decoder(tokenizer, seed=0, **TINY, initializer_range=0.3).eval()


def test_windows_are_passages_after_a_beginning_token():
    stream = 10 + np.random.default_rng(0).permutation(50)  # each token names its place
    place = {int(token): number for number, token in enumerate(stream)}
    batches = windows(stream, 1, length=9, batch=64, seed=3)
    starts = set()
    for step in range(20):
        rows = batches(step).tolist()
        for row in rows:
            start = place[row[1]]
            assert row == [1, *stream[start : start + 8].tolist()]
            starts.add(start)
    assert starts == set(range(43))  # the first and the last passage too
    assert torch.equal(batches(5), batches(5))
    assert not torch.equal(batches(5), batches(6))
    assert not torch.equal(batches(5), windows(stream, 1, length=9, batch=64, seed=4)(5))


def test_a_stream_shorter_than_one_window():
    with pytest.raises(RowError, match=r"has 7 tokens, expected at least 8.*longer text"):
        windows(range(7), 1, length=9, batch=2, seed=0)


def test_the_same_seed_gives_the_same_weights(tokenizer):
    first, again, other = (new_decoder(tokenizer, seed=seed, **TINY) for seed in (0, 0, 1))
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_first_key_mass_is_the_sink_mass_of_an_audit(model, tokenizer):
    ids = tokenizer(TEXTS[0], truncation=True, return_tensors="pt").input_ids
    with torch.no_grad():
        weights = model(input_ids=ids, output_attentions=True).attentions
        mass = first_key_mass(weights)
    by_hand = [
        [np.mean([float(layer[0, head, query, 0]) for query in range(1, 16)]) for head in range(4)]
        for layer in weights
    ]
    np.testing.assert_allclose(mass.numpy(), by_hand, rtol=1e-5)
    ours = sw.audit(model, tokenizer, TEXTS[:1], queries="all").profile.sink_mass.to_numpy()
    late = np.mean([w[0, :, 2:, 0].numpy() for w in weights], axis=2).ravel()
    np.testing.assert_allclose(ours.ravel(), late, rtol=1e-5)  # rows of two content keys or more


def test_a_layer_pays_for_what_it_lacks_alone(model, tokenizer):
    ids = tokenizer(TEXTS[:3], truncation=True, return_tensors="pt").input_ids
    with torch.no_grad():
        plain = float(next_token_loss(model, ids))
        layers = first_key_mass(model(input_ids=ids, output_attentions=True).attentions).mean(1)
        low, high = sorted(layers.tolist())
        assert high - low > 1e-3
        between = (low + high) / 2
        paid = float(with_first_key_mass(between, price=7000.0)(model, ids)) - plain
        assert paid == pytest.approx(7000 * (between - low) ** 2 / 2, rel=1e-2)
        both = float(with_first_key_mass(0.9, price=7000.0)(model, ids)) - plain
        assert both == pytest.approx(7000 * ((0.9 - low) ** 2 + (0.9 - high) ** 2) / 2, rel=1e-4)
    assert with_first_key_mass(0) is next_token_loss


def test_held_out_perplexity_weighs_tokens_alike(model, tokenizer):
    documents = [
        tokenizer(text, truncation=True, return_tensors="pt").input_ids for text in TEXTS[:2]
    ]
    documents[1] = documents[1][:, :5]
    perplexity, mass = held_out_perplexity(model, documents)
    surprises, masses = [], []
    with torch.no_grad():
        for ids in documents:
            out = model(input_ids=ids, output_attentions=True)
            logits = out.logits[0].double()
            chosen = logits.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])
            surprises += (-chosen).ravel().tolist()
            masses.append(first_key_mass(out.attentions))
    assert len(surprises) == 15 + 4
    assert perplexity == pytest.approx(math.exp(np.mean(surprises)), rel=1e-5)
    torch.testing.assert_close(mass, (masses[0] + masses[1]) / 2)


def test_unigram_perplexity_of_a_token_never_seen():
    documents = [torch.tensor([[0, 2]]), torch.tensor([[0, 0]])]
    share = np.array([3, 2, 1]) / 6  # counts 2, 1, 0, each once more
    expected = math.exp(-np.log([share[2], share[0]]).mean())
    assert unigram_perplexity([0, 0, 1], documents, vocabulary=3) == pytest.approx(expected)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("decoders")
    texts = out / "texts.txt"
    texts.write_text("\n\n".join(TEXTS), encoding="utf-8")
    recipe = Recipe(steps=40, learning_rate=1e-2)
    options = {"texts": texts, "recipe": recipe, "length": 16, "batch": 4} | TINY
    return out, {name: train_decoder(name, out / name, **options) for name in ("weak", "strong")}


def test_the_share_asked_for_is_what_parts_strong_from_weak(trained):
    _, records = trained
    weak, strong = (np.mean(records[name]["first_key_mass"]) for name in ("weak", "strong"))
    assert strong > VARIANTS["strong"] - 0.15
    assert weak < 0.3
    same = ("seed", "recipe", "window", "batch", "parameters", "training_tokens", "price")
    assert all(records["weak"][key] == records["strong"][key] for key in same)
    for record in records.values():
        assert record["perplexity"] < record["unigram_perplexity"]


def test_a_trained_folder_is_what_the_commands_read(trained):
    out, records = trained
    loaded = load_model(out / "strong")
    assert loaded.kind == "decoder"
    assert json.loads((out / "strong" / "training.json").read_text()) == records["strong"]
    documents = locate_documents(out / "strong" / "evaluation.txt").read()
    assert documents == TEXTS[8::10]
    assert locate_documents(out / "strong" / "calibration.txt").read() == TEXTS[4::10]
    ids = loaded.processor(documents[0], truncation=True, return_tensors="pt").input_ids
    assert ids.shape == (1, 16)
    assert ids[0, 0] == loaded.processor.bos_token_id
    loaded.model.set_attn_implementation("eager")
    encoded = [
        loaded.processor(text, truncation=True, return_tensors="pt").input_ids for text in documents
    ]
    perplexity, mass = held_out_perplexity(loaded.model, encoded)
    assert perplexity == pytest.approx(records["strong"]["perplexity"], rel=1e-5)
    np.testing.assert_allclose(mass.numpy(), records["strong"]["first_key_mass"], rtol=1e-4)


@pytest.mark.parametrize("asked", [None, ["weak"], ["strong", "weak"]])
def test_the_command_trains_what_is_asked_for(asked, monkeypatch, tmp_path, capsys):
    calls = []

    def noted(variant, out, *, texts, seed):
        calls.append((variant, out, texts, seed))
        return {"perplexity": 9.87, "unigram_perplexity": 123.4}

    monkeypatch.setattr(decoders, "train_decoder", noted)
    chosen = [word for name in asked or () for word in ("--variant", name)]
    arguments = ["decoders", "--out", str(tmp_path), "--seed", "3", *chosen]
    monkeypatch.setattr(sys, "argv", arguments)
    decoders.main()
    expected = asked or ["weak", "moderate", "strong"]
    assert calls == [(name, tmp_path / name, None, 3) for name in expected]
    assert "perplexity 9.87 (unigram 123)" in capsys.readouterr().out
