"""Switch heads off for as long as a context lasts, at the input of the output projection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sinkwise.accumulate.head_outputs import HeadOutputs
from sinkwise.errors import CaptureError, RowError
from sinkwise.rowdata import HeadId
from sinkwise.surgery.output_projections import (
    OutputProjection,
    heads_by_layer,
    output_projections,
)

if TYPE_CHECKING:
    import torch

__all__ = ["OPERATIONS", "switch_off", "switched_off"]

OPERATIONS = ("zero", "mean")


@contextmanager
def switch_off(
    model: torch.nn.Module,
    heads: Iterable[HeadId | tuple[int, int]],
    *,
    operation: Literal["zero", "mean"] = "zero",
    means: np.ndarray | HeadOutputs | None = None,
) -> Iterator[torch.nn.Module]:
    """Switch heads off inside the context: their output is 0, or their mean output.

    Works under any attention implementation, for decoders, encoders, vision models and
    encoder-decoders, in training and in ``generate()``; hooks that are there stay, and come
    before.  Weights, mode and configs aren't touched.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``.
    heads
        ``HeadId`` or ``(layer, index)``; query heads under grouped-query attention.
    operation
        ``"zero"``: the head's slice of the output projection's input becomes 0.  ``"mean"``: it
        becomes the head's mean output, the same at every token.
    means
        For ``"mean"``: ``(all heads, head_dim)``, layer-major, or the
        :class:`~sinkwise.accumulate.head_outputs.HeadOutputs` of
        :func:`~sinkwise.surgery.head_outputs.head_outputs`.

    Yields
    ------
    torch.nn.Module
        `model` itself.

    Raises
    ------
    RowError
        If there is no such head, or the means are missing, not finite or of another shape.
    CaptureError
        If the heads can't be found; and on leaving, if a layer's heads were never switched off
        because its projection wasn't run (nothing was run, or a compiled copy was).

    Notes
    -----
    One forward pass over a few tokens on entering; inside, one copy of each affected layer's
    attention output a pass.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2Model
    >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11)).eval()
    >>> ids = torch.tensor([[1, 2, 3]])
    >>> dense = model(ids).last_hidden_state
    >>> with switch_off(model, [(0, 1), (1, 0)]):
    ...     without = model(ids).last_hidden_state
    >>> bool((without - dense).abs().max() > 0)
    True
    >>> bool(torch.equal(model(ids).last_hidden_state, dense))
    True
    """
    with switched_off(output_projections(model), heads, operation=operation, means=means):
        yield model


@contextmanager
def switched_off(
    projections: Sequence[OutputProjection],
    heads: Iterable[HeadId | tuple[int, int]],
    *,
    operation: Literal["zero", "mean"] = "zero",
    means: np.ndarray | HeadOutputs | None = None,
) -> Iterator[None]:
    """Do what :func:`switch_off` does where the projections are known already."""
    table = _means(projections, operation, means)
    offset, rows = 0, {}
    for projection in projections:
        rows[projection] = offset
        offset += projection.n_heads
    replacements = []
    for projection, indices in heads_by_layer(projections, heads).items():
        values = None if table is None else table[rows[projection] :][: projection.n_heads]
        replacements.append(_Replacement(projection, indices, values))
    with ExitStack() as undo:
        for replacement in replacements:
            undo.callback(replacement.attach().remove)
        yield
        for replacement in replacements:
            replacement.require_applied()


def _means(
    projections: Sequence[OutputProjection],
    operation: str,
    means: np.ndarray | HeadOutputs | None,
) -> np.ndarray | None:
    if operation not in OPERATIONS:
        raise RowError(f'operation={operation!r} arrived, expected "zero" or "mean"')
    if operation == "zero":
        if means is not None:
            raise RowError('means arrived with operation="zero": type operation="mean"')
        return None
    if means is None:
        raise RowError(
            'operation="mean" needs the heads\' mean outputs: type means=sinkwise.head_outputs('
            "model, tokenizer, texts)"
        )
    table = np.asarray(means.mean_output if isinstance(means, HeadOutputs) else means)
    n_heads = sum(projection.n_heads for projection in projections)
    width = max(projection.head_dim for projection in projections)
    if table.shape != (n_heads, width):
        raise RowError(
            f"means of shape {table.shape} arrived, expected ({n_heads}, {width}): one row for "
            "each head of the model in layer-major order"
        )
    return table


@dataclass(eq=False)
class _Replacement:
    """What stands in for some heads of one layer, and how often it did."""

    projection: OutputProjection
    indices: tuple[int, ...]
    values: np.ndarray | None
    applied: int = 0

    def attach(self) -> Any:
        return self.projection.module.register_forward_pre_hook(self._replace)

    def _replace(self, module: torch.nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        import torch

        given, *rest = args
        heads = given.unflatten(-1, (self.projection.n_heads, self.projection.head_dim)).clone()
        if self.values is None:
            heads[..., list(self.indices), :] = 0
        else:
            own = self.values[list(self.indices), : self.projection.head_dim]
            if not np.isfinite(own).all():
                raise RowError(
                    f"the mean output of a head of layer {self.projection.layer} isn't finite: "
                    "calibrate on other texts, or in float32"
                )
            heads[..., list(self.indices), :] = torch.from_numpy(own).to(given)
        self.applied += 1
        return (heads.flatten(-2), *rest)

    def require_applied(self) -> None:
        if not self.applied:
            heads = ", ".join(
                HeadId(self.projection.layer, index).label for index in self.indices[:4]
            )
            raise CaptureError(
                f"{heads} were never switched off: {self.projection.name} wasn't run inside the "
                "context. Run the model that was given inside it, and the model as it was before "
                "torch.compile"
            )
