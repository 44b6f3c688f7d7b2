"""Hold the content entropy of a model in training above a floor, and leave its sinks be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from sinkwise.channels.entropy_floor import check_floor, relative_content_entropy, shortfall
from sinkwise.errors import CaptureError, RowError
from sinkwise.geometry.namespace import as_arrays
from sinkwise.training.rows import LayerRows, TrainingRows, collecting_rows

if TYPE_CHECKING:
    import torch

__all__ = ["CollectedPenalty", "ContentEntropyFloor"]


class ContentEntropyFloor:
    """A penalty on rows whose content entropy is below a floor, from a model's own training pass.

    Each training step costs some rows a layer more: see `queries`.  The value is that of
    :func:`~sinkwise.channels.entropy_floor.content_entropy_floor` over the rows of all layers
    and heads, pooled.

    Parameters
    ----------
    model
        The ``transformers.PreTrainedModel`` that is trained, not a wrapper around it: under data
        parallelism ``wrapper.module``, under ``torch.compile`` the model as it was before.
    floor
        Share of log m below which a row with m content keys is penalised, above 0, at most 1.
    sink
        ``"first"``, the first token of each document, or token positions counted from it.  A
        learned sink is no part of the content and needs no naming.
    queries
        Query positions a forward pass, drawn anew each time and shared by the batch, or
        ``"all"``.
    seed
        With the number of the pass it decides the positions.

    Raises
    ------
    RowError
        On a floor outside its range.

    Notes
    -----
    Left out: rows of padding, rows with fewer than two content keys, rows whose window hides
    their document's first token.  Packed documents have a sink each where the mask keeps them
    apart.  Attention dropout acts after the softmax and isn't seen.  Each process of distributed
    training takes the mean over its own rows, as it does of its loss.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11)).train()
    >>> ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    >>> content = ContentEntropyFloor(model, floor=1.0, queries=4)
    >>> with content.collecting() as held:
    ...     loss = model(ids, labels=ids).loss
    >>> (loss + 0.1 * held.penalty).backward()
    >>> held.rows, bool(0 < held.penalty < 1)
    (16, True)
    """

    def __init__(
        self,
        model: torch.nn.Module,
        floor: float,
        *,
        sink: Literal["first"] | int | Sequence[int] = "first",
        queries: int | Literal["all"] = 32,
        seed: int = 0,
    ) -> None:
        check_floor(floor)
        self._model = model
        self._floor = floor
        self._sink = sink
        self._queries = queries
        self._seed = seed
        self._passes = 0

    @contextmanager
    def collecting(self) -> Iterator[CollectedPenalty]:
        """Collect the penalty of the forward pass inside; have it after the context.

        Yields
        ------
        CollectedPenalty
            Complete once the context is left.

        Raises
        ------
        CaptureError, InputTypeError, RowError
            As :func:`~sinkwise.training.rows.collecting_rows`; on leaving also where no row
            counts, or one that counts isn't finite.
        """
        draw = (self._seed, self._passes)
        self._passes += 1
        held = CollectedPenalty()
        with collecting_rows(
            self._model, sink=self._sink, queries=self._queries, draw=draw
        ) as rows:
            yield held
        held._complete(rows, self._floor)


class CollectedPenalty:
    """What one forward pass gave.

    Attributes
    ----------
    rows
        Rows that count, of all layers, heads and documents.
    below
        Share of them below the floor.
    """

    rows: int
    below: float

    def __init__(self) -> None:
        self._penalty: torch.Tensor | None = None

    @property
    def penalty(self) -> torch.Tensor:
        """The mean shortfall, a float32 number between 0 and the floor, with its graph.

        Raises
        ------
        CaptureError
            If the context hasn't been left yet.
        """
        if self._penalty is None:
            raise CaptureError(
                "the penalty was asked for before its forward pass was over: run the model inside "
                "`with content.collecting() as held:` and read held.penalty after that block"
            )
        return self._penalty

    def _complete(self, rows: TrainingRows, floor: float) -> None:
        import torch

        parts = []
        for layer in rows:
            xp, share, counted = _shares(layer)
            below = counted & (share.detach() < floor)
            missing = shortfall(xp, share, counted, floor).sum()
            parts.append(torch.stack([missing, counted.sum(), below.sum()]).cpu())
        sums = torch.stack(parts).sum(0)
        missing, counted, below = sums.tolist()
        if math.isnan(missing):
            raise _not_finite(rows)
        self.rows = int(counted)
        if not self.rows:
            raise RowError(
                "not one row of this pass has a sink it sees and two content keys, so there is no "
                "content entropy to hold up: pass longer sequences, or see with sinkwise.ModelRows "
                "which keys the queries see"
            )
        self.below = below / self.rows
        self._penalty = sums[0] / self.rows


def _shares(layer: LayerRows) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """``H(π) / log m`` of each row and which rows count, behind what computes on them."""
    xp, (logits,) = as_arrays(layer.logits)
    content, sinks = layer.visible & ~layer.sink, layer.visible & layer.sink
    return xp, *relative_content_entropy(xp, logits, content, sinks, positive=content)


def _not_finite(rows: TrainingRows) -> RowError:
    """The error for a pass with a NaN, which is looked for only now."""
    for number, (call, layer) in enumerate(zip(rows.calls, rows, strict=True)):
        _, share, counted = _shares(layer)
        bad = (counted & share.isnan()).nonzero()
        if len(bad):
            item, head, _ = bad[0].tolist()
            return RowError(
                f"layer {getattr(call.module, 'layer_idx', number)}, head {head}, sequence {item} "
                f"of the batch: a row's content entropy is nan, expected a finite number "
                f"({len(bad)} rows of this layer, the first to fail). Its queries or keys aren't "
                "finite, so the loss of this step is none either: leave the step out, then look at "
                "the learning rate, the clipping of gradients, and float16, which overflows"
            )
    return RowError("a row's content entropy is nan, expected finite numbers")
