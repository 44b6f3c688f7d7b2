"""A monitor as a callback of Lightning, under either of its package names."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from sinkwise.errors import MissingExtraError
from sinkwise.training.monitor import Monitor

if TYPE_CHECKING:
    from sinkwise.training.records import MonitorRecord

__all__ = ["SinkCallback"]


def _callback_class() -> Any:
    """The callback class of the package that is in use, or of one that is installed."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise MissingExtraError(
        "this callback needs Lightning, which is not installed; type: pip install lightning"
    )


class SinkCallback(_callback_class()):  # type: ignore[misc]
    """Record a :class:`~sinkwise.Monitor` while a Lightning ``Trainer`` trains.

    What is recorded goes to every logger of the trainer, whatever its ``log_every_n_steps``, and
    into ``trainer.callback_metrics``, where early stopping and checkpointing find it.  The first
    record is made before the first step.

    Parameters
    ----------
    probe
        As in :class:`~sinkwise.Monitor`; by default the first training batch.
    options
        Those of :class:`~sinkwise.Monitor`: ``every``, ``queries``, ``sink``, ``alarms``, ...

    Attributes
    ----------
    monitor
        The monitor; ``None`` before training.

    Raises
    ------
    MissingExtraError
        On import, if neither ``lightning`` nor ``pytorch_lightning`` is installed.
    InputTypeError
        When training begins, as :class:`~sinkwise.Monitor`: the module has to hold one
        transformers model.

    Examples
    --------
    >>> trainer = Trainer(callbacks=[SinkCallback(every=50)])  # doctest: +SKIP
    >>> trainer.fit(module, batches)  # doctest: +SKIP
    """

    def __init__(self, probe: Any = None, **options: Any) -> None:
        self._probe = probe
        self._options = options
        self._recorded = -1
        self.monitor: Monitor | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the monitor."""
        self.monitor = Monitor(pl_module, self._probe, **self._options)
        self._recorded = -1

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Before the first step, make the record that changes are counted from."""
        if self.monitor is not None and self.monitor.last is None:
            self.monitor.keep(batch)
            self._record(trainer, pl_module, self.monitor)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Record after an optimiser step whose turn it is."""
        step = trainer.global_step
        if self.monitor is not None and step > self._recorded and self.monitor.due(step):
            self._record(trainer, pl_module, self.monitor)

    def _record(self, trainer: Any, pl_module: Any, monitor: Monitor) -> None:
        self._recorded = trainer.global_step
        with trainer.precision_plugin.forward_context():
            record: MonitorRecord = monitor.record(step=trainer.global_step)
        for logger in trainer.loggers:
            logger.log_metrics(dict(record.scalars), step=trainer.global_step)
        pl_module.log_dict(dict(record.scalars), logger=False)
