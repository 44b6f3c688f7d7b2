"""What the sink alone decides, in closed form: limits of distances, and when verdicts reverse."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sinkwise.distances.classical import cosine_distance, euclidean_distance, js_divergence
from sinkwise.errors import RowError

__all__ = [
    "REVERSAL_MEASURES",
    "Limits",
    "ReversalGaps",
    "checked_content",
    "checked_sink_mass",
    "distance_limits",
    "reversal_gaps",
]

REVERSAL_MEASURES = ("cosine", "euclidean", "js_divergence", "aitchison", "content")
"""Measures whose reversal has a closed form."""


class Limits(NamedTuple):
    """The smallest and the largest value that a distance can take."""

    floor: float
    ceiling: float


def distance_limits(sink_mass_p: float, sink_mass_q: float) -> dict[str, Limits]:
    """Return between which values two rows' distances lie, given their sink masses alone.

    One sink key, the sink kept, whatever the contents and however many keys.

    Parameters
    ----------
    sink_mass_p, sink_mass_q
        Sink masses of the two rows, in [0, 1].

    Returns
    -------
    dict
        :class:`Limits` by measure: ``cosine`` (distance), ``cosine_similarity``, ``euclidean``
        and ``js_divergence`` (nats).

    Raises
    ------
    RowError
        If a sink mass lies outside [0, 1].

    Notes
    -----
    The ceilings are attained by contents on one key each, not the same; at equal masses they are
    those of
    :func:`~sinkwise.studies.bands.pair_bounds`, which only asks for the smaller mass m: similarity
    at least ``m^2 / (m^2 + (1-m)^2)``.  The floors are those of equal contents spread over
    endlessly many keys: ``|s_p - s_q|`` for Euclid (approached), the divergence of ``(s, 1-s)`` for
    JS (attained), and 0 for cosine, which contents of unequal spread can bring to 0.

    Examples
    --------
    >>> limits = distance_limits(0.8, 0.8)
    >>> round(limits["cosine_similarity"].floor, 4), round(limits["js_divergence"].ceiling, 4)
    (0.9412, 0.1386)
    """
    p, q = checked_sink_mass(sink_mass_p), checked_sink_mass(sink_mass_q)
    apart = np.array([p, 1 - p, 0]), np.array([q, 0, 1 - q])
    cosine, euclidean, divergence = (
        float(distance(*apart, sink=0, convention="kept"))
        for distance in (cosine_distance, euclidean_distance, js_divergence)
    )
    return {
        "cosine": Limits(0.0, cosine),
        "cosine_similarity": Limits(1 - cosine, 1.0),
        "euclidean": Limits(abs(p - q), euclidean),
        "js_divergence": Limits(_two_part_divergence(p, q), divergence),
    }


class ReversalGaps(NamedTuple):
    """What the verdict of a reversal triple hangs on, under ``kept``.

    Attributes
    ----------
    sink
        The distance from a to b: same content, another sink mass.
    content
        The distance from a to c: same sink mass, the content in reversed order.
    """

    sink: float
    content: float

    @property
    def reverses(self) -> bool:
        """Whether c is nearer to a than b, which has a's very content."""
        return self.sink > self.content


