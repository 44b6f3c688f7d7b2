"""How much of a distance between heads is their gap in sink mass: Mantel correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.spatial.distance import squareform
from scipy.stats import rankdata

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.cores import on_all_cores
from sinkwise.studies.head_matrix import as_head_matrix

__all__ = ["MANTEL_COLUMNS", "sink_association"]

MANTEL_COLUMNS = (
    "measure",
    "method",
    "r",
    "p",
    "partial_r",
    "partial_p",
    "permutations",
    "note",
)
"""Columns of the table."""

_CHUNK_ELEMENTS = 1 << 22
_SIMPLE = 1e-12  # of a vector's scale: a spread below it is rounding


def sink_association(
    matrices: Mapping[str, np.ndarray],
    sink_mass: np.ndarray,
    *,
    given: str = "content",
    permutations: int = 999,
    seed: int = 0,
    heads: Sequence[HeadId] | None = None,
) -> pd.DataFrame:
    """Correlate distances between heads with their gaps in mean sink mass.

    Parameters
    ----------
    matrices
        ``(heads, heads)`` or condensed ``(pairs,)`` distances by measure.
    sink_mass
        ``(heads,)`` mean sink masses; the gap of two heads is the absolute difference.
    given
        The measure whose share is taken out in the partial correlation; left out (NaN) for that
        measure itself, and for all where it is not among `matrices`.
    permutations
        Of the heads, for the p-values: two-sided, ``(1 + as extreme) / (1 + permutations)``, so
        the smallest is ``1 / (1 + permutations)``.  0 for none (NaN).
    seed
        Of the permutations.
    heads
        Names for messages.

    Returns
    -------
    pandas.DataFrame
        One row per measure and method (``"pearson"``, ``"spearman"``): ``r`` and ``p`` (Mantel);
        ``partial_r`` and ``partial_p`` (of distance and gap given the content distance, the gaps'
        heads permuted); ``permutations``; ``note``, where a correlation is not defined: distances
        or gaps that are all alike.

    Raises
    ------
    RowError
        If a matrix is no distance matrix of these heads, or there are fewer than 3.

    Notes
    -----
    The p-value treats heads as exchangeable under the null; heads of one layer are not quite.
    One gather of the permuted gaps and one matrix product serve all measures at once:
    O(permutations · pairs · measures) arithmetic, in chunks of 32 MiB a core.

    References
    ----------
    Mantel (1967); Smouse, Long and Sokal (1986) for the partial form.

    Examples
    --------
    >>> mass = np.array([0.1, 0.2, 0.6, 0.9])
    >>> gaps = np.abs(np.subtract.outer(mass, mass))
    >>> found = sink_association({"cosine/kept": gaps**2}, mass, permutations=23)
    >>> found.r.round(3).tolist()  # the ranks agree fully
    [0.973, 1.0]
    """
    mass = np.asarray(sink_mass, dtype=np.float64)
    if mass.ndim != 1 or len(mass) < 3:
        raise RowError(f"sink_mass has shape {mass.shape}, expected one mass for 3 heads or more")
    if not np.isfinite(mass).all():
        raise RowError("a sink mass is not finite: leave heads without rows out")
    if permutations < 0:
        raise RowError(f"permutations is {permutations}, expected 0 or more")
    vectors = {}
    for name, matrix in matrices.items():
        checked = as_head_matrix(matrix, name=name, heads=heads, at_least=3)
        if len(checked) != len(mass):
            raise RowError(f"{name} has {len(checked)} heads, sink_mass {len(mass)}")
        vectors[name] = squareform(checked, checks=False)
    gaps = squareform(np.abs(np.subtract.outer(mass, mass)), checks=False)
    frames = [
        _correlations(vectors, gaps, given, permutations, seed, method, len(mass))
        for method in ("pearson", "spearman")
    ]
    return pd.DataFrame([row for frame in frames for row in frame], columns=MANTEL_COLUMNS)


def _correlations(
    vectors: Mapping[str, np.ndarray],
    gaps: np.ndarray,
    given: str,
    permutations: int,
    seed: int,
    method: str,
    n_heads: int,
) -> list[dict[str, object]]:
    if method == "spearman":
        vectors = {name: rankdata(vector) for name, vector in vectors.items()}
        gaps = rankdata(gaps)
    names = list(vectors)
    standard = np.stack([_standardised(vectors[name]) for name in names])
    gap = _standardised(gaps)
    observed = standard @ gap
    permuted = _permuted(gap, standard, permutations, seed, n_heads)
    partial = np.full(len(names), np.nan)
    partial_permuted = np.full(permuted.shape, np.nan)
    if given in vectors:
        at = names.index(given)
        with_given = standard @ standard[at]
        with_given[at] = np.nan
        with np.errstate(invalid="ignore", divide="ignore"):
            partial = _partial(observed, with_given, observed[at])
            partial_permuted = _partial(permuted, with_given, permuted[:, [at]])
    rows: list[dict[str, object]] = []
    for i, name in enumerate(names):
        alike = [
            what for what, v in (("distances", standard[i]), ("gaps", gap)) if np.isnan(v).any()
        ]
        rows.append(
            {
                "measure": name,
                "method": method,
                "r": float(observed[i]),
                "p": _p(observed[i], permuted[:, i]),
                "partial_r": float(partial[i]),
                "partial_p": _p(partial[i], partial_permuted[:, i]),
                "permutations": permutations,
                "note": f"all {' and '.join(alike)} are alike" if alike else "",
            }
        )
    return rows


def _standardised(vector: np.ndarray) -> np.ndarray:
    """Centred with norm 1; NaN where all entries are alike."""
    centred = vector - vector.mean()
    norm = float(np.linalg.norm(centred))
    if norm <= _SIMPLE * max(float(np.linalg.norm(vector)), np.finfo(float).tiny):
        return np.full_like(centred, np.nan)
    standard: np.ndarray = centred / norm
    return standard


def _permuted(
    gap: np.ndarray, standard: np.ndarray, permutations: int, seed: int, n_heads: int
) -> np.ndarray:
    """Correlations ``(permutations, measures)`` with the heads of the gaps permuted."""
    rng = np.random.default_rng(seed)
    square = squareform(gap, checks=False).ravel()
    first, second = np.triu_indices(n_heads, 1)
    orders = np.array([rng.permutation(n_heads) for _ in range(permutations)])

    def correlated(chunk: np.ndarray) -> np.ndarray:
        shuffled = np.empty((len(chunk), len(gap)))
        for row, order in zip(shuffled, chunk, strict=True):
            place = (order * n_heads)[first]
            place += order[second]
            np.take(square, place, out=row, mode="clip")  # unlike "raise" it writes to the row
        products: np.ndarray = shuffled @ standard.T
        return products

    step = max(1, _CHUNK_ELEMENTS // len(gap))
    chunks = [orders[start : start + step] for start in range(0, permutations, step)]
    empty = np.empty((0, len(standard)))
    return np.concatenate([empty, *on_all_cores(correlated, chunks)])


def _partial(with_gap: np.ndarray, with_given: np.ndarray, gap_given: np.ndarray) -> np.ndarray:
    rest = (1 - with_given**2) * (1 - gap_given**2)
    found: np.ndarray = (with_gap - with_given * gap_given) / np.sqrt(
        np.where(rest > 0, rest, np.nan)
    )
    return found


def _p(observed: float, permuted: np.ndarray) -> float:
    if not len(permuted) or not np.isfinite(observed):
        return float("nan")
    extreme = np.abs(permuted) >= abs(observed) * (1 - 1e-12)
    return float((1 + extreme.sum()) / (1 + len(permuted)))
