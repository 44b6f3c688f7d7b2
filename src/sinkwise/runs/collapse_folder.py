"""The folder of a collapse study: which rows, and their parts at every checkpoint.

``manifest.json`` (schema ``sinkwise.collapse-run/1``) holds settings, heads and checkpoints;
``rows/document-NNNNN.npz`` which rows of a document are measured, once for all checkpoints;
``checkpoints/KEY/document-NNNNN.npz`` their parts at one of them; ``collapse.json`` the result.
Every file is written whole, so that what is done stays done.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sinkwise.channels.entropy import EntropyParts
from sinkwise.errors import RunError
from sinkwise.rowdata import HeadId
from sinkwise.runs.array_file import read_arrays, write_arrays
from sinkwise.runs.begin import begins, only_begun, refuse_other_settings
from sinkwise.runs.files import read_json, write_json
from sinkwise.studies.collapse_rows import RowLayout

__all__ = ["COLLAPSE_RUN", "CollapseFolder"]

COLLAPSE_RUN = "sinkwise.collapse-run/1"
_DOCUMENT = re.compile(r"document-(\d+)\.npz$")


class CollapseFolder:
    """The files of one study; also the store that it reads.

    Parameters
    ----------
    path
        The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def begin(self, settings: Mapping[str, Any], resume: bool) -> None:
        """Start the study, or go on with one of the same settings.

        Checkpoints are no setting: a study can go on with others.  A folder in which no document
        was kept yet is begun anew, with any settings.

        Raises
        ------
        RunError
            If the folder holds something else, a study and `resume` is off, or a study with other
            settings: the message names the first difference.
        """
        if begins(self, "collapse study", resume=resume):
            self._write(schema=COLLAPSE_RUN, settings=dict(settings), complete=False)
            return
        refuse_other_settings(
            self.manifest["settings"],
            settings,
            begun=f"{self.path} was begun",
            others="with other documents (texts or images)",
            why="checkpoints measured on other rows can't be compared",
        )

    @property
    def begun(self) -> bool:
        """Whether there is a study to go on with."""
        return (self.path / "manifest.json").is_file() and not only_begun(self.path)

    def measured(self) -> list[dict[str, Any]]:
        """What was kept of each checkpoint that was measured to the end, besides its rows.

        Those of the finished study first, in its order; those of a later, interrupted run after
        them, by their steps.
        """
        order = [entry["name"] for entry in self.manifest.get("checkpoints", ())]
        found = {}
        for path in sorted((self.path / "checkpoints").glob("*/checkpoint.json")):
            record = read_json(path)
            found[record["name"]] = record
        later = sorted(set(found) - set(order), key=lambda n: (found[n]["step"] or 0, n))
        documents = set(self.documents)

        def whole(name: str) -> bool:
            done = self.done(name)
            return found[name]["card"] is not None and bool(done) and done >= documents

        return [found[name] for name in (*order, *later) if name in found and whole(name)]

    @property
    def manifest(self) -> dict[str, Any]:
        """Content of ``manifest.json``, its schema checked."""
        found = read_json(self.path / "manifest.json")
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != COLLAPSE_RUN:
            raise RunError(
                f"{self.path / 'manifest.json'} has the schema {schema!r}, expected "
                f"{COLLAPSE_RUN!r}: the folder holds another kind of run; name another folder"
            )
        return dict(found)

    def finish(self, **content: Any) -> None:
        """Mark the study as complete and keep what opens it again."""
        self._write(**{**self.manifest, **content, "complete": True})

    @property
    def heads(self) -> tuple[HeadId, ...] | None:
        """The heads in layer-major order; None before the first checkpoint ran."""
        kept = self.manifest.get("heads")
        return None if kept is None else tuple(HeadId(*pair) for pair in kept)

    def keep_heads(self, heads: Sequence[HeadId]) -> None:
        """Keep the heads, once the first checkpoint is loaded."""
        self._write(**{**self.manifest, "heads": [[h.layer, h.index] for h in heads]})

    def checkpoint(self, name: str) -> dict[str, Any] | None:
        """What was kept of a checkpoint besides its rows: identity and card."""
        path = self._checkpoint(name) / "checkpoint.json"
        return read_json(path) if path.is_file() else None

    def keep_checkpoint(self, name: str, record: Mapping[str, Any]) -> None:
        """Keep the identity and card of a checkpoint."""
        write_json(self._checkpoint(name) / "checkpoint.json", dict(record))

    def done(self, name: str) -> frozenset[int]:
        """Documents that are kept of a checkpoint."""
        return frozenset(_numbers(self._checkpoint(name)))

    def keep_layout(self, layout: RowLayout) -> None:
        """Keep which rows a document has, whole or not at all."""
        reasons = sorted(layout.excluded)
        arrays = {
            "queries": layout.queries,
            "content_keys": layout.content_keys,
            "valid": layout.valid,
            "sink": layout.sink,
            "digests": np.array([layout.input_digest, layout.rows_digest]),
            "reasons": np.array(reasons, dtype=np.str_),
            "excluded": np.array([layout.excluded[r] for r in reasons], dtype=np.int64),
        }
        write_arrays(self._rows(layout.document), arrays)

    def keep_parts(self, checkpoint: str, document: int, parts: EntropyParts) -> None:
        """Keep a document's rows at a checkpoint, whole or not at all."""
        write_arrays(self._checkpoint(checkpoint) / _file(document), parts._asdict())

    # -- the store a study reads ----------------------------------------------------------------

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents, ascending."""
        return tuple(sorted(_numbers(self.path / "rows")))

    def layout(self, document: int) -> RowLayout:
        """Which rows of a document were measured."""
        found = read_arrays(self._rows(document))
        reasons = zip(found["reasons"].tolist(), found["excluded"].tolist(), strict=True)
        return RowLayout(
            document=document,
            queries=found["queries"],
            content_keys=found["content_keys"],
            valid=found["valid"],
            sink=found["sink"],
            input_digest=str(found["digests"][0]),
            rows_digest=str(found["digests"][1]),
            excluded=dict(reasons),
        )

    def parts(self, checkpoint: str, document: int) -> EntropyParts:
        """Parts of a document's rows at a checkpoint.

        Raises
        ------
        RunError
            If the file is missing or damaged; the message says how to measure it anew.
        """
        return EntropyParts(**read_arrays(self._checkpoint(checkpoint) / _file(document)))

    def _write(self, **content: Any) -> None:
        write_json(self.path / "manifest.json", content)

    def _rows(self, document: int) -> Path:
        return self.path / "rows" / _file(document)

    def _checkpoint(self, name: str) -> Path:
        """A folder by a readable part of the name and its digest: names may hold any sign."""
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[-40:].strip(".")
        key = hashlib.sha256(name.encode()).hexdigest()[:8]
        return self.path / "checkpoints" / f"{readable}-{key}"


def _file(document: int) -> str:
    return f"document-{document:05d}.npz"


def _numbers(folder: Path) -> list[int]:
    found = (_DOCUMENT.search(path.name) for path in folder.glob("document-*.npz"))
    return [int(match[1]) for match in found if match]
