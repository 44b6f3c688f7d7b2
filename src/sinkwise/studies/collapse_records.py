"""What a collapse study hands out: a checkpoint, and the change between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sinkwise.accumulate.intervals import Interval

__all__ = ["Checkpoint", "EntropyShift"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's name, and its training step where one is known."""

    name: str
    step: int | None = None


@dataclass(frozen=True)
class EntropyShift:
    """The attributed change of entropy between two checkpoints, in nats.

    Attributes
    ----------
    first, second
        Names of the checkpoints.
    total, sink, content, within_sink
        Mean change over rows and its channels: ``total = sink + content + within_sink``.
    sink_mass, content_entropy
        Change of the mean sink mass, and of the mean content entropy.
    shares
        Each channel's share of the total with Fieller's interval; NaN where the interval of the
        total holds 0, and for a single document.
    verdict
        One of :data:`~sinkwise.studies.collapse_verdicts.VERDICTS`.
    mostly
        The channel that made most of the change: the interval of its share lies above a half;
        empty where there is none.
    words
        The verdict as a sentence, and what was most of it.
    residual
        Largest error of the sum of the channels of one row.
    """

    first: str
    second: str
    total: Interval
    sink: Interval
    content: Interval
    within_sink: Interval
    sink_mass: Interval
    content_entropy: Interval
    shares: Mapping[str, Interval]
    verdict: str
    mostly: str
    words: str
    residual: float
