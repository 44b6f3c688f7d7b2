"""Every study of an audit from its saved sums: time, and peak memory of all of them.

Heads come in groups that read alike, differ in their sinks, and see a little noise on every
document.  The run is written first, then each study is timed in turn on the opened folder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sinkwise as sw
from benchmarks.measure import forget_peak, peak_mib
from sinkwise.rowdata import HeadId, RowBlock, make_block

HEADS_PER_LAYER = 16
GROUPS = 6


class GroupedHeads:
    """Rows of `heads` heads in groups, ``rows`` queries over ``keys`` keys a document."""

    def __init__(self, heads: int, documents: int, rows: int, keys: int) -> None:
        self.heads = tuple(HeadId(h // HEADS_PER_LAYER, h % HEADS_PER_LAYER) for h in range(heads))
        self.n_documents = documents
        self._queries = np.linspace(keys // 4, keys - 1, rows).astype(int)
        self._keys = keys

    def card(self) -> dict[str, Any]:
        """As little as an audit needs."""
        return {"model": "made up", "sink": "first", "zeros": "none", "source": "arrays"}

    def blocks(self, skip: frozenset[int] = frozenset()) -> Iterator[RowBlock]:
        """One block a document."""
        n, rows, keys = len(self.heads), len(self._queries), self._keys
        traits = np.random.default_rng(0)
        group, sharpness = traits.integers(GROUPS, size=n), traits.gamma(4, 0.4, n)
        sink = traits.normal(2, 2, n)
        for document in range(self.n_documents):
            if document in skip:
                continue
            rng = np.random.default_rng([1, document])
            shared = rng.normal(size=(GROUPS, rows, keys))
            z = shared[group] + 0.5 * rng.normal(size=(n, rows, keys))
            z *= sharpness[:, None, None]
            z[..., 0] += sink[:, None]
            yield make_block(
                document=document,
                log_weights=z.astype(np.float32),
                support=np.arange(keys) <= self._queries[:, None],
                sink=np.arange(keys) == 0,
                queries=self._queries,
                heads=self.heads,
            )


def studies(audit: sw.Audit) -> dict[str, Callable[[], object]]:
    """Everything that the report shows, in the order in which it builds up."""
    return {
        "profile": lambda: audit.profile,
        "distances": lambda: audit.distances,
        "reversals": audit.reversals,
        "where reversed": audit.reversal_places,
        "worst pairs": audit.worst_pairs,
        "bands": audit.bands,
        "band ranking": audit.band_ranking,
        "channels": audit.channels,
        "channel verdicts": audit.channel_verdicts,
        "taxonomy": audit.taxonomy,
        "taxonomy effects": audit.taxonomy_effects,
        "sink association": audit.sink_association,
        "head maps": lambda: [audit.head_map(n) for n in ("content", "js_divergence/kept")],
        "biplot": audit.biplot,
        "sinks": audit.sinks,
        "sink sets": audit.sink_sets,
        "position": audit.positional_null,
        "regime": audit.regime,
    }


def main() -> None:
    """Make a run, time every study of it, print a table and JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies")
    for name, value in {"heads": 512, "documents": 8, "rows": 32, "keys": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        sw.audit(
            GroupedHeads(args.heads, args.documents, args.rows, args.keys),
            out=Path(folder) / "run",
        )
        print(f"{'(the audit itself)':<20} {time.perf_counter() - start:8.2f} s")
        audit = sw.open_audit(Path(folder) / "run")
        forget_peak()
        seconds = {}
        for name, run in studies(audit).items():
            start = time.perf_counter()
            run()
            seconds[name] = time.perf_counter() - start
            print(f"{name:<20} {seconds[name]:8.2f} s {peak_mib():8.0f} MiB so far", flush=True)
    total = sum(seconds.values())
    print(f"{'all':<20} {total:8.2f} s")
    print(json.dumps({**vars(args), "seconds": seconds, "total": total, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main()
