"""What is lost when one head alone is switched off: a forward pass a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.surgery.evaluation import DocumentResult, Evaluation
from sinkwise.surgery.output_projections import heads_of, output_projections
from sinkwise.surgery.switch import switched_off

if TYPE_CHECKING:
    import torch

__all__ = ["leave_one_out"]

_DOCUMENTS = 2


def leave_one_out(
    model: torch.nn.Module,
    processor: Any,
    inputs: Sequence[Any],
    *,
    tokens: int = 256,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Return the damage of every head switched off alone, ``(H,)``.

    Parameters
    ----------
    model, processor, inputs
        As for :func:`~sinkwise.surgery.head_outputs.head_outputs`.
    tokens
        How many tokens each head is judged on: the first two documents, cut to half of it each.
    progress
        Called as ``progress(done, total)`` after every head.

    Returns
    -------
    numpy.ndarray
        Rise of the mean loss in nats a token, or of 1 - cosine; may be negative.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> leave_one_out(model, None, [[1, 2, 3, 4, 5]]).shape
    (4,)
    """
    projections = output_projections(model)
    heads = heads_of(projections)
    some = list(inputs[:_DOCUMENTS])
    held = Evaluation(model, processor, some, max_length=max(3, tokens // len(some)))
    before = _mean(held.dense)
    found = np.empty(len(heads))
    for number, head in enumerate(heads):
        with switched_off(projections, [head]):
            found[number] = _mean(held.measure()) - before
        if progress is not None:
            progress(number + 1, len(heads))
    return found


def _mean(results: Sequence[DocumentResult]) -> float:
    total = sum(
        result.loss if result.loss is not None else (result.damage or 0.0) * result.tokens
        for result in results
    )
    return total / sum(result.tokens for result in results)
