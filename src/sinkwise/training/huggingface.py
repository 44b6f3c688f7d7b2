"""A monitor as a callback of transformers' Trainer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from sinkwise.errors import InputTypeError
from sinkwise.training.monitor import Monitor
from sinkwise.training.watched import random_state_kept, watched

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

__all__ = ["SinkCallback"]


class SinkCallback(TrainerCallback):
    """Record a :class:`~sinkwise.Monitor` while a ``Trainer`` trains.

    What is recorded goes through ``trainer.log``: into ``state.log_history`` and to every tracker
    that the run reports to.  The first record is made before the first step.

    Parameters
    ----------
    trainer
        The trainer; add the callback to it.
    probe
        As in :class:`~sinkwise.Monitor`.  By default the first examples of the evaluation data,
        or of the training data where there are none, as many as a device's training batch, other
        ones in each process.
    options
        Those of :class:`~sinkwise.Monitor`: ``every``, ``queries``, ``sink``, ``alarms``, ...

    Attributes
    ----------
    monitor
        The monitor; ``None`` before training.

    Raises
    ------
    InputTypeError
        When training begins: as :class:`~sinkwise.Monitor`, or the data can't be indexed.

    Examples
    --------
    >>> trainer.add_callback(SinkCallback(trainer, every=50))  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(self, trainer: Trainer, probe: Any = None, **options: Any) -> None:
        self._trainer = trainer
        self._probe = probe
        self._options = options
        self.monitor: Monitor | None = None

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Make the monitor, and the record that changes are counted from."""
        model = self._trainer.model_wrapped
        probe = self._probe
        if probe is None:
            probe = _examples(self._trainer, watched(model))
        self.monitor = Monitor(model, probe, **self._options)
        self._record(self.monitor, state, control)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Record after an optimiser step whose turn it is."""
        if self.monitor is not None and self.monitor.due(state.global_step):
            self._record(self.monitor, state, control)

    def _record(self, monitor: Monitor, state: TrainerState, control: TrainerControl) -> None:
        with self._trainer.accelerator.autocast():
            record = monitor.record(step=state.global_step)
        # logging resets what the trainer was about to do; our record is not its own
        about_to_log = control.should_log
        self._trainer.log(dict(record.scalars))
        control.should_log = about_to_log


def _examples(trainer: Any, model: Any) -> Mapping[str, Any]:
    """A batch of the first examples, collated as the trainer does it."""
    data = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    if isinstance(data, Mapping) and not hasattr(data, "column_names"):
        data = next(iter(data.values()))
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise InputTypeError(
            f"examples of class {type(data).__name__} arrived, which can't be indexed, so there is "
            "no probe to hold fixed: type SinkCallback(trainer, probe=batch), or probe=[text, ...] "
            "with tokenizer=tokenizer"
        )
    number = min(trainer.args.per_device_train_batch_size, len(data))
    first = trainer.args.process_index * number
    named = inspect.signature(model.model.forward).parameters
    examples = [data[(first + i) % len(data)] for i in range(number)]
    wanted = [{name: value for name, value in one.items() if name in named} for one in examples]
    with random_state_kept(model.device):
        return trainer.data_collator(wanted)
