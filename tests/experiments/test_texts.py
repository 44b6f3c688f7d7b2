"""Held-out documents are never trained on, and are read back as they were."""

from __future__ import annotations

import json

import pytest
from experiments.texts import split_texts

from sinkwise.cli.documents import demo_texts, locate_documents
from sinkwise.errors import RowError


def _file(path, documents):
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def test_documents_are_parted_by_the_last_digit_of_their_number(tmp_path):
    split = split_texts(_file(tmp_path / "texts.txt", [f"chapter {n}" for n in range(25)]))
    assert split.calibration == ("chapter 4", "chapter 14", "chapter 24")
    assert split.evaluation == ("chapter 8", "chapter 18")
    held_out = {4, 14, 24, 8, 18}
    assert split.training == tuple(f"chapter {n}" for n in range(25) if n not in held_out)


def test_a_held_out_document_that_stands_twice_is_not_trained_on(tmp_path):
    documents = [f"chapter {n}" for n in range(20)]
    documents[0], documents[13] = documents[8], documents[14]
    split = split_texts(_file(tmp_path / "texts.txt", documents))
    assert not {*split.training} & {*split.calibration, *split.evaluation}
    assert len(split.training) == 20 - 4 - 2


def test_the_bundled_text_is_the_default():
    split = split_texts()
    documents = demo_texts()
    assert split.calibration == (documents[4], documents[14])
    assert split.evaluation == (documents[8],)
    assert len(split.training) == 13


def test_too_few_documents_to_hold_any_out(tmp_path):
    with pytest.raises(RowError, match=r"holds 8 documents, expected at least 9.*blank lines"):
        split_texts(_file(tmp_path / "texts.txt", [f"chapter {n}" for n in range(8)]))
    assert split_texts(_file(tmp_path / "texts.txt", [f"chapter {n}" for n in range(9)])).evaluation


def test_held_out_documents_are_read_back_one_by_one(tmp_path):
    texts = tmp_path / "texts.jsonl"
    documents = [f"chapter {n}\n\nverse — “é”" for n in range(30)]
    texts.write_text("\n".join(json.dumps({"text": d}) for d in documents), encoding="utf-8")
    split = split_texts(texts)
    split.save_held_out(tmp_path)
    for name in ("calibration", "evaluation"):
        held_out = getattr(split, name)
        assert len(held_out) == 3
        read = locate_documents(tmp_path / f"{name}.txt").read()
        assert read == [document.replace("\n\n", "\n") for document in held_out]
