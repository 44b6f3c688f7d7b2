"""What a monitor says at one step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sinkwise.rowdata import HeadId
from sinkwise.training.alarms import KINDS, Alarm, Alarms
from sinkwise.training.sums import CHANGES, LEVELS, HeadSums

__all__ = ["MonitorRecord", "NanPlace", "record_of"]

_BY_LAYER = ("sink_mass", "content_entropy", "content_evenness")


@dataclass(frozen=True)
class NanPlace:
    """A head with rows whose logits are not finite."""

    step: int
    layer: int
    head: int
    rows: int


@dataclass(frozen=True)
class MonitorRecord:
    """The probe's rows at one step, the same on every process.

    Attributes
    ----------
    step
        Optimiser steps taken.
    scalars
        Finite numbers by flat names, as a logger takes them; see ``docs/training.md``.
    heads
        float64 ``(heads,)`` by name: means over rows of each head, in layer-major order; NaN
        for a head without a sound row.
    head_ids
        Layer and index of each head.
    alarms
        Thresholds that are passed.
    nan_places
        Heads with rows that are not finite.  Such rows are in no mean.
    """

    step: int
    scalars: Mapping[str, float]
    heads: Mapping[str, np.ndarray]
    head_ids: tuple[HeadId, ...]
    alarms: tuple[Alarm, ...]
    nan_places: tuple[NanPlace, ...]

    def table(self) -> pd.DataFrame:
        """One row a head: ``layer``, ``index`` and what :attr:`heads` holds."""
        places = {
            "layer": [head.layer for head in self.head_ids],
            "index": [head.index for head in self.head_ids],
        }
        return pd.DataFrame({**places, **self.heads})


def record_of(
    sums: HeadSums,
    head_ids: tuple[HeadId, ...],
    alarms: tuple[Alarm, ...],
    thresholds: Alarms,
    *,
    step: int,
    per_layer: bool,
) -> MonitorRecord:
    """Return the record of sums over all processes."""
    extremes, measured = thresholds.extreme_heads(sums), thresholds.measured(sums)
    scalars = {name: sums.mean(name) for name in LEVELS}
    changes = [f"since_{when}/{name}" for when in ("last", "first") for name in CHANGES]
    scalars |= {name: sums.mean(name) for name in changes}
    known = [kind for kind in KINDS if math.isfinite(measured[kind])]
    scalars |= {kind: float(heads.sum()) for kind, heads in extremes.items() if kind in known}
    scalars |= {name: float(sums.sums[name].sum()) for name in ("rows", "nan_rows")}
    raised = {alarm.kind for alarm in alarms}
    scalars |= {f"alarm/{kind}": float(kind in raised) for kind in known}
    if per_layer:
        layers = np.array([head.layer for head in head_ids])
        for layer in np.unique(layers):
            scalars |= {
                f"layer_{layer:02d}/{name}": sums.mean(name, layers == layer) for name in _BY_LAYER
            }
    broken = sums.sums["nan_rows"]
    return MonitorRecord(
        step=step,
        scalars={f"sinkwise/{k}": value for k, value in scalars.items() if math.isfinite(value)},
        heads={name: sums.by_head(name) for name in (*LEVELS, *changes)},
        head_ids=head_ids,
        alarms=alarms,
        nan_places=tuple(
            NanPlace(step, head.layer, head.index, int(rows))
            for head, rows in zip(head_ids, broken, strict=True)
            if rows
        ),
    )
