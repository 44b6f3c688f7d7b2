"""The repeated-token control: one token over and over, so that position alone can make a sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.accumulate.profile import ProfileSums, profile_sums
from sinkwise.capture.source import ModelRows
from sinkwise.errors import InputTypeError, RowError

if TYPE_CHECKING:
    import torch

__all__ = ["repeated_token_control", "repeated_token_documents"]

_LENGTH = 64
_QUERIES = 16


def repeated_token_control(
    model: torch.nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    documents: int = 4,
    length: int = _LENGTH,
    sink: Any = "first",
    seed: int = 0,
) -> dict[str, Any]:
    """Measure every head's sink mass on documents of one repeated token each.

    Every key then holds the same token, so content cannot single one out: a sink that stays is
    made by position (or by the tokenizer's own beginning token, which is kept); one that goes
    needs something of the text.

    Parameters
    ----------
    model, tokenizer
        As for an audit; the model is left as it was found.
    texts
        Where the repeated tokens are drawn from: one token of each of `documents` texts.
    documents
        How many tokens to repeat.
    length
        How often each is repeated.
    sink
        As for an audit.
    seed
        Of the draw.

    Returns
    -------
    dict
        ``tokens`` (text of each), ``length``, and ``sink_mass``, one mean per head.

    Raises
    ------
    InputTypeError
        Without a tokenizer.
    """
    drawn = repeated_token_documents(
        tokenizer, texts, documents=documents, length=length, seed=seed
    )
    ids = [document for _, document in drawn]
    rows = ModelRows(model, tokenizer, ids, sink=sink, queries=_QUERIES, seed=seed)
    total = ProfileSums.zero(len(rows.heads))
    for block in rows.blocks():
        total = total.merge(profile_sums(block))
    return {
        "tokens": [text for text, _ in drawn],
        "length": length,
        "sink_mass": total.means()["sink_mass"].tolist(),
    }


def repeated_token_documents(
    tokenizer: Any, texts: Sequence[str], *, documents: int, length: int, seed: int
) -> list[tuple[str, list[int]]]:
    """Return the text of each drawn token with its document, special tokens where they belong."""
    if tokenizer is None or not callable(tokenizer):
        raise InputTypeError("the repeated-token control needs the model's tokenizer")
    if documents < 1 or length < 3:
        raise RowError(f"documents={documents}, length={length}: expected at least 1 and 3")
    rng = np.random.default_rng(seed)
    found: list[tuple[str, list[int]]] = []
    for number in range(documents):
        text = texts[number % len(texts)]
        bare = list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if not bare:
            raise RowError(f"text {number % len(texts)} has no token to repeat")
        token = int(bare[int(rng.integers(len(bare)))])
        before, after = _special_tokens(tokenizer, token)
        found.append((str(tokenizer.decode([token])), [*before, *[token] * length, *after]))
    return found


def _special_tokens(tokenizer: Any, token: int) -> tuple[list[int], list[int]]:
    """What the tokenizer itself puts before and after a text."""
    text = tokenizer.decode([token]) or "a"
    whole = list(tokenizer(text)["input_ids"])
    bare = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return whole[:start], whole[start + len(bare) :]
    return [], []
