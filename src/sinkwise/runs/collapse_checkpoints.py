"""From what a collapse study is given to its checkpoints, each opened when its turn comes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkwise.errors import InputTypeError, RowError
from sinkwise.rowdata import RowSource
from sinkwise.runs.checkpoints import CheckpointSource, locate_checkpoint, step_of_name
from sinkwise.runs.model_source import unwrapped

__all__ = ["OpenedCheckpoint", "opened_sources"]


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint that can give its rows.

    Attributes
    ----------
    name, step
        As in :class:`~sinkwise.studies.collapse.Checkpoint`.
    fingerprint
        Of its files, its weights or its rows; None on the hub.
    rows
        Makes its rows for a sink; what it loads is let go with them.
    """

    name: str
    step: int | None
    fingerprint: str | None
    rows: Callable[[Any], RowSource]


def opened_sources(
    given: Mapping[str, Any],
    processor: Any,
    texts: Sequence[Any] | None,
    options: Mapping[str, Any],
    loading: Mapping[str, Any],
) -> list[OpenedCheckpoint]:
    """Return the checkpoints of a study in the order of `given`.

    Parameters
    ----------
    given
        By name: a :class:`~sinkwise.runs.checkpoints.CheckpointSource`, a place to load from, a
        model, or rows.
    processor, texts
        As in :func:`~sinkwise.runs.collapse.collapse_study`.
    options
        Of :class:`~sinkwise.capture.source.ModelRows`.
    loading
        Of :func:`~sinkwise.capture.load.load_model`.

    Raises
    ------
    RowError
        If rows came with options for models, or a model without texts.
    """
    return [
        _opened(str(name), value, processor, texts, options, loading)
        for name, value in given.items()
    ]


def _opened(
    name: str,
    value: Any,
    processor: Any,
    texts: Sequence[Any] | None,
    options: Mapping[str, Any],
    loading: Mapping[str, Any],
) -> OpenedCheckpoint:
    if hasattr(value, "blocks") and hasattr(value, "heads"):
        if texts is not None or processor is not None:
            raise RowError("rows are complete: give no tokenizer and no texts with them")
        return OpenedCheckpoint(
            name, step_of_name(name), _rows_fingerprint(value), lambda sink: _own(value, sink)
        )
    if texts is None or isinstance(texts, str):
        raise RowError(
            "give a list of texts (or images): sw.collapse_study(checkpoints, processor=tokenizer, "
            "texts=texts)"
        )
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        value = locate_checkpoint(value, name)
    if isinstance(value, CheckpointSource):
        source = value
        return OpenedCheckpoint(
            name,
            source.step,
            source.fingerprint,
            lambda sink: _model_rows(_load(source, processor, loading), None, texts, sink, options),
        )
    if hasattr(value, "shape") or isinstance(value, tuple | list):
        raise InputTypeError(
            f"checkpoint {name} is a bare array or a list of maps, which has no sink: "
            "sw.rows(weights, sink=...)"
        )
    return OpenedCheckpoint(
        name,
        step_of_name(name),
        _model_fingerprint(value),
        lambda sink: _model_rows(value, processor, texts, sink, options),
    )


def _own(rows: RowSource, sink: Any) -> RowSource:
    if sink != "first":
        raise RowError(f"sink={sink!r} is an option for models: rows have their sink already")
    return rows


def _rows_fingerprint(rows: RowSource) -> str:
    digest = hashlib.sha256()
    for block in rows.blocks():
        digest.update(np.ascontiguousarray(block.log_weights).tobytes())
    return digest.hexdigest()[:16]


def _model_fingerprint(model: Any) -> str:
    from sinkwise.capture.interface import require_transformers_model
    from sinkwise.capture.source import weights_fingerprint

    model, _, _ = unwrapped(model, None)
    require_transformers_model(model)
    return weights_fingerprint(model)


def _load(source: CheckpointSource, processor: Any, loading: Mapping[str, Any]) -> Any:
    from sinkwise.capture.load import load_model

    return load_model(source.where, revision=source.revision, processor=processor, **loading)


def _model_rows(
    model: Any, processor: Any, texts: Sequence[Any], sink: Any, options: Mapping[str, Any]
) -> RowSource:
    from sinkwise.capture.source import ModelRows

    model, processor, _ = unwrapped(model, processor)
    given = {key: value for key, value in options.items() if value is not None}
    return ModelRows(model, processor, texts, sink=sink, **given)
