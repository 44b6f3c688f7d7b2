"""Run an audit: stream rows, keep one block of sums a document, finish with its tables."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sinkwise.accumulate.documents import DocumentSums, block_sums
from sinkwise.errors import InputTypeError, RowError
from sinkwise.rowdata import RowSource
from sinkwise.rowdata.arrays import Rows
from sinkwise.rowdata.sink_sets import SINK_SETS
from sinkwise.runs.files import write_json
from sinkwise.runs.folder import RunFolder
from sinkwise.runs.model_source import documents_digest, unwrapped
from sinkwise.runs.versions import versions
from sinkwise.studies.audit import Audit
from sinkwise.studies.document_store import MemoryStore
from sinkwise.studies.jsonable import jsonable
from sinkwise.studies.zero_sensitivity import zero_sensitivity

__all__ = ["audit", "open_audit"]

# what a model's audit takes and rows have already, with the values that say nothing
_MODEL_OPTIONS: dict[str, Any] = {
    "sink": "first",
    "queries": 64,
    "max_length": None,
    "documents": None,
    "batch_size": None,
}

_log = logging.getLogger(__name__)


def audit(
    source: Any,
    processor: Any = None,
    inputs: Sequence[Any] | None = None,
    *,
    sink: Any = "first",
    sink_sets: Sequence[str] = SINK_SETS,
    queries: int | Literal["all"] = 64,
    max_length: int | None = None,
    documents: int | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    repeated_tokens: int = 0,
    level: float = 0.95,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    model_name: str | None = None,
    revision: str | None = None,
) -> Audit:
    """Measure every head's rows, and every two heads' distances under both conventions.

    Parameters
    ----------
    source
        A transformers model, a :class:`~sinkwise.capture.load.LoadedModel`, or rows from
        :func:`sinkwise.rows` (then `processor`, `inputs` and the options of a model don't apply).
    processor
        The model's tokenizer or image processor.
    inputs
        Texts, or images for a vision model; each is one document.
    sink
        ``"first"`` (the first real token), a token position, a tuple of positions, or
        ``"found"``: in every document the keys that its own rows show to be sinks.
    sink_sets
        Other sink sets to sum the same rows under, so that a reader sees what hangs on the
        choice: any of ``"first"``, ``"first4"``, ``"bos"`` and ``"found"``; ``()`` for none.
    queries
        Query rows a document, one seeded draw from each of as many strata, or ``"all"``.
    max_length
        Cut documents to so many tokens.
    documents
        Use the first N of `inputs`.
    seed
        Of the query rows and of the halves behind the intervals.
    batch_size
        Documents in one forward pass, at most.  Results don't depend on it, save how many rows
        of padding are counted as left out.
    repeated_tokens
        Also run so many documents of one repeated token each, a control that shows whether
        position alone makes the sink (texts only).
    level
        Two-sided level of intervals.
    out
        Folder for the run: one block a document, written whole, then ``summary.json``.  Without
        it everything stays in memory.
    resume
        Go on with the run in `out`: documents whose block is there are not computed again.
    progress
        Called as ``progress(done, total)`` after every document.
    model_name, revision
        For the card, where the model itself doesn't say.

    Returns
    -------
    Audit
        Profiles, distances, reversals and taxonomy with their intervals, and the card.

    Raises
    ------
    RowError
        On rows that can't be used, or options that say nothing.
    CaptureError, InputTypeError
        If the model's rows can't be captured.
    RunError
        If `out` holds something else.

    Notes
    -----
    For H heads, R rows and K keys a document costs O(R K H²) by matrix products (Jensen-Shannon
    with a logarithm each).  Memory holds one batch of documents and ``documents · H²`` sums, which
    stay on disk when `out` is given.

    Examples
    --------
    >>> import numpy as np, sinkwise as sw
    >>> z = np.random.default_rng(0).normal(size=(5, 4, 6, 8))  # documents, heads, queries, keys
    >>> z[..., 0] += np.arange(4)[:, None]  # heads differ in their sink mass
    >>> found = sw.audit(sw.rows(z, sink=0, logits=True))
    >>> found.profile.sink_mass.round(2).values
    array([0.1 , 0.26, 0.53, 0.62])
    >>> found.distances.js_divergence.sel(convention="kept").shape
    (4, 4)
    """
    _check_options(level, seed, documents, out)
    sink_sets = _checked_sink_sets(sink_sets)
    rows = _source(
        source,
        processor,
        inputs,
        sink=sink,
        queries=queries,
        max_length=max_length,
        documents=documents,
        seed=seed,
        batch_size=batch_size,
    )
    identity: dict[str, Any] = {}
    if not isinstance(rows, Rows):
        name = model_name or getattr(source, "name", None)
        identity = {"model": name} if name else {}
        revision = revision or getattr(source, "revision", None)
        identity |= {"revision": revision} if revision else {}
    folder = None if out is None else RunFolder(out)
    done: frozenset[int] = frozenset()
    kept: dict[int, DocumentSums] = {}
    if folder is not None:
        settings = {**_settings(rows, identity, inputs), "sink_sets": list(sink_sets)}
        folder.begin(settings, rows.heads, resume)
        done = frozenset(folder.documents)
    count = len(done)
    if progress is not None:
        progress(count, rows.n_documents)
    for sums in _documents(rows, done, sink_sets):
        if folder is not None:
            folder.write(sums)
        else:
            kept[sums.document] = sums
        count += 1
        _log.info("document %d of %d", count, rows.n_documents)
        if progress is not None:
            progress(count, rows.n_documents)
    store = MemoryStore(kept) if folder is None else folder
    if not store.documents or store.n_rows == 0:
        reasons = ", ".join(f"{n} {reason}" for reason, n in store.excluded.items())
        raise RowError(
            f"no row is left to use ({reasons or 'no query can see the sink'}). A row needs its "
            f"sink and two content keys in sight, and the sink is {sink!r}: name a position that "
            "every document has"
        )
    card = {**rows.card(), **identity, "seed": seed, "versions": versions()}
    if isinstance(rows, Rows) and not isinstance(rows.zeros, str):
        card["zero_sensitivity"] = zero_sensitivity(rows)
    control = _control(rows, source, processor, inputs, repeated_tokens, sink, seed)
    result = Audit(store, rows.heads, card, level=level, seed=seed, control=control)
    if folder is not None:
        folder.finish(card, level, control)
        write_json(folder.path / "summary.json", result.summary())
    return result


def open_audit(folder: str | Path) -> Audit:
    """Open the audit kept in a folder; works without torch.

    Raises
    ------
    RunError
        If the folder holds no finished run, or a damaged block.

    Examples
    --------
    >>> import tempfile, numpy as np, sinkwise as sw
    >>> z = np.random.default_rng(0).normal(size=(5, 4, 6, 8))
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     first = sw.audit(sw.rows(z, sink=0, logits=True), out=f"{parent}/run")
    ...     again = sw.open_audit(f"{parent}/run")
    ...     bool(again.profile.equals(first.profile))
    True
    """
    run = RunFolder(folder)
    run.require_complete()
    manifest = run.manifest
    card = manifest["card"]
    return Audit(
        run,
        run.heads,
        card,
        level=manifest["level"],
        seed=card["seed"],
        control=manifest.get("repeated_tokens"),
    )


def _source(source: Any, processor: Any, inputs: Sequence[Any] | None, **options: Any) -> RowSource:
    if hasattr(source, "blocks") and hasattr(source, "heads"):
        if processor is not None or inputs is not None:
            raise RowError("rows are complete: give no tokenizer and no texts with them")
        given = [name for name, value in _MODEL_OPTIONS.items() if options[name] != value]
        if given:
            raise RowError(
                f"{given[0]}={options[given[0]]!r} is an option for models: rows have their sink "
                "and queries already, so make other rows by sw.rows(weights, sink=...)"
            )
        return source
    if hasattr(source, "shape") or isinstance(source, tuple | list):
        raise InputTypeError(
            "a bare array or tuple of maps has no sink: sw.audit(sw.rows(weights, sink=...))"
        )
    from sinkwise.capture.interface import require_transformers_model
    from sinkwise.capture.source import ModelRows

    source, processor, _ = unwrapped(source, processor)
    require_transformers_model(source)
    if inputs is None:
        raise RowError("give the texts (or images): sw.audit(model, tokenizer, texts, sink=...)")
    if options["batch_size"] is None:
        del options["batch_size"]
    return ModelRows(source, processor, inputs, **options)


def _check_options(level: float, seed: int, documents: int | None, out: Any) -> None:
    """Look at what would only fail after the work is done."""
    if isinstance(level, bool) or not isinstance(level, float) or not 0 < level < 1:
        raise RowError(f"level={level!r}, expected a number between 0 and 1, such as 0.95")
    for name, number, least in (("seed", seed, 0), ("documents", documents, 1)):
        if number is None and name == "documents":
            continue
        if not isinstance(number, int | np.integer) or number < least:
            raise RowError(f"{name}={number!r}, expected a whole number of at least {least}")
    if out is not None and not isinstance(out, str | Path):
        raise InputTypeError(f"out={out!r}: expected the path of a folder")


def _control(
    rows: RowSource,
    source: Any,
    processor: Any,
    inputs: Sequence[Any] | None,
    documents: int,
    sink: Any,
    seed: int,
) -> dict[str, Any] | None:
    """The repeated-token control, where it was asked for."""
    if not documents:
        return None
    texts = [text for text in inputs or () if isinstance(text, str)]
    if isinstance(rows, Rows) or not texts:
        raise RowError("repeated_tokens=: the control needs a model and texts to draw tokens from")
    from sinkwise.capture.repeated_tokens import repeated_token_control

    model, processor, _ = unwrapped(source, processor)
    return repeated_token_control(
        model,
        processor,
        texts,
        documents=documents,
        sink=sink,
        seed=seed,
    )


def _checked_sink_sets(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        names = (names,)
    for name in names:
        if name not in SINK_SETS:
            raise RowError(f"sink_sets holds {name!r}; it may hold {', '.join(SINK_SETS)}")
    return tuple(dict.fromkeys(names))


def _documents(
    rows: RowSource, done: frozenset[int], sink_sets: tuple[str, ...]
) -> Iterator[DocumentSums]:
    """Sums of each document as soon as its last block has come."""
    current: DocumentSums | None = None
    for block in rows.blocks(done):
        sums = block_sums(block, sink_sets=sink_sets)
        if current is not None and current.document == sums.document:
            current = current.merge(sums)
            continue
        if current is not None:
            yield current
        current = sums
    if current is not None:
        yield current


def _settings(
    rows: RowSource, identity: dict[str, Any], inputs: Sequence[Any] | None
) -> dict[str, Any]:
    """What must be alike for two blocks to belong to one run."""
    card = {k: v for k, v in rows.card().items() if k not in ("torch", "transformers")}
    settings: dict[str, Any] = jsonable(
        {**card, **identity, "inputs_sha256": _digest(rows, inputs)}
    )
    return settings


def _digest(rows: RowSource, inputs: Sequence[Any] | None) -> str:
    """Fingerprint of the documents, or of the rows themselves."""
    if not isinstance(rows, Rows):
        return documents_digest(inputs)
    digest = hashlib.sha256()
    for block in rows.blocks():
        digest.update(np.ascontiguousarray(block.log_weights).tobytes())
    return digest.hexdigest()