def reversal_gaps(
    measure: str, content: np.ndarray, sink_mass_a: float, sink_mass_b: float
) -> ReversalGaps:
    """Return both distances of the reversal triple with the sink kept, in closed form.

    With π the content, π̃ the same in reversed order, s_a and s_b the sink masses of a and b (c
    has that of a), u = 1 - s_a, Δ = s_a - s_b and n the number of content keys, dropping the sink
    makes b the nearest of a; keeping it reverses that exactly where

    - Euclid: Δ² (1 + ‖π‖²) > u² ‖π - π̃‖²;
    - cosine, as angles: ``|φ(s_a) - φ(s_b)| > 2 arcsin(u ‖π - π̃‖ / (2 √(s_a² + u² ‖π‖²)))``, where
      ``tan φ(s) = (1-s) ‖π‖ / s``;
    - Jensen-Shannon: the divergence of (s_a, 1-s_a) from (s_b, 1-s_b) exceeds u · JS(π, π̃);
    - Aitchison: √(n/(n+1)) |logit s_a - logit s_b| > ‖clr π - clr π̃‖;
    - the content distance: 0 > ‖clr π - clr π̃‖, never.

    Parameters
    ----------
    measure
        One of :data:`REVERSAL_MEASURES`.
    content
        ``(n,)`` positive parts, closed or not.
    sink_mass_a, sink_mass_b
        In (0, 1).

    Returns
    -------
    ReversalGaps
        Both sides of the condition as distances (cosine distance, Euclid, divergence in nats,
        log-ratios).

    Raises
    ------
    RowError
        If there is no such measure, a part is not positive or a sink mass not inside (0, 1).

    Examples
    --------
    >>> gaps = reversal_gaps("euclidean", np.array([0.5, 0.3, 0.2]), 0.9, 0.7)
    >>> round(gaps.sink, 4), round(gaps.content, 4), gaps.reverses
    (0.2349, 0.0424, True)
    """
    pi = checked_content(content)
    mirrored = pi[::-1]
    a, b = (checked_sink_mass(s, inside=True) for s in (sink_mass_a, sink_mass_b))
    rest = 1 - a
    norm, apart = float(np.linalg.norm(pi)), float(np.linalg.norm(pi - mirrored))
    match measure:
        case "euclidean":
            return ReversalGaps(abs(a - b) * math.hypot(1, norm), rest * apart)
        case "cosine":
            turned = math.atan2((1 - a) * norm, a) - math.atan2((1 - b) * norm, b)
            # 1 - cos x = 2 sin² (x/2) keeps its digits
            half_chord = rest * apart / (2 * math.hypot(a, rest * norm))
            return ReversalGaps(2 * math.sin(turned / 2) ** 2, 2 * half_chord**2)
        case "js_divergence":
            return ReversalGaps(_two_part_divergence(a, b), rest * _divergence(pi, mirrored))
        case "aitchison" | "content":
            log = np.log(pi)
            ratio = float(np.linalg.norm(log - log[::-1]))
            if measure == "content":
                return ReversalGaps(0.0, ratio)
            logits = [math.log(s) - math.log1p(-s) for s in (a, b)]
            return ReversalGaps(
                math.sqrt(len(pi) / (len(pi) + 1)) * abs(logits[0] - logits[1]), ratio
            )
    raise RowError(f"measure={measure!r}, expected one of {', '.join(REVERSAL_MEASURES)}")


def checked_sink_mass(value: float, *, inside: bool = False) -> float:
    """Return a sink mass as a float, or say what is wrong with it."""
    s = float(value)
    if not 0 <= s <= 1:
        raise RowError(f"a sink mass of {value} lies outside [0, 1]")
    if inside and s in (0.0, 1.0):
        raise RowError(
            f"a sink mass of {value} leaves no sink or no content, expected it inside (0, 1)"
        )
    return s


def checked_content(content: np.ndarray) -> np.ndarray:
    """Return a content composition, closed, or say what is wrong with it."""
    parts = np.asarray(content, dtype=np.float64)
    if parts.ndim != 1 or len(parts) < 2:
        raise RowError(f"content has shape {parts.shape}, expected (parts,) with two or more")
    if not (np.isfinite(parts).all() and (parts > 0).all()):
        i = int(np.argmin(np.where(np.isfinite(parts), parts, -np.inf)))
        raise RowError(
            f"part {i} of the content is {parts[i]}, expected positive numbers: log-ratios need "
            "every part"
        )
    return parts / parts.sum()


def _two_part_divergence(p: float, q: float) -> float:
    return _divergence(np.array([p, 1 - p]), np.array([q, 1 - q]))


def _divergence(p: np.ndarray, q: np.ndarray) -> float:
    return float(js_divergence(p, q, sink=0, convention="kept"))  # whole rows: any sink will do
