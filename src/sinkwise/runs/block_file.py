"""One document's sums as a file: named arrays, written whole, read without pickle.

``profile/…`` and ``pairs/…`` hold sums and counts by name, ``placement/…`` where attention goes,
``sets/NAME/…`` the sums under another sink set, ``example/…`` one row of every head, and
``tokens`` the document's text.  A count that is the same everywhere is kept once.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sinkwise.accumulate.documents import DocumentSums
from sinkwise.accumulate.example import ExampleRow
from sinkwise.accumulate.placement import PlacementSums
from sinkwise.accumulate.sink_sets import SINK_SET_METRICS, SinkSetSums
from sinkwise.distances.all_pairs import COUNT_OF, PairSums
from sinkwise.errors import RunError
from sinkwise.runs.files import write_whole

__all__ = ["BlockFile"]


class BlockFile:
    """The block of one document.

    Parameters
    ----------
    path
        The ``.npz`` file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, sums: DocumentSums) -> None:
        """Write a document's sums, whole or not at all."""
        arrays: dict[str, np.ndarray] = {
            "n_rows": np.asarray(sums.n_rows),
            "excluded": np.asarray(list(sums.excluded.values()), dtype=np.int64),
            "reasons": np.asarray(list(sums.excluded), dtype=np.str_),
        }
        for kind, part in (("profile", sums.profile), ("pairs", sums.pairs)):
            for name, value in part.sums.items():
                arrays[f"{kind}/sums/{name}"] = value
            for name, value in part.counts.items():
                arrays[f"{kind}/counts/{name}"] = _narrow(value)
        for field in fields(PlacementSums):
            arrays[f"placement/{field.name}"] = getattr(sums.placement, field.name)
        for name, found in sums.sink_sets.items():
            at = f"sets/{name}"
            for metric in SINK_SET_METRICS:
                arrays[f"{at}/pairs/sums/{metric}"] = found.pairs.sums[metric]
            for count, value in found.pairs.counts.items():
                arrays[f"{at}/pairs/counts/{count}"] = _narrow(value)
            arrays |= {f"{at}/mass": found.mass, f"{at}/rows": found.rows}
            arrays[f"{at}/size"] = np.asarray([found.n_rows, found.keys])
        if sums.example is not None:
            for field in fields(ExampleRow):
                arrays[f"example/{field.name}"] = np.asarray(getattr(sums.example, field.name))
        if sums.tokens is not None:
            arrays["tokens"] = sums.tokens
        write_whole(self.path, lambda file: np.savez(file, allow_pickle=False, **arrays))

    def arrays(self, *names: str) -> list[np.ndarray]:
        """Read some arrays.

        Raises
        ------
        RunError
            If the file is damaged or lacks one.
        """
        with self._opened() as block:
            return [block[name] for name in names]

    def names(self, prefix: str) -> tuple[str, ...]:
        """Names of the arrays that begin with `prefix`, without it."""
        with self._opened() as block:
            return tuple(n.removeprefix(prefix) for n in block.files if n.startswith(prefix))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with np.load(self.path, allow_pickle=False) as block:
                yield block
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise RunError(
                f"{self.path} is damaged ({error}). Remove it and run again with resume=True "
                "(--resume): only that document is computed anew"
            ) from error

    def placement(self) -> PlacementSums:
        """Where each head's attention goes."""
        return PlacementSums(*self.arrays(*(f"placement/{f.name}" for f in fields(PlacementSums))))

    def tokens(self) -> np.ndarray | None:
        """Text of the document's tokens."""
        return self.arrays("tokens")[0] if "" in self.names("tokens") else None

    def example(self) -> ExampleRow | None:
        """One row of every head."""
        if not self.names("example/"):
            return None
        query, *rest = self.arrays(*(f"example/{f.name}" for f in fields(ExampleRow)))
        return ExampleRow(int(query), *rest)

    def sink_sets(self) -> tuple[str, ...]:
        """Names of the other sink sets."""
        return tuple(dict.fromkeys(name.partition("/")[0] for name in self.names("sets/")))

    def sink_set(self, name: str) -> SinkSetSums:
        """Sums under one of :meth:`sink_sets`."""
        at = f"sets/{name}"
        counts = tuple(dict.fromkeys(COUNT_OF[m] for m in SINK_SET_METRICS))
        mass, rows, size, *found = self.arrays(
            *(f"{at}/{part}" for part in ("mass", "rows", "size")),
            *(f"{at}/pairs/sums/{metric}" for metric in SINK_SET_METRICS),
            *(f"{at}/pairs/counts/{count}" for count in counts),
        )
        sums, found = found[: len(SINK_SET_METRICS)], found[len(SINK_SET_METRICS) :]
        whole = [np.broadcast_to(value, sums[0].shape) for value in found]
        pairs = PairSums(
            len(mass),
            dict(zip(SINK_SET_METRICS, sums, strict=True)),
            dict(zip(counts, whole, strict=True)),
        )
        return SinkSetSums(pairs, mass, rows, int(size[0]), int(size[1]))


def _narrow(counts: np.ndarray) -> np.ndarray:
    """One number where all counts agree, as they do unless heads see different keys."""
    return counts[:1] if counts.size and (counts == counts[0]).all() else counts
