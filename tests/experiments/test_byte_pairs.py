"""Any text has tokens and comes back from them; the beginning token stands first."""

from __future__ import annotations

import pytest
from experiments.byte_pairs import BOS, PAD, token_stream, train_tokenizer
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

TEXTS = ["In the beginning God created the heaven and the earth.", "And the earth was void."]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocabulary=280, max_length=6)


@given(text=st.text().filter(lambda text: BOS not in text and PAD not in text))
def test_any_text_comes_back(tokenizer, text):
    clean = text.encode("utf-8", "replace").decode("utf-8")  # no half of a surrogate pair
    tokens = token_stream(tokenizer, [clean])
    assert tokenizer.decode(tokens) == clean
    assert all(2 <= token < 280 for token in tokens)  # neither special token, nor one too many


def test_a_text_is_cut_after_its_beginning_token(tokenizer):
    ids = tokenizer(TEXTS[0], truncation=True)["input_ids"]
    assert ids == [tokenizer.bos_token_id, *token_stream(tokenizer, TEXTS[:1])[:5]]


def test_without_a_beginning_token_there_is_none():
    tokenizer = train_tokenizer(TEXTS, vocabulary=280, beginning=False)
    assert tokenizer.bos_token is None
    assert tokenizer(TEXTS[0])["input_ids"] == token_stream(tokenizer, TEXTS[:1])


def test_merges_are_those_of_the_training_texts(tokenizer):
    assert len(tokenizer) == 280
    assert len(token_stream(tokenizer, TEXTS[:1])) < len(TEXTS[0])
    assert len(token_stream(tokenizer, ["zq#"])) == 3


def test_it_is_the_same_after_saving(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert again(TEXTS)["input_ids"] == tokenizer(TEXTS)["input_ids"]
    assert (again.model_max_length, again.bos_token) == (6, BOS)
