"""Watch a model's attention while it trains: did the content sharpen, or did the sink grow?"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sinkwise.capture.queries import check_queries, check_sink
from sinkwise.channels.entropy import EntropyParts
from sinkwise.errors import InputTypeError, RowError
from sinkwise.rowdata import HeadId
from sinkwise.training.alarms import Alarms
from sinkwise.training.probe import Probe, batch_probe, text_probe
from sinkwise.training.probe_rows import ProbeRows, choose_rows, read_rows
from sinkwise.training.processes import summed_over_processes
from sinkwise.training.records import MonitorRecord, record_of
from sinkwise.training.sums import LEVELS, HeadSums, filled, probe_sums
from sinkwise.training.watched import watched

if TYPE_CHECKING:
    import torch

__all__ = ["Monitor"]

_log = logging.getLogger("sinkwise.training")


class Monitor:
    """Sink mass, content entropy and the split of entropy while a model trains.

    Every `every` steps the model is run once over a batch held fixed, in evaluation mode and
    without gradients, so curves are comparable.  The training step itself is not touched: its
    graph, autocast, accumulation, checkpointing, compiled code, random states and the mode of
    every module are as before, and nothing of the pass is kept but four numbers a row.

    Parameters
    ----------
    model
        A transformers model, as it is or inside ``torch.compile``,
        ``DistributedDataParallel``, ``fully_shard``, adapters, or a module that holds no other.
    probe
        What to look at: a training batch (a mapping of tensors), or texts or sequences of token
        ids.  By default the first batch that :meth:`step` is given; it is copied.  In a
        distributed run each process may have its own.
    tokenizer, max_length
        For texts, as in :class:`~sinkwise.ModelRows`.
    every
        Steps from one record to the next.
    queries
        Query rows a document: a number, one from each of as many equal strata, or ``"all"``.
    sink
        ``"first"``: the first token of each document; or positions in it.  A learned sink logit
        is part of the sink.
    alarms
        Thresholds, or ``None`` for no alarm.
    per_layer
        Whether scalars hold a few values of each layer, too.  Values of each head are always in
        the record.
    seed
        With a document's number it decides its query rows.
    group
        Process group to sum over; by default all processes, where there are several.

    Raises
    ------
    InputTypeError
        If there is no transformers model in `model`, or the probe is of another kind.
    RowError
        If an option is wrong.
    CaptureError
        From the first record: not one attention call was heard, or rows can't be captured
        faithfully.

    Notes
    -----
    A record costs one forward pass over the probe, without the output head unless weights are
    sharded, and ``heads * rows * keys * (head_dim + 60)`` operations for the rows.

    In a distributed run every process has to call :meth:`step` alike.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> import torch
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> optimiser = torch.optim.AdamW(model.parameters())
    >>> batch = {"input_ids": torch.arange(20).remainder(11).view(2, 10)}
    >>> monitor = Monitor(model, probe=batch, every=2)
    >>> first = monitor.record()  # before training, what changes are counted from
    >>> for _ in range(4):
    ...     loss = model(**batch, labels=batch["input_ids"]).loss
    ...     loss.backward()
    ...     optimiser.step()
    ...     optimiser.zero_grad()
    ...     record = monitor.step()
    >>> record.step, int(record.scalars["sinkwise/rows"])
    (4, 64)
    >>> change = record.scalars
    >>> parts = ("sink", "content", "within_sink")
    >>> gap = change["sinkwise/since_first/total"] - sum(
    ...     change[f"sinkwise/since_first/{part}"] for part in parts)
    >>> abs(gap) < 1e-10
    True
    """

    def __init__(
        self,
        model: torch.nn.Module,
        probe: Any = None,
        *,
        every: int = 50,
        queries: int | Literal["all"] = 32,
        sink: Literal["first"] | int | Sequence[int] = "first",
        alarms: Alarms | None = Alarms(),  # noqa: B008 - frozen
        tokenizer: Any = None,
        max_length: int | None = None,
        per_layer: bool = False,
        seed: int = 0,
        group: Any = None,
    ) -> None:
        if alarms is not None and not isinstance(alarms, Alarms):
            raise InputTypeError(
                f"alarms of class {type(alarms).__name__} arrived, expected thresholds: type "
                "alarms=sinkwise.Alarms(sink_growth=0.2), or alarms=None"
            )
        self._model = model
        self._every = _checked_every(every)
        self._queries = check_queries(queries)
        self._sink = _checked_sink(sink)
        self._alarms = alarms or Alarms(None, None, None, None)
        self._per_layer = per_layer
        self._seed = seed
        self._group = group
        inner = watched(model).model
        self._probe: Probe | None = None
        if isinstance(probe, Sequence):
            self._probe = text_probe(inner, tokenizer, probe, max_length)
        elif probe is not None:
            self._probe = batch_probe(inner, probe)
        self._rows: ProbeRows | None = None
        self._first: EntropyParts | None = None
        self._last: EntropyParts | None = None
        self._first_step = 0
        self._raised: frozenset[str] = frozenset()
        self._total: HeadSums | None = None
        self.last: MonitorRecord | None = None
        """The latest record."""
        self._step = 0

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Query heads in layer-major order, by their original layer numbers.

        Raises
        ------
        RowError
            Before the first record.
        """
        if self._rows is None:
            raise RowError("which heads there are is known from the first record on: call record()")
        return self._rows.layers.heads

    def step(self, batch: Any = None) -> MonitorRecord | None:
        """Count an optimiser step; record it if it is the first one or its turn has come.

        Parameters
        ----------
        batch
            The batch of this step; looked at only while there is no probe.
        """
        self._step += 1
        if batch is not None:
            self.keep(batch)
        due = self.due(self._step) or self._first is None
        return self.record(step=self._step) if due else None

    def due(self, step: int) -> bool:
        """Whether a record is made after this many steps."""
        return step % self._every == 0

    def keep(self, batch: Any) -> None:
        """Keep a copy of a batch as the probe, unless there is one."""
        if self._probe is None:
            self._probe = batch_probe(watched(self._model).model, batch)

    def record(self, *, step: int | None = None) -> MonitorRecord:
        """Look at the probe now; changes are counted from the first record ever made.

        Parameters
        ----------
        step
            The number of optimiser steps taken, where a training loop counts them itself.
        """
        self._step = self._step if step is None else step
        probe = self._probe
        if probe is None:
            raise InputTypeError(
                "there is no probe: type Monitor(model, probe=batch), or monitor.step(batch) after "
                "each step, whose first batch is kept"
            )
        model = watched(self._model)
        is_first = self._rows is None
        if self._rows is None:
            self._rows = choose_rows(
                model, probe, sink=self._sink, queries=self._queries, seed=self._seed
            )
        now, keys = read_rows(model, probe, self._rows, self._sink, check=is_first)
        if self._first is None or self._last is None:
            self._first, self._last, self._first_step = now, now, self._step
        sums = probe_sums(now, self._last, self._first, keys)
        everywhere = summed_over_processes(sums.vector, model.device, self._group)
        sums = sums.with_vector(everywhere)
        self._require_rows(sums)
        # a row that was not finite counts from its first, and to its last, finite numbers
        self._first, self._last = filled(self._first, now), filled(now, self._last)
        self._total = sums if self._total is None else self._total + sums
        return self._recorded(sums)

    def running_means(self) -> dict[str, float]:
        """Means over the rows of all records so far, those with NaN left out, by name."""
        if self._total is None:
            return {}
        return {f"sinkwise/{name}": self._total.mean(name) for name in LEVELS}

    def _recorded(self, sums: HeadSums) -> MonitorRecord:
        alarms = self._alarms.raised(
            sums, step=self._step, first_step=self._first_step, before=self._raised
        )
        self._raised = frozenset(alarm.kind for alarm in alarms)
        record = record_of(
            sums, self.heads, alarms, self._alarms, step=self._step, per_layer=self._per_layer
        )
        for alarm in alarms:
            if alarm.new:
                _log.warning("step %d: %s: %s", self._step, alarm.kind, alarm.words)
        if record.nan_places:
            place = record.nan_places[0]
            _log.warning(
                "step %d: %d attention rows of %d heads are not finite, first in layer %d, head %d",
                self._step,
                int(record.scalars["sinkwise/nan_rows"]),
                len(record.nan_places),
                place.layer,
                place.head,
            )
        self.last = record
        return record

    def _require_rows(self, sums: HeadSums) -> None:
        if not np.any(sums.sums["rows"] + sums.sums["nan_rows"]):
            raise RowError(
                "not one row of the probe sees the sink and two content tokens: pass longer "
                f"documents, or another sink than {self._sink}"
            )


def _checked_every(every: object) -> int:
    if isinstance(every, Integral) and not isinstance(every, bool) and every >= 1:
        return int(every)
    raise RowError(f"every={every!r} arrived, expected a number of steps of at least 1")


def _checked_sink(sink: object) -> tuple[int, ...]:
    if sink == "found":
        raise RowError(
            'sink="found" arrived: which keys are sinks changes while a model trains, and curves '
            'need one sink; type sink="first", or positions that an audit has found, such as '
            "sink=(0, 3)"
        )
    return check_sink(sink)
