"""When to speak up while a model trains: content that collapses, a sink that grows, extremes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np

from sinkwise.errors import RowError
from sinkwise.training.sums import HeadSums

__all__ = ["KINDS", "Alarm", "Alarms"]

KINDS = ("content_collapse", "sink_growth", "peaked_heads", "uniform_heads")
"""Kinds of alarm, each with a threshold of its name in :class:`Alarms`."""


@dataclass(frozen=True)
class Alarm:
    """A threshold that is passed at a record.

    Attributes
    ----------
    kind
        One of :data:`KINDS`.
    step
        Of the record.
    value, threshold
        What was measured, and what it was held against.
    words
        What happened, as a sentence.
    new
        Whether it wasn't passed at the record before.
    """

    kind: str
    step: int
    value: float
    threshold: float
    words: str
    new: bool


@dataclass(frozen=True)
class Alarms:
    """Thresholds of a :class:`~sinkwise.Monitor`; ``None`` turns one off.

    Entropy alone falls in the first two cases alike, so each is held against a number that the
    other can't move.  Thresholds meet means over the probe's rows, without an interval.

    Attributes
    ----------
    content_collapse
        Share of its content entropy H(π), at the first record, that the model has lost.  Blind to
        the sink.  Content sharpens as a model learns, so what counts as collapse is yours to set.
    sink_growth
        Rise of the mean sink mass since the first record.
    peaked_heads
        Share of all heads whose content is peaked: on average over rows, H(π)/log m (m content
        keys) is below `peaked`.
    uniform_heads
        Share of all heads whose content is uniform: H(π)/log m is above `uniform`.  Off by
        default: freshly initialised heads are.
    peaked, uniform
        The bounds on H(π)/log m that say which heads are peaked, and which uniform.

    Raises
    ------
    RowError
        If a threshold lies outside (0, 1], or the bounds don't part two kinds of heads.

    Examples
    --------
    >>> Alarms(sink_growth=0.2, peaked_heads=None).sink_growth
    0.2
    """

    content_collapse: float | None = 0.5
    sink_growth: float | None = 0.3
    peaked_heads: float | None = 0.5
    uniform_heads: float | None = None
    peaked: float = 0.1
    uniform: float = 0.95

    def __post_init__(self) -> None:
        for kind in KINDS:
            threshold = getattr(self, kind)
            if threshold is not None and not (_is_number(threshold) and 0 < threshold <= 1):
                raise RowError(
                    f"{kind}={threshold!r} arrived, expected a share above 0 and up to 1, or None "
                    f"for no alarm: type Alarms({kind}=0.5)"
                )
        numbers = _is_number(self.peaked) and _is_number(self.uniform)
        if not (numbers and 0 <= self.peaked < self.uniform <= 1):
            raise RowError(
                f"peaked={self.peaked!r}, uniform={self.uniform!r} arrived: expected bounds on "
                "H(π)/log m with 0 <= peaked < uniform <= 1"
            )

    def extreme_heads(self, sums: HeadSums) -> dict[str, np.ndarray]:
        """Return which heads are peaked and which uniform, bool ``(heads,)`` by kind."""
        evenness = sums.by_head("content_evenness")
        return {"peaked_heads": evenness < self.peaked, "uniform_heads": evenness > self.uniform}

    def measured(self, sums: HeadSums) -> dict[str, float]:
        """Return what each threshold is held against, by kind; NaN where no sound row says it."""
        then = sums.mean("since_first/content_entropy_before")
        lost = -sums.mean("since_first/content_entropy")
        values = {
            "content_collapse": lost / then if then else math.nan,
            "sink_growth": sums.mean("since_first/sink_mass"),
        }
        any_row = bool(np.any(sums.sums["rows"] > 0))
        for kind, heads in self.extreme_heads(sums).items():
            values[kind] = float(heads.mean()) if any_row else math.nan
        return values

    def raised(
        self, sums: HeadSums, *, step: int, first_step: int, before: frozenset[str]
    ) -> tuple[Alarm, ...]:
        """Return the alarms of a record.

        Parameters
        ----------
        sums
            Of all processes.
        step, first_step
            Of the record, and of the first one.
        before
            Kinds that were raised at the record before.
        """
        change = {name: sums.mean(f"since_first/{name}") for name in ("total", "sink", "content")}
        split = (
            f"since step {first_step} the entropy changed by {change['total']:+.3g} nats, "
            f"{change['sink']:+.3g} of it by the sink and {change['content']:+.3g} by the content"
        )
        then = sums.mean("since_first/content_entropy_before")
        lost = -sums.mean("since_first/content_entropy")
        values = self.measured(sums)
        words = {
            "content_collapse": f"content entropy fell by {lost:.3g} from {then:.3g} nats; {split}",
            "sink_growth": f"mean sink mass rose by {values['sink_growth']:.3g}; {split}",
        }
        for kind, heads in self.extreme_heads(sums).items():
            bound = "below" if kind == "peaked_heads" else "above"
            limit = self.peaked if kind == "peaked_heads" else self.uniform
            words[kind] = (
                f"{int(heads.sum())} of {len(heads)} heads have a content evenness H(π)/log m "
                f"{bound} {limit:g}"
            )
        found = []
        for kind in KINDS:
            threshold = getattr(self, kind)
            if threshold is not None and values[kind] >= threshold:
                new = kind not in before
                found.append(Alarm(kind, step, values[kind], threshold, words[kind], new))
        return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
