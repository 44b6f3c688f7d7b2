"""Texts and images as batches a model can run, and what the convention card says of them."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sinkwise.errors import InputTypeError, MissingExtraError, RowError

if TYPE_CHECKING:
    import torch

__all__ = ["Batch", "Documents", "ImageDocuments", "TextDocuments", "open_documents"]

_log = logging.getLogger("sinkwise.capture")
_FEWEST_TOKENS = 3
_LIKE_LENGTHS = 1.5


@dataclass(frozen=True)
class Batch:
    """What the model is given, and where each document's own tokens stand in it."""

    documents: tuple[int, ...]
    inputs: Mapping[str, torch.Tensor]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    width: int

    @property
    def padded(self) -> bool:
        """Whether any document is shorter than the batch."""
        return any(b - a < self.width for a, b in zip(self.starts, self.stops, strict=True))


class Documents(Protocol):
    """Documents of one kind, numbered from 0 without gaps."""

    def __len__(self) -> int: ...
    def plan(self, batch_size: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Consecutive documents to run together, and the width they are padded to."""
        ...

    def length(self, document: int) -> int:
        """Tokens of a document, without padding."""
        ...

    def batch(self, documents: Sequence[int], width: int) -> Batch:
        """Inputs on the CPU."""
        ...

    def probe(self) -> Batch:
        """One short batch that shows how the model attends."""
        ...

    def tokens(self, document: int) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Text of every token, and which of them begin a document; None without text."""
        ...

    def card(self) -> dict[str, Any]:
        """What the convention card says of the documents."""
        ...


def open_documents(
    model: torch.nn.Module,
    processor: Any,
    inputs: Sequence[Any],
    *,
    max_length: int | None,
    documents: int | None,
) -> Documents:
    """Return the documents in the form that `model` reads: tokens, or images.

    Raises
    ------
    InputTypeError
        If `inputs` is a single text, or of a kind the model doesn't read.
    RowError
        If nothing usable is left.
    """
    if isinstance(inputs, (str, bytes, Path)) or not hasattr(inputs, "__len__"):
        raise InputTypeError(
            f"inputs of class {type(inputs).__name__} arrived, expected a list of documents: type "
            "[text] for one text, or list(...) for an iterator"
        )
    if documents is not None and documents < 1:
        raise RowError(f"documents={documents} arrived, expected a number of at least 1")
    chosen = list(inputs[:documents])
    main_input = getattr(model, "main_input_name", "input_ids")
    if main_input == "pixel_values":
        return ImageDocuments(processor, chosen)
    if main_input == "input_ids":
        return TextDocuments(model, processor, chosen, max_length=max_length)
    raise InputTypeError(
        f"{type(model).__name__} reads {main_input}, expected a model of texts (input_ids) or "
        "images (pixel_values): capture the text or vision part of the model on its own"
    )


class TextDocuments:
    """Tokenised texts, or token ids as they are.

    Parameters
    ----------
    model
        Its forward decides whether positions may be given, its config how many there are.
    tokenizer
        Used as it is: its own special tokens and padding side, never changed.  May be ``None``
        when `texts` holds sequences of token ids.
    texts
        Strings, or sequences of token ids.
    max_length
        Longest document in tokens; longer ones are cut by the tokenizer.  By default, and at
        most, what the model has positions for.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: Any,
        texts: Sequence[Any],
        *,
        max_length: int | None,
    ) -> None:
        if max_length is not None and max_length < _FEWEST_TOKENS:
            raise RowError(
                f"max_length={max_length} arrived, expected at least {_FEWEST_TOKENS}: a row needs "
                "the sink and two content tokens"
            )
        limit = _position_limit(model, tokenizer)
        if limit is not None and max_length is not None and max_length > limit:
            _log.warning("max_length %d cut to the model's %d positions", max_length, limit)
        self._max_length = min((n for n in (limit, max_length) if n is not None), default=None)
        self._tokenizer = tokenizer
        self._position_ids = _takes_positions(model)
        self._padding_side = _padding_side(tokenizer, self._position_ids)
        self._truncated = 0
        self._text_of: dict[int, str] = {}
        tokens = [self._tokens(text, number) for number, text in enumerate(texts)]
        _require_known_ids(model, tokens)
        self._short = [i for i, ids in enumerate(tokens) if len(ids) < _FEWEST_TOKENS]
        self._ids = [ids for ids in tokens if len(ids) >= _FEWEST_TOKENS]
        if not self._ids:
            raise RowError(
                f"{len(texts)} texts arrived and none has {_FEWEST_TOKENS} tokens or more: a row "
                "needs the sink and two content tokens, so pass longer texts"
            )

    def __len__(self) -> int:
        return len(self._ids)

    def length(self, document: int) -> int:
        """Tokens of a document, special ones among them."""
        return len(self._ids[document])

    def plan(self, batch_size: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield runs of consecutive documents whose lengths are within a factor of 1.5."""
        group: list[int] = []
        shortest = longest = 0
        for document, ids in enumerate(self._ids):
            low, high = min(shortest or len(ids), len(ids)), max(longest, len(ids))
            if group and (len(group) == batch_size or high > _LIKE_LENGTHS * low):
                yield tuple(group), longest
                group, low, high = [], len(ids), len(ids)
            group.append(document)
            shortest, longest = low, high
        if group:
            yield tuple(group), longest

    def batch(self, documents: Sequence[int], width: int) -> Batch:
        """Return the documents padded to `width` on the tokenizer's side."""
        return self._pad([self._ids[d] for d in documents], tuple(documents), width)

    def tokens(self, document: int) -> tuple[np.ndarray, np.ndarray] | tuple[None, None]:
        """Return the text of every token, and bool ``(tokens,)`` for the beginning token."""
        ids = self._ids[document]
        if self._tokenizer is None or not hasattr(self._tokenizer, "decode"):
            return None, None
        for token in np.unique(ids).tolist():
            if token not in self._text_of:
                self._text_of[token] = str(self._tokenizer.decode([token]))
        begins = {getattr(self._tokenizer, f"{name}_token_id", None) for name in ("bos", "cls")}
        bos = np.isin(ids, [i for i in begins if isinstance(i, int)])
        return np.array([self._text_of[i] for i in ids.tolist()], dtype=np.str_), bos

    def probe(self) -> Batch:
        """Return the first 16 tokens of the first document."""
        ids = self._ids[0][:16]
        return self._pad([ids], (0,), len(ids))

    def card(self) -> dict[str, Any]:
        """Return lengths, truncation, padding and special tokens."""
        lengths = [len(ids) for ids in self._ids]
        tokenizer = self._tokenizer
        special = getattr(tokenizer, "special_tokens_map", None) or {}
        firsts = {int(ids[0]) for ids in self._ids}
        bos = getattr(tokenizer, "bos_token_id", None)
        cls = getattr(tokenizer, "cls_token_id", None)
        begins = "bos" if firsts == {bos} else "cls" if firsts == {cls} else "text"
        return {
            "documents": len(lengths),
            "lengths": _summary(lengths),
            "tokens": int(sum(lengths)),
            "max_length": self._max_length,
            "truncated": self._truncated,
            "skipped_documents": {"fewer_than_3_tokens": len(self._short)} if self._short else {},
            "skipped_texts": list(self._short),
            "padding_side": self._padding_side,
            "special_tokens": {name: str(token) for name, token in special.items()},
            "begins_with": begins,
            "tokenizer": type(tokenizer).__name__ if tokenizer is not None else None,
        }

    def _tokens(self, text: Any, number: int) -> np.ndarray:
        if isinstance(text, str):
            if self._tokenizer is None:
                raise InputTypeError(
                    f"text {number} is a string and no tokenizer was given: pass the model's "
                    "tokenizer, transformers.AutoTokenizer.from_pretrained(...)"
                )
            ids = self._tokenizer(text, verbose=False)["input_ids"]
            if self._max_length is not None and len(ids) > self._max_length:
                self._truncated += 1
                cut = self._tokenizer(text, truncation=True, max_length=self._max_length)
                ids = cut["input_ids"]
            return np.asarray(ids, dtype=np.int64)
        ids = np.asarray(text)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise InputTypeError(
                f"document {number} is of class {type(text).__name__}, expected a string or a "
                "sequence of token ids"
            )
        if self._max_length is not None and len(ids) > self._max_length:
            self._truncated += 1
            ids = ids[: self._max_length]
        return ids.astype(np.int64)

    def _pad(self, rows: Sequence[np.ndarray], documents: tuple[int, ...], width: int) -> Batch:
        import torch

        ids = np.full((len(rows), width), _pad_token(self._tokenizer), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        starts = [width - len(r) if self._padding_side == "left" else 0 for r in rows]
        stops = [start + len(r) for start, r in zip(starts, rows, strict=True)]
        for i, row in enumerate(rows):
            ids[i, starts[i] : stops[i]] = row
            mask[i, starts[i] : stops[i]] = 1
        inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if any(starts):
            # a model counts positions from the first column; a document counts its own tokens
            positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
            inputs["position_ids"] = torch.from_numpy(positions)
        return Batch(documents, inputs, tuple(starts), tuple(stops), width)


class ImageDocuments:
    """Images, each one document whose tokens are the class token and the patches.

    Parameters
    ----------
    processor
        The model's image processor; may be ``None`` when `images` holds arrays
        ``(channels, height, width)`` that are already normalised.
    images
        PIL images, paths, arrays or tensors.
    """

    def __init__(self, processor: Any, images: Sequence[Any]) -> None:
        if not images:
            raise RowError("no image arrived: pass a list of at least one image or path")
        self._processor = processor
        self._images = list(images)
        self.n_tokens = 0

    def __len__(self) -> int:
        return len(self._images)

    def length(self, document: int) -> int:
        """Tokens of an image; known once the model has seen one."""
        return self.n_tokens

    def plan(self, batch_size: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield consecutive images; all have one size after the processor."""
        for first in range(0, len(self), batch_size):
            group = tuple(range(first, min(first + batch_size, len(self))))
            yield group, self.n_tokens

    def batch(self, documents: Sequence[int], width: int) -> Batch:
        """Return the pixel values of some images."""
        pixels = self._pixels([self._images[d] for d in documents])
        n = len(documents)
        inputs = {"pixel_values": pixels}
        return Batch(tuple(documents), inputs, (0,) * n, (self.n_tokens,) * n, self.n_tokens)

    def tokens(self, document: int) -> tuple[None, None]:
        """An image has no text."""
        return None, None

    def probe(self) -> Batch:
        """Return the first image."""
        return self.batch((0,), 0)

    def card(self) -> dict[str, Any]:
        """Return the number of images and their tokens."""
        return {
            "documents": len(self),
            "lengths": _summary([self.n_tokens]),
            "tokens": self.n_tokens * len(self),
            "max_length": None,
            "truncated": 0,
            "skipped_documents": {},
            "skipped_texts": [],
            "padding_side": None,
            "special_tokens": {},
            "begins_with": None,
            "tokenizer": type(self._processor).__name__ if self._processor is not None else None,
        }

    def _pixels(self, images: Sequence[Any]) -> torch.Tensor:
        import torch

        if self._processor is None:
            return torch.stack([torch.as_tensor(np.asarray(image)) for image in images]).float()
        opened = [_open_image(image) for image in images]
        return self._processor(images=opened, return_tensors="pt")["pixel_values"]


def _open_image(image: Any) -> Any:
    if not isinstance(image, (str, Path)):
        grey = getattr(image, "mode", "RGB") != "RGB"  # of PIL: grey, palette, with alpha
        return image.convert("RGB") if grey else image
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(
            'reading image files needs pillow, which is not installed; type: pip install "pillow"'
        ) from error
    try:
        with Image.open(image) as opened:
            return opened.convert("RGB")
    except OSError as error:
        raise RowError(
            f"{str(image)!r} is no image that can be opened ({error}): a vision model takes image "
            "files, PIL images or arrays"
        ) from error


def _require_known_ids(model: torch.nn.Module, tokens: Sequence[np.ndarray]) -> None:
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return  # a custom class that doesn't say; what it can't look up it will refuse itself
    known = getattr(embeddings, "num_embeddings", None)
    for number, ids in enumerate(tokens):
        if known is not None and ids.size and not (ids.min() >= 0 and ids.max() < known):
            bad = int(ids.min() if ids.min() < 0 else ids.max())
            raise RowError(
                f"document {number} holds the token id {bad}, and the model knows ids from 0 to "
                f"{known - 1}: use the model's own tokenizer"
            )


def _summary(lengths: Sequence[int]) -> dict[str, float]:
    return {"min": min(lengths), "mean": float(np.mean(lengths)), "max": max(lengths)}


def _pad_token(tokenizer: Any) -> int:
    """An id to fill with; whatever it is, no real token sees it."""
    for name in ("pad_token_id", "eos_token_id"):
        token = getattr(tokenizer, name, None)
        if isinstance(token, int):
            return token
    return 0


def _position_limit(model: torch.nn.Module, tokenizer: Any) -> int | None:
    config = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    limits = [getattr(config, "max_position_embeddings", None)]
    # without a limit of its own a tokenizer says 1e30
    limits.append(getattr(tokenizer, "model_max_length", None))
    return min((int(n) for n in limits if n is not None and 0 < n < 10**9), default=None)


def _takes_positions(model: torch.nn.Module) -> bool:
    """Whether positions may be given: not where a model derives them from its own pad token."""
    if any(hasattr(m, "create_position_ids_from_input_ids") for m in model.modules()):
        return False
    return "position_ids" in inspect.signature(model.forward).parameters


def _padding_side(tokenizer: Any, takes_positions: bool) -> str:
    side = getattr(tokenizer, "padding_side", "right")
    if side == "left" and not takes_positions:
        _log.info("padding on the right: this model's positions can't be shifted for left padding")
        return "right"
    return side
