"""Where the sinks are, from the columns of the rows themselves, whatever was declared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.accumulate.placement import PlacementSums
from sinkwise.accumulate.profile import SHARE_THRESHOLDS
from sinkwise.rowdata import HeadId
from sinkwise.rowdata.sink_sets import FOUND_HEADS, FOUND_MASS, SEEN_BY, found_columns
from sinkwise.studies.document_store import DocumentStore

__all__ = ["SinkEvidence", "found_sinks"]

_FEWEST_OCCURRENCES = 3


@dataclass(frozen=True)
class SinkEvidence:
    """What the columns say.

    Attributes
    ----------
    positions
        One row per position among the strongest: ``position``, ``token`` (the most frequent
        there), ``mass`` (mean weight over heads and the rows that see it), ``low``, ``high``,
        ``over_0.3`` and ``over_0.8`` (share of heads by their mean weight), ``layer`` (where it
        is strongest) and ``layer_mass``, ``declared``.
    tokens
        One row per token text that stands at least three times outside the declared sink, the
        strongest first: ``token``, ``occurrences``, ``mass`` (mean over occurrences), ``found``
        (how many occurrences are sinks), ``share_found``.
    documents
        One row per document: ``document``, ``found`` (positions), ``tokens``, ``declared_mass``,
        ``secondary_mass`` (of found keys that were not declared), ``strongest_other`` (position)
        and ``strongest_other_mass``.
    layers
        One row per layer: ``layer``, ``declared_mass``, ``secondary_mass``.
    warning
        Empty, or why the declared sink is not where the sink is.
    """

    positions: pd.DataFrame
    tokens: pd.DataFrame
    documents: pd.DataFrame
    layers: pd.DataFrame
    warning: str


def found_sinks(
    store: DocumentStore,
    heads: Sequence[HeadId],
    *,
    declared: Sequence[int] = (),
    strongest: int = 8,
    level: float = 0.95,
) -> SinkEvidence:
    """Find the keys that take attention as sinks do, and compare them with the declared sink.

    Parameters
    ----------
    store
        Per-document sums.
    heads
        The heads.
    declared
        Positions of the declared sink (real tokens counted from 0); empty where it is not a
        fixed position.
    strongest
        How many positions to list, the declared ones aside.
    level
        Two-sided level of intervals.

    Returns
    -------
    SinkEvidence

    Notes
    -----
    A document's *found* sinks are chosen by
    :func:`~sinkwise.rowdata.sink_sets.found_columns` from the rows they are then described by,
    so their masses are a little too large.  Keys that fewer than half of a document's rows see
    are left out everywhere: what stands just behind a query takes local heads' weight without
    being a sink.  The warning compares, over documents, the declared sink's mass with that of
    the strongest other key.  O(documents · heads · positions), one document in memory at a time.
    """
    declared = tuple(declared)
    layer_of = np.array([h.layer for h in heads])
    layers = np.unique(layer_of)
    n_layers = np.bincount(np.searchsorted(layers, layer_of)).astype(np.float64)
    width = 0
    pooled: list[tuple[np.ndarray, np.ndarray]] = []  # of heads, by document
    whole = PlacementSums.zero(len(heads))
    texts: list[np.ndarray | None] = []
    documents, by_token = [], _TokenTally()
    layer_masses: list[np.ndarray] = []
    for number in store.documents:
        sums, tokens = store.placement(number), store.tokens(number)
        texts.append(tokens)
        mass, seen = _column_means(sums)
        known = np.where(np.isfinite(mass), mass, 0.0)
        found = found_columns(mass, seen)
        n = len(seen)
        mine = np.zeros(n, dtype=bool)
        mine[[p for p in declared if p < n]] = True
        other = np.where((seen >= SEEN_BY) & ~mine, known.mean(0), -1.0)
        place = int(other.argmax()) if n else -1
        secondary = found & ~mine
        documents.append(
            {
                "document": number,
                "found": tuple(int(p) for p in np.flatnonzero(found)),
                "tokens": tuple(_text(tokens, int(p)) for p in np.flatnonzero(found)),
                "declared_mass": float(known[:, mine].sum(1).mean()) if declared else np.nan,
                "secondary_mass": float(known[:, secondary].sum(1).mean()),
                "strongest_other": place if n and other[place] >= 0 else -1,
                "strongest_other_mass": float(other[place]) if n and other[place] >= 0 else np.nan,
            }
        )
        by_layer = np.zeros((2, len(layers)))
        for i, keys in enumerate((mine, secondary)):
            np.add.at(by_layer[i], np.searchsorted(layers, layer_of), known[:, keys].sum(1))
        layer_masses.append(by_layer / n_layers)
        by_token.add(tokens, known.mean(0), found, (seen >= SEEN_BY) & ~mine)
        pooled.append((sums.column_mass.sum(0), sums.column_rows.sum(0)))
        whole = whole.merge(sums)
        width = max(width, n)
    table = _positions(pooled, whole, width, declared, strongest, layers, layer_of, texts, level)
    frame = pd.DataFrame(documents)
    mean = np.mean(layer_masses, axis=0)
    return SinkEvidence(
        table,
        by_token.table(),
        frame,
        pd.DataFrame({"layer": layers, "declared_mass": mean[0], "secondary_mass": mean[1]}),
        _warning(frame, level) if declared else "",
    )


def _column_means(sums: PlacementSums) -> tuple[np.ndarray, np.ndarray]:
    """Mean weight of every key ``(heads, positions)``, and the share of rows that see it."""
    mass = np.full(sums.column_mass.shape, np.nan)
    np.divide(sums.column_mass, sums.column_rows, out=mass, where=sums.column_rows > 0)
    return mass, sums.column_rows.sum(0) / max(1.0, float(sums.rows.sum()))


def _positions(
    pooled: list[tuple[np.ndarray, np.ndarray]],
    whole: PlacementSums,
    width: int,
    declared: tuple[int, ...],
    strongest: int,
    layers: np.ndarray,
    layer_of: np.ndarray,
    texts: list[np.ndarray | None],
    level: float,
) -> pd.DataFrame:
    sums, counts = np.zeros((2, len(pooled), width))
    for i, (mass, rows) in enumerate(pooled):
        sums[i, : len(mass)], counts[i, : len(rows)] = mass, rows
    value, low, high = jackknife_mean(sums, counts, level=level)
    head_mass, seen = _column_means(whole)
    order = np.argsort(np.where(seen >= SEEN_BY / 2, value, -1.0), kind="stable")[::-1]
    chosen = sorted({p for p in declared if p < width} | {int(p) for p in order[:strongest]})
    found: list[dict[str, Any]] = []
    for p in chosen:
        column = np.where(np.isfinite(head_mass[:, p]), head_mass[:, p], 0.0)
        by_layer = np.array([column[layer_of == layer].mean() for layer in layers])
        names = Counter(_text(t, p) for t in texts if t is not None and p < len(t))
        found.append(
            {
                "position": p,
                "token": names.most_common(1)[0][0] if names else "",
                "mass": float(value[p]),
                "low": float(low[p]),
                "high": float(high[p]),
                **{f"over_{eps}": float((column > eps).mean()) for eps in SHARE_THRESHOLDS},
                "layer": int(layers[by_layer.argmax()]),
                "layer_mass": float(by_layer.max()),
                "declared": p in declared,
            }
        )
    found.sort(key=lambda r: -r["mass"])
    return pd.DataFrame(found)


class _TokenTally:
    """Column masses by token text."""

    def __init__(self) -> None:
        self._mass: dict[str, list[float]] = {}
        self._found: Counter[str] = Counter()

    def add(
        self, tokens: np.ndarray | None, mass: np.ndarray, found: np.ndarray, counted: np.ndarray
    ) -> None:
        if tokens is None:
            return
        for p in np.flatnonzero(counted[: len(tokens)]):
            text = str(tokens[p])
            self._mass.setdefault(text, []).append(float(mass[p]))
            self._found[text] += bool(found[p])

    def table(self, most: int = 12) -> pd.DataFrame:
        rows: list[dict[str, Any]] = [
            {
                "token": text,
                "occurrences": len(masses),
                "mass": float(np.mean(masses)),
                "found": self._found[text],
                "share_found": self._found[text] / len(masses),
            }
            for text, masses in self._mass.items()
            if len(masses) >= _FEWEST_OCCURRENCES
        ]
        rows.sort(key=lambda r: (-r["found"], -r["mass"], r["token"]))
        columns = ["token", "occurrences", "mass", "found", "share_found"]
        return pd.DataFrame(rows[:most], columns=columns)


def _text(tokens: np.ndarray | None, position: int) -> str:
    return "" if tokens is None or position >= len(tokens) else str(tokens[position])


def _warning(documents: pd.DataFrame, level: float) -> str:
    gap = (documents.strongest_other_mass - documents.declared_mass).to_numpy()
    gap = gap[np.isfinite(gap)]
    if not len(gap) or not gap.mean() > 0:
        return ""
    _, low, _ = jackknife_mean(gap, np.ones(len(gap)), level=level)
    certain = "" if low > 0 else " (on these documents not beyond doubt)"
    return (
        f"The declared sink takes {documents.declared_mass.mean():.3f} of a row, another key "
        f"{documents.strongest_other_mass.mean():.3f}{certain}: the sink is not where it was "
        'declared. Look at the positions and tokens found, and audit with sink="found" or with '
        "their positions"
    )


def describe_rule() -> str:
    """Say in words what a found sink is."""
    return (
        f"the key with the most weight, and every other one that takes over {FOUND_MASS:g} of a "
        f"row on average in at least {FOUND_HEADS:.0%} of the heads, among keys that half of the "
        "rows see"
    )
