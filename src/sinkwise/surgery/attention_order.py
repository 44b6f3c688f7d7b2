"""In which order a model's heads attend, found by running it: who can lend to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkwise.capture.interface import AttentionCall, listening, require_transformers_model
from sinkwise.capture.layers import describe_layers
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.surgery.output_projections import probe_inputs

if TYPE_CHECKING:
    import torch

__all__ = ["AttentionOrder", "Place", "attention_order"]

Place = tuple[int, int]
"""Number of the attention call, and the head's index in it."""


@dataclass(frozen=True)
class AttentionOrder:
    """The attention calls of one forward pass, in the order they are made.

    Attributes
    ----------
    layers
        Layer number of each call.
    n_heads
        Query heads of each call.
    modules
        The module that makes it; one module for several calls where layers share weights.
    """

    layers: tuple[int, ...]
    n_heads: tuple[int, ...]
    modules: tuple[torch.nn.Module, ...]

    def number(self, module: torch.nn.Module, previous: int) -> int | None:
        """Return which call `module` makes next after call `previous`; None for another module.

        Where one module serves several layers its calls are told apart by their order alone.
        """
        calls = [i for i, other in enumerate(self.modules) if other is module]
        later = [call for call in calls if call > previous]
        return next(iter(later or calls), None)

    def place(self, head: HeadId) -> Place:
        """Return the call a head belongs to, and its index there.

        Raises
        ------
        RowError
            If the model has no such head; the message says what it has.
        """
        if head.layer not in self.layers:
            raise RowError(
                f"head {head.label} arrived, the layers that attend are {sorted(self.layers)}"
            )
        call = self.layers.index(head.layer)
        if not 0 <= head.index < self.n_heads[call]:
            raise RowError(
                f"head {head.label} arrived, layer {head.layer} has {self.n_heads[call]} query "
                f"heads: type an index from 0 to {self.n_heads[call] - 1}"
            )
        return call, head.index


def attention_order(model: torch.nn.Module) -> AttentionOrder:
    """Find a model's attention calls by one forward pass over a few tokens, or a blank image.

    Raises
    ------
    InputTypeError
        If `model` is not a transformers model.
    CaptureError
        If it doesn't call the attention interface, or its calls can't be told apart by layer.
    """
    require_transformers_model(model)
    calls: list[AttentionCall] = []
    with listening(model, calls.append):
        model(**probe_inputs(model))
    layers = describe_layers(model, [(call, False) for call in calls])
    return AttentionOrder(layers.layers, layers.n_heads, tuple(call.module for call in calls))
