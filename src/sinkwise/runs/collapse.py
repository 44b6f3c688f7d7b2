"""Run a collapse study: the same rows at every checkpoint, one checkpoint in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from sinkwise.errors import RowError, RunError, SinkwiseError
from sinkwise.rowdata import HeadId, RowSource
from sinkwise.runs.checkpoints import locate_checkpoints
from sinkwise.runs.collapse_checkpoints import OpenedCheckpoint, opened_sources
from sinkwise.runs.collapse_folder import CollapseFolder
from sinkwise.runs.files import write_json
from sinkwise.runs.model_source import documents_digest
from sinkwise.runs.versions import versions
from sinkwise.studies.collapse import CollapseStudy, check_bounds
from sinkwise.studies.collapse_records import Checkpoint
from sinkwise.studies.collapse_rows import (
    MemoryCollapseStore,
    RowLayout,
    joined_layout,
    joined_parts,
    row_layout,
    row_parts,
)
from sinkwise.studies.jsonable import jsonable

__all__ = ["collapse_study", "open_collapse"]

_log = logging.getLogger(__name__)


def collapse_study(
    checkpoints: Any,
    processor: Any = None,
    texts: Sequence[Any] | None = None,
    *,
    revisions: Sequence[str] = (),
    sink: Any = "first",
    sink_at: str | None = None,
    queries: int | Literal["all"] = 64,
    max_length: int | None = None,
    documents: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    trust_remote_code: bool = False,
    level: float = 0.95,
    peaked: float = 0.1,
    uniform: float = 0.95,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CollapseStudy:
    """Attribute changes of attention entropy over checkpoints: to the sink, or to the content.

    The same rows (documents, queries, sink) are measured at every checkpoint, one checkpoint in
    memory at a time.  Of each row four numbers are kept, so that any two checkpoints can be
    compared afterwards.

    Parameters
    ----------
    checkpoints
        Folders, ``.safetensors`` files, one folder that holds folders such as ``checkpoint-500``,
        or one hub id with `revisions`; or a mapping from names to any of: a place to load from, a
        model, a :class:`~sinkwise.capture.load.LoadedModel`, rows from :func:`sinkwise.rows`.
    processor
        One tokenizer or image processor for all; by default each checkpoint's own, which must
        then read the documents alike.
    texts
        Texts (or images); each is one document.
    revisions
        Of the hub id, in order of training.
    sink
        As in :func:`sinkwise.audit`.  ``"found"`` is found at one checkpoint and then held.
    sink_at
        Name of the checkpoint at which ``"found"`` sinks are found; by default the last one.
    queries, max_length, documents, seed, batch_size
        As in :func:`sinkwise.audit`.
    dtype, device, trust_remote_code
        As in :func:`sinkwise.load_model`, for checkpoints that are loaded here.
    level
        Two-sided level of intervals.
    peaked, uniform
        Bounds on ``H(π) / log m``, as in :class:`~sinkwise.studies.collapse.CollapseStudy`.
    out
        Folder for the study.  Without it everything stays in memory.
    resume
        Go on with the study in `out`, also with other checkpoints, or with a single one: they join
        those that were measured, and what is there of a checkpoint is not measured again.
    progress
        Called as ``progress(done, total)`` after every document of every checkpoint.

    Returns
    -------
    CollapseStudy

    Raises
    ------
    RowError
        On fewer than two checkpoints, options that say nothing, or checkpoints whose rows are
        not the same: other tokens, heads, queries or sinks; the message names which.
    CaptureError, InputTypeError
        If a checkpoint can't be loaded, or its rows can't be captured; the message names it.
    RunError
        If `out` holds something else, or a checkpoint of one name with other weights.

    Notes
    -----
    One pass over the documents for each checkpoint; 32 bytes for each checkpoint, document, head
    and query.

    Examples
    --------
    >>> import numpy as np, sinkwise as sw
    >>> z = np.random.default_rng(0).normal(size=(5, 2, 6, 8))  # documents, heads, queries, keys
    >>> grown = z + 3 * (np.arange(8) == 0)  # the sink's logits rise, the content stays
    >>> study = sw.collapse_study({
    ...     "step0": sw.rows(z, sink=0, logits=True), "step9": sw.rows(grown, sink=0, logits=True)})
    >>> study.overall.verdict, round(float(study.overall.shares["sink"].value), 6)
    ('sink grew', 1.0)
    """
    check_bounds(level, peaked, uniform)
    if texts is not None:
        from sinkwise.capture.load import torch_dtype

        torch_dtype(dtype)  # refused before anything is written
    options: dict[str, Any] = {
        "queries": queries,
        "max_length": max_length,
        "documents": documents,
        "seed": seed,
        "batch_size": batch_size,
    }
    folder = None if out is None else CollapseFolder(out)
    going_on = folder is not None and resume and folder.begun
    kept = folder.measured() if folder is not None and going_on else []
    loading = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
    if isinstance(checkpoints, Mapping):
        if revisions:
            raise RowError("revisions belong to one hub id, and a mapping of checkpoints arrived")
        sources = opened_sources(checkpoints, processor, texts, options, loading)
    else:
        located = locate_checkpoints(checkpoints, revisions, fewest=1 if kept else 2)
        named = {source.name: source for source in located}
        sources = opened_sources(named, processor, texts, options, loading)
    asked = [Checkpoint(source.name, source.step) for source in sources]
    joined = _joined(asked, [Checkpoint(record["name"], record["step"]) for record in kept])
    names = [checkpoint.name for checkpoint in joined]
    if folder is not None and going_on:
        _refuse_lost(folder, names)
    settings = {
        "sink": sink if isinstance(sink, str) else [sink] if isinstance(sink, int) else list(sink),
        "sink_at": _sink_at(sink, sink_at, names, folder if going_on else None),
        "dtype": dtype,
        **{key: value for key, value in options.items() if key != "batch_size"},
        "inputs_sha256": documents_digest(None if texts is None else texts[:documents]),
    }
    _check_names(names, settings)
    if folder is not None:
        folder.begin(settings, resume)
    store: CollapseFolder | MemoryCollapseStore = (
        MemoryCollapseStore() if folder is None else folder
    )
    run = _Run(store, folder, settings, kept, len(sources), progress)
    # sinks that are found are found first
    for source in sorted(sources, key=lambda source: source.name != settings["sink_at"]):
        try:
            run.measure(source, sink)
        except SinkwiseError as error:
            raise type(error)(f"checkpoint {source.name}: {error}") from error
    study = CollapseStudy(
        store,
        joined,
        run.heads,
        run.card(names),
        level=level,
        peaked=peaked,
        uniform=uniform,
        versions=versions(),
    )
    if folder is not None:
        folder.finish(
            checkpoints=[{"name": one.name, "step": one.step} for one in joined],
            card=run.card(names),
            level=level,
            peaked=peaked,
            uniform=uniform,
            versions=study.versions,
        )
        write_json(folder.path / "collapse.json", study.to_json())
    return study


def open_collapse(folder: str | Path) -> CollapseStudy:
    """Open the study kept in a folder; works without torch.

    Raises
    ------
    RunError
        If the folder holds no finished study, or lacks a file of it.
    """
    store = CollapseFolder(folder)
    manifest = store.manifest
    if not manifest.get("complete"):
        raise RunError(
            f"the study in {folder} is not finished. Go on with resume=True (sinkwise collapse ... "
            "--resume)"
        )
    for checkpoint in manifest["checkpoints"]:
        lost = sorted(set(store.documents) - store.done(checkpoint["name"]))
        if lost:
            raise RunError(
                f"{folder} lacks document {lost[0]} of checkpoint {checkpoint['name']}: run again "
                "with resume=True (--resume) to measure it anew"
            )
    return CollapseStudy(
        store,
        [Checkpoint(entry["name"], entry["step"]) for entry in manifest["checkpoints"]],
        store.heads or (),
        manifest["card"],
        level=manifest["level"],
        peaked=manifest["peaked"],
        uniform=manifest["uniform"],
        versions=manifest["versions"],
    )


class _Run:
    """Measures one checkpoint after the other into a store."""

    def __init__(
        self,
        store: CollapseFolder | MemoryCollapseStore,
        folder: CollapseFolder | None,
        settings: Mapping[str, Any],
        kept: Sequence[Mapping[str, Any]],
        n_checkpoints: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._settings = settings
        self._n_checkpoints = n_checkpoints
        self._progress = progress
        self._done = 0
        self._cards: dict[str, dict[str, Any]] = {one["name"]: one["card"] for one in kept}
        self._n_documents = len(store.documents) if kept else None
        self._heads: tuple[HeadId, ...] | None = None if folder is None else folder.heads

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """The heads that all checkpoints have."""
        return self._heads or ()

    def measure(self, source: OpenedCheckpoint, sink: Any) -> None:
        """Measure a checkpoint, save what is there of it."""
        kept = None if self._folder is None else self._folder.checkpoint(source.name)
        done = self._store.done(source.name)
        if kept is not None and done and kept["fingerprint"] != source.fingerprint:
            raise RunError(
                "the folder holds other weights under this name: use another folder (--out), or "
                "give the checkpoint another name"
            )
        whole = bool(done) and done >= set(self._store.documents)
        if kept is not None and kept["card"] is not None and whole:
            self._cards[source.name] = kept["card"]
            self._n_documents = len(done)
            self._step(len(done), len(self._store.documents))
            return
        rows = source.rows(self._sink(source.name, sink))
        self._require_heads(rows.heads)
        self._require_documents(rows.n_documents)
        _refuse_sink_beyond(rows, self._settings["sink"])
        record = {"name": source.name, "step": source.step, "fingerprint": source.fingerprint}
        if self._folder is not None:
            self._folder.keep_checkpoint(source.name, {**record, "card": None})
        self._step(len(done), rows.n_documents)
        for document, layout, parts in _documents(rows, done):
            self._require_layout(document, layout)
            self._store.keep_parts(source.name, document, parts)
            self._step(1, rows.n_documents)
        self._cards[source.name] = jsonable(rows.card())
        if self._folder is not None:
            self._folder.keep_checkpoint(source.name, {**record, "card": self._cards[source.name]})

    def card(self, names: Sequence[str]) -> dict[str, Any]:
        """What all checkpoints share, and for each of them what it has of its own."""
        cards = {name: self._cards[name] for name in names}
        first = cards[names[0]]
        shared = {
            key: value
            for key, value in first.items()
            if all(card.get(key) == value for card in cards.values())
        }
        own = [
            {"name": name} | {k: v for k, v in card.items() if k not in (*shared, "sink")}
            for name, card in cards.items()
        ]
        # where a sink was found elsewhere the rows' card says that it was held
        chosen = {"sink": "found", "sink_at": self._settings["sink_at"]}
        found = chosen if self._settings["sink"] == "found" else {}
        return {**shared, **found, "checkpoints": own}

    def _sink(self, name: str, sink: Any) -> Any:
        if self._settings["sink"] != "found" or name == self._settings["sink_at"]:
            return sink
        layouts = (self._store.layout(document) for document in self._store.documents)
        return {
            layout.document: [int(p) for p in layout.sink if p >= 0]  # a virtual one joins anyway
            for layout in layouts
        }

    def _require_heads(self, heads: tuple[HeadId, ...]) -> None:
        if self._heads is None:
            self._heads = heads
            if self._folder is not None:
                self._folder.keep_heads(heads)
        elif heads != self._heads:
            raise RowError(
                f"it has {len(heads)} heads in {len({h.layer for h in heads})} layers, the "
                f"checkpoints before it {len(self._heads)} in "
                f"{len({h.layer for h in self._heads})}: a change is between two states of the "
                "same heads"
            )

    def _require_documents(self, number: int) -> None:
        if self._n_documents is None:
            self._n_documents = number
        elif number != self._n_documents:
            raise RowError(
                f"it has {number} documents, and other rows than at the checkpoints before it, "
                f"which have {self._n_documents}. Changes are between the same rows: give the same "
                "documents, and one tokenizer for all"
            )

    def _require_layout(self, document: int, layout: RowLayout) -> None:
        if document not in self._store.documents:
            self._store.keep_layout(layout)
            return
        known = self._store.layout(document)
        if layout.input_digest != known.input_digest:
            raise RowError(
                f"document {document} is not read as at the checkpoints before it: the tokenizers "
                "(or image processors) differ, and other tokens make other rows. Give one for "
                "all: sw.collapse_study(..., processor=tokenizer), or --tokenizer NAME"
            )
        if layout.rows_digest != known.rows_digest:
            raise RowError(
                f"document {document} has other rows than at the checkpoints before it: other "
                "queries, visible keys or sink. Changes are between the same rows; for a sink "
                'that moves name one set of positions, or sink="found" to find it once'
            )

    def _step(self, documents: int, of: int) -> None:
        self._done += documents
        _log.info("%d of %d documents", self._done, of * self._n_checkpoints)
        if self._progress is not None:
            self._progress(self._done, of * self._n_checkpoints)


def _documents(rows: RowSource, done: frozenset[int]) -> Iterator[tuple[int, RowLayout, Any]]:
    """Each document's layout and parts as soon as its last block has come."""
    given = getattr(rows, "model_input", None)
    for document, blocks in groupby(rows.blocks(done), key=lambda block: block.document):
        found = None if given is None else given(document)
        pieces = [(row_layout(block, found), row_parts(block)) for block in blocks]
        layouts, parts = zip(*pieces, strict=True)
        yield document, joined_layout(layouts), joined_parts(parts)


