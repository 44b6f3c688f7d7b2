"""Sums over rows, per document and head, of what a collapse study reports.

All statistics use one set of rows: those that every checkpoint can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sinkwise.channels.entropy import change_of_parts, split_of_parts
from sinkwise.errors import RunError
from sinkwise.studies.collapse_rows import CollapseStore

__all__ = ["CHANNELS", "RESIDUAL", "HeadSums", "change_sums", "checkpoint_sums", "usable_rows"]

CHANNELS = ("sink", "content", "within_sink")
"""The channels of a change; they add up to its total."""

RESIDUAL = 1e-10
"""Largest error, in nats, that the sum of the channels of one row may have."""


@dataclass(frozen=True)
class HeadSums:
    """Sums over rows by name and their number, float64 ``(documents, heads)`` each."""

    sums: Mapping[str, np.ndarray]
    rows: np.ndarray
    residual: float = 0.0


def usable_rows(store: CollapseStore, checkpoints: Sequence[str]) -> dict[int, np.ndarray]:
    """Return by document the rows that count, bool ``(heads, rows)``.

    Those that a head can use, less those that have no content distribution at some checkpoint:
    their content is all zero there, which only rows given as probabilities can be.
    """
    usable = {}
    for document in store.documents:
        valid = store.layout(document).valid.copy()
        for checkpoint in checkpoints:
            valid &= np.isfinite(store.parts(checkpoint, document).content_entropy)
        usable[document] = valid
    return usable


def checkpoint_sums(
    store: CollapseStore,
    checkpoint: str,
    usable: Mapping[int, np.ndarray],
    *,
    peaked: float,
    uniform: float,
) -> HeadSums:
    """Sum masses and entropies at one checkpoint.

    ``entropy`` and its split ``entropy_sink``, ``entropy_content``, ``entropy_within_sink``;
    ``sink_mass``; ``content_entropy``; ``content_evenness``, which is ``H(π) / log m`` with m
    content keys; ``peaked_rows`` and ``uniform_rows``, the rows whose evenness is below or above
    the bounds.
    """
    by_document = []
    for document, rows in usable.items():
        parts = store.parts(checkpoint, document)
        split = split_of_parts(parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            evenness = parts.content_entropy / np.log(store.layout(document).content_keys)
        values = {
            "entropy": split.total,
            "entropy_sink": split.sink,
            "entropy_content": split.content,
            "entropy_within_sink": split.within_sink,
            "sink_mass": parts.sink_mass,
            "content_entropy": parts.content_entropy,
            "content_evenness": evenness,
            "peaked_rows": (evenness < peaked).astype(np.float64),
            "uniform_rows": (evenness > uniform).astype(np.float64),
        }
        by_document.append(_summed(values, rows))
    return _stacked(by_document, usable)


def change_sums(
    store: CollapseStore, first: str, second: str, usable: Mapping[int, np.ndarray]
) -> HeadSums:
    """Sum the attributed changes of entropy between two checkpoints, row by row.

    ``total`` and its channels, and the changes of ``sink_mass`` and ``content_entropy``.

    Raises
    ------
    RunError
        If the channels of a row don't add up to the change of its entropy, to 1e-10: the numbers
        that were kept are damaged.
    """
    by_document, residual = [], 0.0
    for document, rows in usable.items():
        before, after = store.parts(first, document), store.parts(second, document)
        change = change_of_parts(before, after)
        direct = split_of_parts(after).total - split_of_parts(before).total
        errors = np.abs(direct - change.total)[rows]
        worst = float(errors.max()) if errors.size else 0.0
        if not worst <= RESIDUAL:
            raise RunError(
                f"document {document}: the channels of the change from {first} to {second} miss "
                f"its total by {worst:.3g} nats, expected at most {RESIDUAL:g}: what was kept of "
                "its rows is damaged; remove the run's folder and measure anew"
            )
        residual = max(residual, worst)
        values = {
            **change._asdict(),
            "sink_mass": after.sink_mass - before.sink_mass,
            "content_entropy": after.content_entropy - before.content_entropy,
        }
        by_document.append(_summed(values, rows))
    return _stacked(by_document, usable, residual)


def _summed(values: Mapping[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.where(rows, value, 0.0).sum(-1) for name, value in values.items()}


def _stacked(
    by_document: Sequence[Mapping[str, np.ndarray]],
    usable: Mapping[int, np.ndarray],
    residual: float = 0.0,
) -> HeadSums:
    names = by_document[0] if by_document else ()
    sums = {name: np.stack([found[name] for found in by_document]) for name in names}
    rows = np.stack([rows.sum(-1) for rows in usable.values()]).astype(np.float64)
    return HeadSums(sums, rows, residual)
