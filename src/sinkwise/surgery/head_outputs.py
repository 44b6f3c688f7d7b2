"""Calibrate: what every head writes, and how the loss depends on it, in one pass a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.accumulate.head_outputs import GateGradients, HeadOutputs, HeadOutputSums
from sinkwise.capture.documents import Batch, open_documents
from sinkwise.capture.forward import evaluating, model_inputs, whole_document
from sinkwise.errors import CaptureError, RowError
from sinkwise.surgery.objective import (
    OBJECTIVES,
    Objective,
    objective_of,
    readout,
    sampled_loss,
    true_loss,
)
from sinkwise.surgery.output_projections import OutputProjection, heads_of, output_projections
from sinkwise.surgery.residual_writes import LayerWrites, recording_writes

if TYPE_CHECKING:
    import torch

__all__ = ["head_outputs"]

_STATE_DRAWS = 4  # a Gaussian probe says less than a drawn label: more of them


def head_outputs(
    model: torch.nn.Module,
    processor: Any,
    inputs: Sequence[Any],
    *,
    max_length: int | None = None,
    documents: int | None = None,
    gradients: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> HeadOutputs:
    """Measure what every head writes into the residual stream, and what the loss makes of it.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``: decoder, encoder or vision model.
    processor
        Its tokenizer or image processor; ``None`` for token ids or pixel arrays.
    inputs
        Calibration texts (or images), each one document, one window.
    max_length
        Cut documents to so many tokens.
    documents
        Use the first N of `inputs`.
    gradients
        Whether to compute gradients to gates on the heads (two backward passes a document).
    seed
        Of the labels drawn from the model's own prediction.
    progress
        Called as ``progress(done, total)`` after every document.

    Returns
    -------
    HeadOutputs
        With ``mean_output`` for :func:`~sinkwise.switch_off`'s ``operation="mean"``.

    Raises
    ------
    CaptureError
        If the heads can't be found or their weights can't be read.
    RowError
        If no document is usable, or a write isn't finite.

    Notes
    -----
    A document of T tokens costs a forward and two backward passes (gradients of activations
    alone), and ``T H² d_model`` multiplications within each layer for the Gram matrix.  Memory:
    the activations of one document.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> found = head_outputs(model, None, [[1, 2, 3, 4, 5], [5, 4, 3, 2]])
    >>> found.gram.shape, sorted(found.gradients)
    ((4, 4), ['sampled', 'true'])
    """
    import torch

    projections = output_projections(model)
    objective = objective_of(model)
    opened = open_documents(model, processor, inputs, max_length=max_length, documents=documents)
    generator = torch.Generator().manual_seed(seed)
    sums: HeadOutputSums | None = None
    for number in range(len(opened)):
        batch = whole_document(opened, number)
        found = _document(model, projections, batch, objective, gradients, generator)
        sums = found if sums is None else sums.merge(found)
        if progress is not None:
            progress(number + 1, len(opened))
    if sums is None:
        raise RowError("no document arrived to calibrate on: pass a list of at least one")
    return sums.finish(objective=OBJECTIVES[objective])


def _document(
    model: torch.nn.Module,
    projections: Sequence[OutputProjection],
    batch: Batch,
    objective: Objective,
    gradients: bool,
    generator: torch.Generator,
) -> HeadOutputSums:
    import torch

    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        stack.enter_context(torch.enable_grad() if gradients else torch.no_grad())
        writes = stack.enter_context(recording_writes(model, projections, graph=gradients))
        inputs = model_inputs(model, batch)
        output = readout(objective, model(**inputs))
        found: dict[str, GateGradients] = {}
        if gradients:
            found = _gradients(objective, output, inputs, writes, generator)
    return _sums(projections, writes, found)


def _gradients(
    objective: Objective,
    output: torch.Tensor,
    inputs: Mapping[str, torch.Tensor],
    writes: Sequence[LayerWrites],
    generator: torch.Generator,
) -> dict[str, GateGradients]:
    import torch

    heads = [layer.joined for layer in writes]
    draws = _STATE_DRAWS if objective == "states" else 1
    losses = [("sampled", sampled_loss(objective, output, generator)) for _ in range(draws)]
    if objective == "next_token":
        losses.append(("true", true_loss(output, inputs["input_ids"])))
    found: dict[str, list[np.ndarray]] = {}
    for number, (label, loss) in enumerate(losses):
        slopes = torch.autograd.grad(loss, heads, retain_graph=number + 1 < len(losses))
        gates = [
            layer.by_head(slope * layer.joined.detach()).sum(-1)
            for slope, layer in zip(slopes, writes, strict=True)
        ]
        found.setdefault(label, []).append(torch.cat(gates, -1)[0].double().cpu().numpy())
    return {label: _moments(gates) for label, gates in found.items()}


def _moments(gates: Sequence[np.ndarray]) -> GateGradients:
    """Moments of one document's gradients ``(tokens, H)``, averaged over draws."""
    if not all(np.isfinite(g).all() for g in gates):
        raise RowError(
            "a gradient to a head isn't finite on a calibration document: load the model with "
            'dtype="float32", or leave the gradients out'
        )
    n = len(gates)
    return GateGradients(
        sum((g.T @ g for g in gates), np.zeros(())) / n,
        sum((np.outer(g.sum(0), g.sum(0)) for g in gates), np.zeros(())) / n,
        sum((np.abs(g.sum(0)) for g in gates), np.zeros(())) / n,
    )


def _sums(
    projections: Sequence[OutputProjection],
    writes: Sequence[LayerWrites],
    gradients: Mapping[str, GateGradients],
) -> HeadOutputSums:
    import torch

    heads = heads_of(projections)
    width = max(projection.head_dim for projection in projections)
    gram = np.zeros((len(heads), len(heads)))
    norms, relative = np.zeros(len(heads)), np.zeros(len(heads))
    output = np.full((len(heads), width), np.nan)
    totals: dict[int, np.ndarray] = {}
    start, tokens = 0, 0
    for projection, layer in zip(projections, writes, strict=True):
        own = slice(start, start + projection.n_heads)
        start = own.stop
        with torch.no_grad():
            outputs = layer.by_head(layer.joined.detach())[0, 1:].float()  # (tokens, heads, width)
            written = torch.einsum("thw,hwd->htd", outputs, projection.head_weights().float())
            if layer.factor is not None:
                written = written * layer.factor[0, 1:].float()
            size = written.norm(dim=-1)
            stream = layer.stream[0, 1:].float().norm(dim=-1)
            if not bool(torch.isfinite(size).all()) or not bool((stream > 0).all()):
                raise CaptureError(
                    f"layer {projection.layer} writes numbers that aren't finite, or to a "
                    'residual stream of norm 0: load the model with dtype="float32"'
                )
            share = written / stream[:, None]
            flat = share.flatten(1)
            gram[own, own] = (flat @ flat.T).double().cpu().numpy()
            norms[own] = size.double().sum(1).cpu().numpy()
            relative[own] = share.norm(dim=-1).double().sum(1).cpu().numpy()
            totals[projection.layer] = share.double().sum(1).cpu().numpy()
            output[own, : projection.head_dim] = outputs.double().sum(0).cpu().numpy()
            tokens = outputs.shape[0]
    return HeadOutputSums(heads, tokens, 1, gram, totals, relative, norms, output, gradients)