def _refuse_sink_beyond(rows: RowSource, sink: Any) -> None:
    """Refuse positions that no document has before any of them is measured."""
    if isinstance(sink, str):
        return
    card = rows.card()
    longest = card["lengths"]["max"]
    if min(sink) >= longest and not card["virtual_sink"]:
        raise RowError(
            f"sink={sink[0] if len(sink) == 1 else tuple(sink)} lies beyond every document: the "
            f"longest has {longest:.0f} tokens, counted from 0. Name a position that every "
            'document has: sink="first" (--sink first)'
        )


def _sink_at(
    sink: Any, sink_at: str | None, names: Sequence[str], folder: CollapseFolder | None
) -> str | None:
    """The checkpoint where sinks are found: as asked, as before, or the last."""
    if not (isinstance(sink, str) and sink == "found"):
        if sink_at is not None:
            raise RowError(f'sink_at={sink_at!r} belongs to sink="found", and the sink is {sink!r}')
        return None
    if sink_at is None and folder is not None:
        before = folder.manifest["settings"].get("sink_at")
        return before if before is None else str(before)
    return sink_at or names[-1]


def _check_names(names: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Look at what would only fail after the work is done."""
    if len(names) < 2:
        raise RowError(f"checkpoints {list(names)} arrived, expected at least two")
    at = settings["sink_at"]
    if at is not None and at not in names:
        raise RowError(f"sink_at={at!r} is none of the checkpoints {', '.join(names)}")


def _joined(asked: Sequence[Checkpoint], kept: Sequence[Checkpoint]) -> list[Checkpoint]:
    """What is asked for with what was measured before: by step, where each has its own."""
    names = [checkpoint.name for checkpoint in asked]
    before = {checkpoint.name for checkpoint in kept}
    if before <= set(names):
        return list(asked)
    now = {checkpoint.name: checkpoint for checkpoint in asked}
    joined = [now.get(checkpoint.name, checkpoint) for checkpoint in kept]
    joined += [checkpoint for checkpoint in asked if checkpoint.name not in before]
    steps = [checkpoint.step for checkpoint in joined]
    if None not in steps and len(set(steps)) == len(steps):
        joined.sort(key=lambda checkpoint: checkpoint.step or 0)
    return joined


def _refuse_lost(folder: CollapseFolder, names: Sequence[str]) -> None:
    """Refuse to go on without a checkpoint that the study held and that isn't whole any more."""
    for entry in folder.manifest.get("checkpoints", ()):
        if entry["name"] not in names:
            raise RunError(
                f"the study in {folder.path} holds checkpoint {entry['name']}, and not all of its "
                "documents are there: name it as well, and what is missing is measured anew"
            )
