"""What a run is given: a model with its tokenizer, and documents, told apart by a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["documents_digest", "unwrapped"]


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
