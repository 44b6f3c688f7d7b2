"""Which keys a query may see, which of them are its sink, and where documents begin.

Absent keys (causal, window, padding, other document) are decided here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.namespace import to_numpy

__all__ = ["DocumentMask", "document_masks"]


@dataclass(frozen=True)
class DocumentMask:
    """What one document sees of its map.

    Attributes
    ----------
    queries
        Rows of the map that belong to the document.
    positions
        Their positions in the document, its real tokens counted from 0.
    own
        ``(keys,)`` the document's real keys.
    support, sink
        ``(queries, keys)`` over the whole map's keys; the sink without a virtual column.
    padding
        Query rows left out because they stand at padding.
    """

    queries: np.ndarray
    positions: np.ndarray
    own: np.ndarray
    support: np.ndarray
    sink: np.ndarray
    padding: int


def document_masks(
    lead: tuple[int, ...],
    n_queries: int,
    n_keys: int,
    *,
    sink: Any,
    causal: bool,
    where: Any,
    segments: Any,
) -> list[list[DocumentMask]]:
    """Return, for every map of the leading shape, the documents packed in it (often one)."""
    maps = int(np.prod(lead, dtype=int))
    real, seen = _split_where(where, lead, n_queries, n_keys)
    parts = _read(segments, lead, n_keys, "segments")
    out = []
    for i in range(maps):
        keys = np.ones(n_keys, bool) if real is None else real[i]
        if parts is None:
            owners = [keys]
        else:
            labels = parts[i]
            real_labels = [s for s in dict.fromkeys(labels[keys].tolist()) if s >= 0]
            owners = [keys & (labels == s) for s in real_labels]
        known = real is not None or parts is not None
        documents = [
            _one(keys, owner, n_queries, n_keys, sink, causal, seen, i, lead, known)
            for owner in owners
        ]
        if documents:
            taken = sum(len(d.queries) for d in documents)
            documents[0] = replace(documents[0], padding=n_queries - taken)
        out.append(documents)
    return out


def _one(
    keys: np.ndarray,
    owner: np.ndarray,
    n_queries: int,
    n_keys: int,
    sink: Any,
    causal: bool,
    seen: np.ndarray | None,
    index: int,
    lead: tuple[int, ...],
    known: bool,
) -> DocumentMask:
    # the key at which each query stands: the same one in a square map, else the last real ones
    if n_queries == n_keys:
        columns = np.arange(n_keys)
    elif causal or known:
        real = np.flatnonzero(keys)
        if causal and len(real) < n_queries:
            raise RowError(
                f"{n_queries} queries over {len(real)} real keys: a causal map has no more queries "
                "than keys"
            )
        columns = real[-n_queries:] if len(real) >= n_queries else np.arange(n_queries)
    else:
        columns = np.arange(n_queries)
    own = n_queries == n_keys or causal
    rows = np.flatnonzero(owner[columns]) if own else np.arange(n_queries)
    support = np.broadcast_to(owner, (len(rows), n_keys)).copy()
    if causal:
        support &= np.arange(n_keys) <= columns[rows, None]
    if seen is not None:
        support = support & seen[index][..., rows, :]
    start = int(np.argmax(owner)) if owner.any() else 0
    order = np.cumsum(owner) - 1
    positions = order[columns[rows]] if own else rows
    mask = _sink(sink, owner, start, rows, n_keys, index, lead)
    return DocumentMask(rows, positions, owner, support, mask, 0)


def _sink(
    sink: Any,
    owner: np.ndarray,
    start: int,
    rows: np.ndarray,
    n_keys: int,
    index: int,
    lead: tuple[int, ...],
) -> np.ndarray:
    shape = (len(rows), n_keys)
    mask = np.zeros(n_keys, bool)
    items = sink if isinstance(sink, tuple | list) else (sink,)
    if all(isinstance(i, str | int | np.integer) and not isinstance(i, bool) for i in items):
        columns = np.flatnonzero(owner)
        for item in items:
            if item == "virtual" or (item == "found" and len(items) == 1):
                continue  # decided from the rows themselves
            if item == "first":
                mask[start] = True
            elif isinstance(item, str):
                raise RowError(
                    f'sink={item!r}: rows take "first", "found", "virtual", an index, a tuple or '
                    "a mask"
                )
            elif not -len(columns) <= item < len(columns):
                raise RowError(
                    f"sink index {item} is out of range: a document has {len(columns)} real keys"
                )
            else:
                mask[columns[item]] = True
        return np.broadcast_to(mask, shape)
    given = to_numpy(sink)
    if given.dtype != bool:
        raise RowError(
            f"sink mask has dtype {given.dtype}, expected bool; for several indices pass a tuple"
        )
    if given.ndim == 1 and given.shape == (n_keys,):
        return np.broadcast_to(given, shape)
    if given.shape == (*lead, n_keys):
        return np.broadcast_to(given.reshape(-1, n_keys)[index], shape)
    if given.shape[-1] == n_keys and given.shape[:-2] == lead and given.ndim == len(lead) + 2:
        return given.reshape(-1, *given.shape[-2:])[index][rows]
    raise RowError(
        f"the sink mask has shape {given.shape}; expected (keys,), {(*lead, 'keys')} or "
        f"{(*lead, 'queries', 'keys')} with {n_keys} keys"
    )


def _split_where(
    where: Any, lead: tuple[int, ...], n_queries: int, n_keys: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return real keys ``(maps, keys)`` and a finer mask ``(maps, [heads,] queries, keys)``."""
    if where is None:
        return None, None
    mask = to_numpy(where)
    if mask.dtype != bool:
        if not np.isin(mask, (0, 1)).all():
            raise RowError("where= must be boolean (or an attention mask of zeros and ones)")
        mask = mask.astype(bool)
    maps = int(np.prod(lead, dtype=int))
    if mask.ndim == 1 or mask.ndim == len(lead) + 1:
        shape = (*lead, n_keys)
        return _broadcast(mask, shape).reshape(maps, n_keys), None
    if mask.ndim == len(lead) + 2:
        shape = (*lead, n_queries, n_keys)
        return None, _broadcast(mask, shape).reshape(maps, n_queries, n_keys)
    raise RowError(
        f"where= has shape {mask.shape}; expected (keys,), {(*lead, n_keys)} for padding or "
        f"{(*lead, n_queries, n_keys)} for a map"
    )


def _read(value: Any, lead: tuple[int, ...], n_keys: int, name: str) -> np.ndarray | None:
    if value is None:
        return None
    array = to_numpy(value)
    if array.dtype.kind not in "iu":
        raise RowError(f"{name} must be whole numbers, one per key (-1 for padding)")
    return _broadcast(array, (*lead, n_keys)).reshape(-1, n_keys)


def _broadcast(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise RowError(
            f"a mask of shape {mask.shape} does not fit maps that need {shape}; put a leading "
            "axis of 1 where it is the same for all"
        ) from None
