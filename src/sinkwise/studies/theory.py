"""The convention theorem, executable: three rows whose nearest neighbour hangs on the sink.

:func:`reversal_triple` builds them, :func:`reversal_gaps` says in closed form when they reverse,
:func:`distance_limits` and :func:`pair_bounds` how far apart sink masses let rows be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from sinkwise.distances.classical import cosine_distance, euclidean_distance, js_divergence
from sinkwise.distances.logratio import aitchison_distance, content_distance
from sinkwise.errors import RowError
from sinkwise.studies.bands import pair_bounds
from sinkwise.studies.closed_forms import (
    REVERSAL_MEASURES,
    Limits,
    ReversalGaps,
    checked_content,
    checked_sink_mass,
    distance_limits,
    reversal_gaps,
)

__all__ = [
    "REVERSAL_MEASURES",
    "TRIPLE_COLUMNS",
    "Limits",
    "ReversalGaps",
    "ReversalTriple",
    "distance_limits",
    "pair_bounds",
    "reversal_gaps",
    "reversal_triple",
]

TRIPLE_COLUMNS = ("measure", "margin_kept", "margin_dropped", "reverses", "radius")
"""Columns of :attr:`ReversalTriple.margins`."""

_TIE = 1e-12  # margins below this share of the distances are rounding

_CLASSICAL: dict[str, Callable[..., np.ndarray]] = {
    "cosine": cosine_distance,
    "euclidean": euclidean_distance,
    "js_divergence": js_divergence,
}


@dataclass(frozen=True)
class ReversalTriple:
    """Three rows whose verdict "which of b and c is nearer to a" hangs on the convention.

    Attributes
    ----------
    rows
        ``(3, keys)`` weights of a, b and c; the sink is key 0.
    log_rows
        Their logarithms, which keep all digits of the content at any sink mass.
    margins
        One row per measure: ``margin_kept`` and ``margin_dropped``, d(a, c) - d(a, b) with the
        sink kept and dropped (positive: b is nearer; in the measure's units); ``reverses``,
        whether b is nearer with the sink dropped and c with the sink kept; ``radius``, how far
        every log-weight may move without a change of this measure's strict verdicts.
    neighbourhood
        The smallest radius: whatever is added to the log-weights of the three rows, each by less
        than this, keeps every strict verdict of every measure.
    samples
        How many perturbations of that size were tried beside the proof; all verdicts held.
    """

    rows: np.ndarray
    log_rows: np.ndarray
    margins: pd.DataFrame
    neighbourhood: float
    samples: int


def reversal_triple(
    content: np.ndarray,
    sink_mass_a: float,
    sink_mass_b: float,
    *,
    samples: int = 1_000,
    seed: int = 0,
) -> ReversalTriple:
    """Build the triple of the convention theorem, with every measure's margin.

    a and b share their content and differ in sink mass; c has a's sink mass and a's content with
    its parts in reversed order.  With the sink dropped b is a's nearest by every measure, at
    distance 0; with the sink kept c is nearer where the gap in sink mass outweighs the gap in
    content (:func:`reversal_gaps`).  The content distance never reverses.

    Parameters
    ----------
    content
        ``(n,)`` positive parts, closed or not, not their own mirror image.
    sink_mass_a, sink_mass_b
        Different sink masses in (0, 1).
    samples
        Random perturbations on which the neighbourhood is tried.
    seed
        Of the perturbations.

    Returns
    -------
    ReversalTriple
        The rows, the margins by measure, and the neighbourhood.

    Raises
    ------
    RowError
        If a part is not positive, the content is its own mirror image, or the sink masses are
        equal or not inside (0, 1).

    Notes
    -----
    The radius is a proven bound.  Log-weights that move by at most r move a row by at most
    ``√2 tanh(r/2)`` in Euclidean distance, by r in the angle behind cosine, by ``r / √8`` in the
    root of the Jensen-Shannon divergence and by ``r √K`` in log-ratios of K keys: along the path
    each speed is the standard deviation of the change, at most r, under some weights (for Euclid
    the total variation of a tilt by 2r).  All four are metrics, and a enters both distances, so a
    margin moves by at most four times as much.  Most verdicts hold farther out, above all those
    of cosine, Euclid and JS where a sink mass is near 1; for two content keys the content
    distance's radius is exact.

    References
    ----------
    Endres and Schindelin (2003), A new metric for probability distributions, for the root of the
    divergence.

    Examples
    --------
    >>> import numpy as np
    >>> triple = reversal_triple(np.array([0.5, 0.3, 0.2]), 0.9, 0.7)
    >>> triple.margins.set_index("measure").reverses.to_dict()
    {'cosine': True, 'euclidean': True, 'js_divergence': True, 'aitchison': False, 'content': False}
    >>> triple.neighbourhood > 0.001
    True
    """
    pi = checked_content(content)
    a, b = (checked_sink_mass(s, inside=True) for s in (sink_mass_a, sink_mass_b))
    if a == b:
        raise RowError(
            f"both sink masses are {a}: rows with one content and one sink mass are the same row; "
            "give two different ones"
        )
    if np.allclose(pi, pi[::-1], rtol=_TIE, atol=0.0):
        raise RowError(
            "the content is its own mirror image, so that c would be a; order its parts, for "
            "example numpy.sort(content)"
        )
    if samples < 0:
        raise RowError(f"samples is {samples}, expected at least 0")
    log_rows = np.stack([_log_row(a, pi), _log_row(b, pi), _log_row(a, pi[::-1])])
    verdicts = [
        _Verdict.of(log_rows, measure, convention)
        for measure in REVERSAL_MEASURES
        for convention in ("kept", "dropped")
    ]
    strict = [v for v in verdicts if v.sign]
    neighbourhood = min(v.radius for v in strict)
    _try(log_rows, strict, neighbourhood, samples, seed)
    rows = []
    for kept, dropped in zip(verdicts[::2], verdicts[1::2], strict=True):
        reverses = kept.sign < 0 < dropped.sign
        radius = min(v.radius for v in (kept, dropped) if v.sign)
        rows.append((kept.measure, kept.margin, dropped.margin, reverses, radius))
    return ReversalTriple(
        np.exp(log_rows),
        log_rows,
        pd.DataFrame(rows, columns=TRIPLE_COLUMNS),
        neighbourhood,
        samples,
    )


@dataclass(frozen=True)
class _Verdict:
    """One measure's verdict under one convention, and how far the log-weights may move."""

    measure: str
    convention: str
    margin: float
    sign: int
    radius: float

    @classmethod
    def of(cls, log_rows: np.ndarray, measure: str, convention: str) -> _Verdict:
        to_b, to_c = (float(d) for d in _distances(log_rows, measure, convention))
        margin = to_c - to_b
        tied = abs(margin) <= _TIE * (to_b + to_c)
        whole = measure == "aitchison" and convention == "kept"
        radius = _radius(measure, to_b, to_c, log_rows.shape[-1] - (not whole))
        return cls(measure, convention, margin, 0 if tied else int(np.sign(margin)), radius)


def _radius(measure: str, to_b: float, to_c: float, n_keys: int) -> float:
    """How far log-weights may move, each, before d(a, c) and d(a, b) can be equal."""
    if measure == "euclidean":
        return float(2 * np.arctanh(abs(to_c - to_b) / (4 * np.sqrt(2))))
    if measure == "cosine":
        angles = [2 * np.arcsin(np.sqrt(d / 2)) for d in (to_b, to_c)]
        return float(abs(angles[1] - angles[0]) / 4)
    if measure == "js_divergence":
        return float(abs(np.sqrt(to_c) - np.sqrt(to_b)) / np.sqrt(2))
    return float(abs(to_c - to_b) / (4 * np.sqrt(n_keys)))


def _distances(
    log_rows: np.ndarray, measure: str, convention: str
) -> tuple[np.ndarray, np.ndarray]:
    """d(a, b) and d(a, c) of ``(..., 3, keys)`` log-weights."""
    a, b, c = (log_rows[..., i, :] for i in range(3))
    distance = _distance(measure, convention)
    return distance(a, b), distance(a, c)


def _distance(measure: str, convention: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    if measure in _CLASSICAL:
        return partial(_CLASSICAL[measure], sink=0, convention=convention, logits=True)
    if measure == "aitchison" and convention == "kept":
        return partial(aitchison_distance, logits=True)
    # without the sink both log-ratio distances are the content's
    return partial(content_distance, sink=0, logits=True)


def _log_row(sink_mass: float, pi: np.ndarray) -> np.ndarray:
    return np.concatenate([[np.log(sink_mass)], np.log1p(-sink_mass) + np.log(pi)])


def _try(
    log_rows: np.ndarray, verdicts: list[_Verdict], radius: float, samples: int, seed: int
) -> None:
    """Perturb the rows as far as the neighbourhood goes: half in its corners, half anywhere."""
    rng = np.random.default_rng(seed)
    radius *= 1 - 1e-6  # it is open
    moved = rng.uniform(-radius, radius, (samples, *log_rows.shape))
    moved[::2] = np.sign(moved[::2]) * radius
    for verdict in verdicts:
        to_b, to_c = _distances(log_rows + moved, verdict.measure, verdict.convention)
        held = np.sign(to_c - to_b) == verdict.sign
        assert held.all(), f"{verdict} does not hold within its radius"
