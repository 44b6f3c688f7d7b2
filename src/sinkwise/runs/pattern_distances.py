"""Distances between heads by name: an audit's own, and the forms that take a pass of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from sinkwise.distances.all_pairs import COUNT_OF, PairSums, count_of, pair_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import RowSource
from sinkwise.runs.array_file import read_arrays, write_arrays
from sinkwise.studies.audit import Audit
from sinkwise.studies.head_matrix import square

__all__ = ["check_distance_names", "pattern_distances"]


def check_distance_names(names: Sequence[str]) -> None:
    """Raise unless every name is a distance that can be measured.

    Raises
    ------
    RowError
        Naming the first that isn't, and what there is.
    """
    for name in names:
        try:
            count_of(name)
        except RowError:
            there = ", ".join(known for known in COUNT_OF if not known.endswith("_sq"))
            raise RowError(
                f"no distance is called {name!r}; there are {there}, and content/floor=0.001 with "
                "any floor"
            ) from None


def pattern_distances(
    audit: Audit,
    names: Sequence[str],
    rows: Callable[[], RowSource],
    *,
    folder: Path | None = None,
) -> dict[str, np.ndarray]:
    """Return mean distances over the rows of an audit, ``(heads, heads)`` by name.

    Parameters
    ----------
    audit
        Its own sums are used where it has them.
    names
        Such as ``"js_divergence/kept"``, ``"content/geometric_weights"`` or
        ``"content/floor=0.001"``.
    rows
        Gives the rows of the audit once more; called only if a name needs them.
    folder
        The audit's folder, where what was measured is kept for the next time
        (``calibration/distances.npz``).

    Returns
    -------
    dict
        float64, NaN where two heads share no row.

    Raises
    ------
    RowError
        If a name is no distance.
    RunError
        If the kept file is damaged.
    """
    check_distance_names(names)
    own = [name for name in names if name in audit.store.pair_names]
    found = {name: audit.store.pairs(name).distances() for name in own}
    path = None if folder is None else folder / "calibration" / "distances.npz"
    kept = {} if path is None or not path.exists() else read_arrays(path)
    missing = [name for name in dict.fromkeys(names) if name not in found and name not in kept]
    if missing:
        kept |= _measured(rows(), tuple(missing))
        if path is not None:
            write_arrays(path, kept)
    found |= {name: kept[name] for name in names if name not in found}
    return {name: square(found[name], len(audit.heads)) for name in names}


def _measured(rows: RowSource, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    sums: PairSums | None = None
    for block in rows.blocks():
        more = pair_sums(block, metrics=names)
        sums = more if sums is None else sums.merge(more)
    if sums is None:
        raise RowError("no document has rows to measure distances on")
    return {name: sums.mean(name) for name in names}
