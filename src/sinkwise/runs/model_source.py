"""What a run is given: a model with its tokenizer, and documents, told apart by a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sinkwise.errors import RowError

__all__ = ["documents_digest", "refuse_shared_documents", "unwrapped"]


def unwrapped(source: Any, processor: Any) -> tuple[Any, Any, dict[str, str]]:
    """Return a model and its tokenizer or image processor, and how the model was asked for.

    A :class:`~sinkwise.capture.load.LoadedModel` brings all three.
    """
    if hasattr(source, "model") and hasattr(source, "kind"):
        named = {"model": source.name, "revision": source.revision}
        return (
            source.model,
            source.processor if processor is None else processor,
            {key: value for key, value in named.items() if value},
        )
    return source, processor, {}


def documents_digest(inputs: Iterable[Any] | None) -> str:
    """Return a fingerprint of documents: a run must not go on with others."""
    digest = hashlib.sha256()
    for item in () if inputs is None else inputs:
        if isinstance(item, str | Path):
            digest.update(str(item).encode())
        elif hasattr(item, "tobytes"):
            digest.update(item.tobytes())
        else:
            digest.update(repr(item).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def refuse_shared_documents(texts: Sequence[Any], eval_texts: Sequence[Any]) -> None:
    """Refuse held-out documents that are calibration documents too.

    Raises
    ------
    RowError
        Naming the first that stands in both.
    """
    seen = {documents_digest([text]): number for number, text in enumerate(texts)}
    for number, text in enumerate(eval_texts):
        same = seen.get(documents_digest([text]))
        if same is not None:
            raise RowError(
                f"held-out document {number} is calibration document {same}: what was chosen is "
                "judged on documents that did not choose it, so take it out of one of the two"
            )
