"""Documents from disk: text files, JSON lines, folders of images, and the bundled text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from sinkwise.errors import MissingExtraError, RowError

__all__ = ["DocumentFile", "demo_texts", "locate_documents"]

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class DocumentFile:
    """Where the documents of an audit lie: checked at once, read later.

    Attributes
    ----------
    path
        A ``.txt`` or ``.jsonl`` file, or a folder of images.
    kind
        ``"texts"`` or ``"images"``.
    """

    path: Path
    kind: Literal["texts", "images"]

    def read(self, limit: int | None = None) -> list[Any]:
        """Return the first `limit` documents (all, where None), in the order of the file.

        Reading stops there: a file larger than memory is no trouble while `limit` is small.
        Documents of white space alone are passed over.

        Raises
        ------
        RowError
            Where nothing readable stands in the file, with the line that is at fault.
        """
        if self.kind == "images":
            found: list[Any] = [_read_image(path) for path in islice(_images(self.path), limit)]
        else:
            try:
                with self.path.open(encoding="utf-8-sig") as lines:
                    found = list(islice(self._texts(lines), limit))
            except UnicodeDecodeError as error:
                raise RowError(
                    f"{self.path} is not UTF-8 text: {error}. "
                    f"Convert it, for example: iconv -f latin1 -t utf-8 {self.path.name}"
                ) from None
        if not found:
            raise RowError(f"{self.path} holds no document: {self._expected()}")
        return found

    def _texts(self, lines: Iterable[str]) -> Iterator[str]:
        if self.path.suffix.lower() == ".jsonl":
            return _texts_of_json_lines(lines, self.path)
        return _texts_of_paragraphs(lines)

    def _expected(self) -> str:
        if self.kind == "images":
            return "expected images in it or below it (" + ", ".join(sorted(IMAGE_SUFFIXES)) + ")."
        if self.path.suffix.lower() == ".jsonl":
            return 'expected one JSON object a line, such as {"text": "..."}.'
        return "expected documents parted by blank lines."


def locate_documents(path: Path) -> DocumentFile:
    """Check that `path` can hold documents, without reading them.

    Raises
    ------
    RowError
        Where there is no such file, or it is of a kind that cannot be read.
    """
    if path.is_dir():
        return DocumentFile(path, "images")
    if not path.exists():
        raise RowError(
            f"no file {path}: expected a .txt file with documents parted by blank lines, "
            "a .jsonl file with 'text', or a folder of images."
        )
    if path.suffix.lower() in IMAGE_SUFFIXES:
        raise RowError(f"{path} is one image; give the folder it lies in: --texts {path.parent}")
    if path.suffix.lower() not in {".txt", ".jsonl"}:
        raise RowError(
            f"{path} ends in {path.suffix!r}: expected .txt (documents parted by blank lines) "
            "or .jsonl (one object with 'text' a line); rename or convert it."
        )
    return DocumentFile(path, "texts")


def demo_texts(limit: int | None = None) -> list[str]:
    """Return the first `limit` of the 16 bundled public-domain chapters (all, where None)."""
    from importlib import resources

    text = resources.files("sinkwise").joinpath("data", "demo.txt").read_text(encoding="utf-8")
    return list(islice(_texts_of_paragraphs(text.splitlines()), limit))


def _texts_of_paragraphs(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        if line.strip():
            held.append(line.rstrip("\r\n"))
        elif held:
            yield "\n".join(held)
            held = []
    if held:
        yield "\n".join(held)


def _texts_of_json_lines(lines: Iterable[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RowError(f"{path}, line {number} is not JSON: {error}.") from None
        if not isinstance(record, dict):
            raise RowError(
                f"{path}, line {number} is a JSON {type(record).__name__}: "
                'expected an object such as {"text": "..."}.'
            )
        text = record.get("text")
        if not isinstance(text, str):
            keys = ", ".join(map(repr, list(record)[:8])) or "none"
            raise RowError(
                f"{path}, line {number} has no string under 'text' (its keys: {keys}). "
                "Rename the key that holds the document to 'text'."
            )
        if text.strip():
            yield text


def _images(folder: Path) -> Iterator[Path]:
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    visible = (
        path
        for path in paths
        if path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    return iter(sorted(visible, key=lambda path: path.relative_to(folder).as_posix()))


def _read_image(path: Path) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise MissingExtraError('reading images needs Pillow: pip install "sinkwise[hf]"') from None
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise RowError(f"{path} cannot be read as an image: {error}") from None
