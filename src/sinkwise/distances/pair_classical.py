"""Cosine and Euclidean distance of all pairs of heads on one row, and the collapse bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sinkwise.distances.pair_gram import centred, square_gaps
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_row import SharedRow

__all__ = ["BANDS", "GRAM_MEASURES", "ZEROED_GRAM_MEASURES", "bands_of", "gram_measures_of"]

BANDS = ("larger_content_mass", "cosine_ceiling")


def _unit_content(row: SharedRow) -> np.ndarray:
    pi = row.shares
    return pi * (1 / _norm(pi))[:, None].astype(pi.dtype)


def _whole_row(row: SharedRow) -> np.ndarray:
    """The full weights, up to a shift common to all heads.

    The sink's coordinates are ``s sigma = sigma - c sigma`` with the sink set's own composition
    sigma.  At one sink key sigma is 1 for every head, so the coordinate is ``-c``, which keeps
    its digits at any sink mass; with several, what is common in sigma is taken out in float64.
    """
    return _joined(row, row.sink_shares, row.content_mass, row.content_mass, row.content_mass)


def _unit_whole_row(row: SharedRow) -> np.ndarray:
    """The full weights as unit vectors, up to a shift common to all heads.

    With the content's part u_C of the unit vector, the sink's is ``sigma' sqrt(1 - |u_C|^2)``,
    sigma' the unit vector of the sink set's composition; and ``sqrt(1 - t) = 1 - t/(1 +
    sqrt(1 - t))`` keeps the digits of what it lacks to sigma'.
    """
    sigma, pi = row.sink_shares, row.shares
    sink, content = row.sink_mass * _norm(sigma), row.content_mass * _norm(pi)
    length = np.hypot(sink, content)
    missing = np.square(content / length) / (1 + sink / length)
    tail = row.content_mass / length
    return _joined(row, sigma / _norm(sigma)[:, None], missing, tail, content / length)


def _joined(
    row: SharedRow, sigma: np.ndarray, missing: np.ndarray, tail: np.ndarray, size: np.ndarray
) -> np.ndarray:
    pi = row.shares
    # what is common in sigma, by the heads that lack least of it: theirs are the digits at risk
    weight = 1 / np.maximum(size, np.finfo(np.float64).tiny) ** 0.5
    common = (weight / weight.sum()) @ sigma
    out = np.empty((pi.shape[0], sigma.shape[1] + pi.shape[1]), dtype=pi.dtype)
    out[:, : sigma.shape[1]] = (sigma - common) - sigma * missing[:, None]
    np.multiply(pi, tail[:, None].astype(pi.dtype), out=out[:, sigma.shape[1] :])
    return out


def _norm(v: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("hk,hk->h", v, v).astype(np.float64))


_VECTORS: Mapping[str, Callable[[SharedRow], np.ndarray]] = {
    "cosine/kept": _unit_whole_row,
    "cosine/dropped": _unit_content,
    "euclidean/kept": _whole_row,
    "euclidean/dropped": lambda row: row.shares,
    "euclidean/zeroed": lambda row: row.shares * row.content_mass[:, None].astype(row.shares.dtype),
}

ZEROED_GRAM_MEASURES = ("euclidean/zeroed",)
"""Not taken unless asked for; with the sink zeroed cosine distance is that with it dropped."""

GRAM_MEASURES = tuple(name for name in _VECTORS if name not in ZEROED_GRAM_MEASURES)


def gram_measures_of(
    row: SharedRow, group: HeadGroup, wanted: frozenset[str]
) -> Mapping[str, np.ndarray]:
    """Return cosine and Euclidean distances under each convention asked for, each ``(n_pairs,)``.

    Cosine distance is ``|u - v|^2 / 2`` of unit vectors, never ``1 - u.v``.  One matrix product
    each.
    """
    out = {}
    for name in wanted & _VECTORS.keys():
        vectors = _VECTORS[name]

        def exact(heads: np.ndarray, of: Callable[[SharedRow], np.ndarray] = vectors) -> np.ndarray:
            return of(row.exact(heads))

        gaps = square_gaps(centred(vectors(row)), group, exact)
        np.maximum(gaps, 0, out=gaps)
        out[name] = gaps / 2 if name.startswith("cosine") else np.sqrt(gaps)
    return out


def bands_of(row: SharedRow, group: HeadGroup) -> Mapping[str, np.ndarray]:
    """Return the collapse bands' closed forms per pair, for one sink key.

    With m the smaller sink mass: ``larger_content_mass`` is 1 - m (Euclid stays below sqrt(2)
    times it, Jensen-Shannon divergence below log 2 times it) and ``cosine_ceiling`` the bound
    ``1 - m^2 / (m^2 + (1 - m)^2)`` on cosine distance.
    """
    i, j = group.first, group.second
    content = np.maximum(row.content_mass[i], row.content_mass[j])
    sink = np.minimum(row.sink_mass[i], row.sink_mass[j])
    ceiling = content**2 / (sink**2 + content**2)
    return {"larger_content_mass": content, "cosine_ceiling": ceiling}
