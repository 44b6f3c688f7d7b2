"""Attention rows of a model in training, with their graph: what a penalty on rows is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sinkwise.capture.interface import AttentionCall, relaying
from sinkwise.capture.layers import no_attention_error
from sinkwise.capture.logits import capped_and_biased, factors, visibility, visibility_key
from sinkwise.capture.queries import (
    check_queries,
    check_sink,
    choose_queries,
    first_usable_query,
)
from sinkwise.capture.recording import refuse_foreign_call
from sinkwise.errors import CaptureError, RowError
from sinkwise.training.seen_rows import SeenRows, see_rows

if TYPE_CHECKING:
    import torch

__all__ = ["LayerRows", "TrainingRows", "collecting_rows"]


@dataclass(frozen=True)
class LayerRows:
    """Some rows of one attention layer, part of the training step's graph.

    Attributes
    ----------
    logits
        float32 ``(batch, heads, rows, keys)``; what they hold at keys that a row doesn't see has
        no meaning.
    visible
        bool, broadcasts to `logits`: the keys that each row sees; none in a row of padding.
    sink
        bool, broadcasts to `logits`: the sink of each row, its own document's where a batch
        packs several; none where a window hides that document's first token.
    """

    logits: torch.Tensor
    visible: torch.Tensor
    sink: torch.Tensor


@dataclass
class TrainingRows:
    """The attention calls of one forward pass; iterating computes the rows, layer by layer.

    Queries and keys are kept as the layers made them and rows are computed afterwards, outside
    the layers, so that gradient checkpointing recomputes a layer exactly as it first ran.
    """

    sink: tuple[int, ...]
    queries: int | Literal["all"]
    draw: tuple[int, int]
    calls: list[AttentionCall] = field(default_factory=list)

    def hear(self, call: AttentionCall) -> None:
        """Keep a call of the forward pass; one that a layer makes again in `backward` is none."""
        import torch

        if torch._C._current_graph_task_id() >= 0:
            return
        if not torch.is_grad_enabled():
            raise CaptureError(
                f"{type(call.module).__name__} runs without gradients, so a penalty on its rows "
                "can't train anything. Under gradient checkpointing take the kind that isn't "
                're-entrant: model.gradient_checkpointing_enable({"use_reentrant": False}); a '
                "pass that only evaluates goes outside the context"
            )
        refuse_foreign_call(call, call.query.shape[0], call.query.shape[2])
        nothing = call.query.new_empty(0)  # values and outputs needn't outlive their layer
        self.calls.append(replace(call, value=nothing, output=nothing))

    def __iter__(self) -> Iterator[LayerRows]:
        """Yield the rows of each attention call in the order they ran.

        Cost: ``batch * heads * rows * keys * head_dim`` multiplications a layer.

        Raises
        ------
        CaptureError
            If a mask can't be read.
        """
        import torch

        known: dict[Any, SeenRows] = {}
        for call in self.calls:
            key = visibility_key(call)
            if key not in known:
                known[key] = see_rows(call, self._positions(call), self.sink)
            seen = known[key]
            with torch.autocast(call.query.device.type, enabled=False):
                yield LayerRows(_logits(call, seen), seen.visible, seen.sink)

    def _positions(self, call: AttentionCall) -> torch.Tensor:
        import torch

        length, device = call.query.shape[2], call.query.device
        ahead = visibility(call, 0, torch.zeros(1, dtype=torch.long, device=device), 0, length)
        causal = not bool(ahead.visible[..., 1:].any())
        start = first_usable_query(length, self.sink, causal=causal, virtual=False)
        seed, number = self.draw
        chosen = choose_queries(length, self.queries, start=start, seed=seed, document=number)
        return torch.from_numpy(chosen).to(device)


def _logits(call: AttentionCall, seen: SeenRows) -> torch.Tensor:
    """float32 ``(batch, heads, rows, keys)`` with their graph."""
    query, key = factors(call, call.query[:, :, seen.positions], call.key)
    shape = (*call.query.shape[:2], len(seen.positions), call.key.shape[2])
    bias = call.options.get("position_bias")
    if bias is not None and bias.shape[2] > 1:
        bias = bias[:, :, seen.positions]
    return capped_and_biased(call, (query @ key).view(shape), bias, seen.bias)


@contextmanager
def collecting_rows(
    model: torch.nn.Module,
    *,
    sink: Literal["first"] | int | Sequence[int] = "first",
    queries: int | Literal["all"] = 32,
    draw: tuple[int, int] = (0, 0),
) -> Iterator[TrainingRows]:
    """Collect attention rows from the forward pass that runs inside the context.

    The model runs as it would without: its mode, its attention implementation, autocast and
    gradient checkpointing stay, and no random state is read or changed.  Use the rows after the
    context, before the step's ``backward()``.

    Parameters
    ----------
    model
        The ``transformers.PreTrainedModel`` itself, not a wrapper around it: under data
        parallelism call the wrapper inside and pass ``wrapper.module`` here.
    sink
        ``"first"``, the first token of each document, or token positions counted from it.
    queries
        Query positions a forward pass, one drawn from each of as many equal strata of the
        sequence and shared by the batch; or ``"all"``.
    draw
        Seed and number of the draw: the same pair gives the same positions.

    Yields
    ------
    TrainingRows
        Filled while the model runs.

    Raises
    ------
    InputTypeError
        If `model` is not a transformers model.
    RowError
        On a sink or number of queries that is none.
    CaptureError
        On entering, if the loaded implementation is one whose masks can't be read (flex).  In
        the forward pass, if it runs without gradients (which re-entrant gradient checkpointing
        does).  On leaving, if no attention call was heard, or none leads to a trained weight.

    Notes
    -----
    Memory: the queries and keys of all layers live until `backward`.  A step keeps them anyway,
    except under gradient checkpointing, where they are what is added.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> import torch
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11)).train()
    >>> with collecting_rows(model, queries=3) as rows:
    ...     _ = model(torch.tensor([[1, 2, 3, 4, 5, 6]]))
    >>> [(tuple(layer.logits.shape), layer.logits.requires_grad) for layer in rows]
    [((1, 2, 3, 6), True), ((1, 2, 3, 6), True)]
    """
    rows = TrainingRows(_sink_positions(sink), check_queries(queries), draw)
    with relaying(model, rows.hear):
        yield rows
    if not rows.calls:
        raise no_attention_error(model, ran=False)
    if not any(call.query.requires_grad or call.key.requires_grad for call in rows.calls):
        raise CaptureError(
            f"none of the {len(rows.calls)} attention calls of {type(model).__name__} depends on a "
            "weight that is trained, so a penalty on its rows has no gradient: train the query or "
            "key projections of some layer (their requires_grad is False), or leave the penalty "
            "out"
        )


def _sink_positions(sink: object) -> tuple[int, ...]:
    if isinstance(sink, str) and sink == "found":
        raise RowError(
            'sink="found" arrived: which keys are sinks changes while a model trains, and a '
            'penalty needs rows that stay comparable; type sink="first", or positions that an '
            "audit has found, such as sink=(0, 3)"
        )
    return check_sink(sink)
