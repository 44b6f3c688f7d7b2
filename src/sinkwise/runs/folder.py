"""A run as a folder of blocks, one document each: what resumes, merges and gives intervals.

``manifest.json`` says what the run is (schema ``sinkwise.run/2``: settings, heads, card);
``blocks/document-NNNNN.npz`` holds one document's sums, read without pickle (see
:mod:`sinkwise.runs.block_file`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sinkwise.accumulate.documents import DocumentSums
from sinkwise.accumulate.example import ExampleRow
from sinkwise.accumulate.placement import PlacementSums
from sinkwise.accumulate.profile import PROFILE_COUNT_OF
from sinkwise.accumulate.sink_sets import SinkSetSums
from sinkwise.distances.all_pairs import COUNT_OF
from sinkwise.errors import RunError
from sinkwise.rowdata import HeadId
from sinkwise.runs.begin import begins, refuse_other_settings
from sinkwise.runs.block_file import BlockFile
from sinkwise.runs.files import read_json, write_json
from sinkwise.studies.document_halves import DocumentPairs

__all__ = ["SCHEMA", "RunFolder"]

SCHEMA = "sinkwise.run/2"
_BLOCK = re.compile(r"document-(\d+)\.npz$")


class RunFolder:
    """The files of one run; also the store that an audit reads.

    Parameters
    ----------
    path
        The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    # -- manifest -------------------------------------------------------------------------

    def begin(self, settings: Mapping[str, Any], heads: tuple[HeadId, ...], resume: bool) -> None:
        """Start the run, or go on with one of the same settings.

        A folder in which no document was kept yet is begun anew, with any settings.

        Raises
        ------
        RunError
            If the folder holds something else, a run and `resume` is off, or a run with other
            settings: the message names the first difference.
        """
        there = [[h.layer, h.index] for h in heads]
        anew = begins(self, "run", resume=resume)
        self.__dict__.pop("manifest", None)
        if anew:
            write_json(
                self.path / "manifest.json",
                {
                    "schema": SCHEMA,
                    "complete": False,
                    "settings": dict(settings),
                    "heads": there,
                },
            )
            return
        refuse_other_settings(
            {**self.manifest["settings"], "heads": self.manifest["heads"]},
            {**settings, "heads": there},
            begun=f"{self.path} was begun",
            others="with other documents (or rows)",
            why="blocks of both can't be mixed",
        )

    def finish(
        self, card: Mapping[str, Any], level: float, control: Mapping[str, Any] | None = None
    ) -> None:
        """Mark the run as complete; keep its card, documents, level of intervals and control."""
        ending: dict[str, Any] = {"complete": True, "documents": list(self.documents)}
        ending |= {"level": level, "repeated_tokens": None if control is None else dict(control)}
        write_json(self.path / "manifest.json", {**self.manifest, **ending, "card": dict(card)})
        self.__dict__.pop("manifest", None)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Content of ``manifest.json``, its schema checked."""
        found = read_json(self.path / "manifest.json")
        schema = found.get("schema") if isinstance(found, dict) else None
        if schema != SCHEMA:
            raise RunError(
                f"{self.path / 'manifest.json'} has the schema {schema!r}; this version reads "
                f"{SCHEMA!r}. Audit the documents again into a new folder, or open it with the "
                "version that wrote it"
            )
        return found

    def require_complete(self) -> None:
        """Raise unless the run was finished and every block is still there."""
        manifest = self.manifest
        if not manifest.get("complete"):
            raise RunError(
                f"the run in {self.path} is not finished: {len(self.documents)} documents are "
                "done. Go on with resume=True (sinkwise audit ... --resume)"
            )
        lost = sorted(set(manifest["documents"]) - set(self.documents))
        if lost:
            raise RunError(
                f"{self._block(lost[0]).path} is missing"
                f"{f', and {len(lost) - 1} more' if len(lost) > 1 else ''}: the run would "
                "say less than it did. Run again with resume=True (--resume) to compute them anew"
            )

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """The heads in layer-major order."""
        return tuple(HeadId(layer, index) for layer, index in self.manifest["heads"])

    # -- blocks ---------------------------------------------------------------------------

    @property
    def documents(self) -> tuple[int, ...]:
        """Numbers of the documents whose block is there, ascending."""
        found = (_BLOCK.search(p.name) for p in (self.path / "blocks").glob("document-*.npz"))
        return tuple(sorted(int(m[1]) for m in found if m))

    def write(self, sums: DocumentSums) -> None:
        """Write one document's block, whole or not at all."""
        self._block(sums.document).write(sums)

    def _block(self, document: int) -> BlockFile:
        return BlockFile(self.path / "blocks" / f"document-{document:05d}.npz")

    # -- the store an audit reads -----------------------------------------------------------

    @cached_property
    def n_rows(self) -> int:
        """Query positions used, over all documents."""
        return sum(int(self._block(d).arrays("n_rows")[0]) for d in self.documents)

    @cached_property
    def excluded(self) -> dict[str, int]:
        """Query rows left out, by reason."""
        total: dict[str, int] = {}
        for document in self.documents:
            reasons, numbers = self._block(document).arrays("reasons", "excluded")
            for reason, number in zip(reasons, numbers, strict=True):
                total[str(reason)] = total.get(str(reason), 0) + int(number)
        return total

    @cached_property
    def pair_names(self) -> tuple[str, ...]:
        """Names of the pair sums kept."""
        return self._block(self.documents[0]).names("pairs/sums/")

    def profile(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts of a per-head quantity, each ``(documents, heads)``."""
        return self._stack("profile", name, PROFILE_COUNT_OF[name])

    def pairs(self, name: str) -> DocumentPairs:
        """Sums and counts of a distance, each ``(documents, pairs)``."""
        return DocumentPairs(*self._stack("pairs", name, COUNT_OF[name]))

    def placement(self, document: int) -> PlacementSums:
        """Where each head's attention goes in a document."""
        return self._block(document).placement()

    def tokens(self, document: int) -> np.ndarray | None:
        """Text of a document's tokens, where there is text."""
        return self._block(document).tokens()

    def example(self, document: int) -> ExampleRow | None:
        """One row of every head, where it was kept."""
        return self._block(document).example()

    def sink_sets(self, document: int) -> tuple[str, ...]:
        """Names of the sink sets under which a document was summed."""
        return self._block(document).sink_sets()

    def sink_set(self, document: int, name: str) -> SinkSetSums:
        """A document's sums under one of its :meth:`sink_sets`."""
        return self._block(document).sink_set(name)

    def study(self, name: str) -> Mapping[str, Any] | None:
        """Content of ``NAME.json``, which another study of the model left in the folder."""
        path = self.path / f"{name}.json"
        return read_json(path) if path.is_file() else None

    def _stack(self, kind: str, name: str, count: str) -> tuple[np.ndarray, np.ndarray]:
        found = [
            self._block(d).arrays(f"{kind}/sums/{name}", f"{kind}/counts/{count}")
            for d in self.documents
        ]
        sums = np.stack([s for s, _ in found])
        if all(len(c) == 1 for _, c in found):  # one number a document, for all heads and pairs
            return sums, np.broadcast_to(np.stack([c for _, c in found]), sums.shape)
        return sums, np.stack([np.broadcast_to(c, sums.shape[1:]) for _, c in found])
