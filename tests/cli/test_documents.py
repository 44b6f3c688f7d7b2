"""Documents from disk."""

from __future__ import annotations

import json

import pytest

from sinkwise.cli.documents import demo_texts, locate_documents
from sinkwise.errors import RowError


def test_paragraphs_blank_lines_of_white_space_and_line_ends_of_any_kind(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\nline\r\n \t\r\n\r\ntwo\n\nthree".encode())
    assert locate_documents(path).read() == ["one\nline", "two", "three"]


def test_json_lines_pass_over_blank_documents(tmp_path):
    path = tmp_path / "a.JSONL"
    records = [{"text": "one\n\nstill one"}, {"text": "  "}, {"id": 3, "text": "two"}]
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    assert locate_documents(path).read() == ["one\n\nstill one", "two"]


def test_reading_stops_at_the_limit(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n{"text": "two"}\nnot JSON\n', encoding="utf-8")
    assert locate_documents(path).read(2) == ["one", "two"]
    with pytest.raises(RowError, match="line 3"):
        locate_documents(path).read(3)


def test_demo_texts_are_sixteen_long_chapters():
    chapters = demo_texts()
    assert len(chapters) == 16
    assert len(set(chapters)) == 16
    # English text takes about four characters a token; 256 tokens need some 1,100.
    assert min(map(len, chapters)) > 2 * 1100
    assert demo_texts(3) == chapters[:3]


def test_images_in_order_of_their_path_as_rgb(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "b").mkdir()
    (tmp_path / ".cache").mkdir()
    image.new("L", (4, 3), 9).save(tmp_path / "b" / "2.PNG")
    image.new("RGBA", (5, 3)).save(tmp_path / "a.png")
    image.new("RGB", (6, 3)).save(tmp_path / ".cache" / "hidden.png")
    (tmp_path / "notes.txt").write_text("no image", encoding="utf-8")
    source = locate_documents(tmp_path)
    assert source.kind == "images"
    assert [(picture.size, picture.mode) for picture in source.read()] == [
        ((5, 3), "RGB"),
        ((4, 3), "RGB"),
    ]
    assert len(source.read(1)) == 1


def test_an_image_that_is_none_is_named(tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    with pytest.raises(RowError, match=r"broken\.png"):
        locate_documents(tmp_path).read()


def test_a_folder_without_images(tmp_path):
    with pytest.raises(RowError, match="holds no document: expected images"):
        locate_documents(tmp_path).read()
