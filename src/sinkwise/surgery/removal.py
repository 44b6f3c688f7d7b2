"""Remove heads for real: smaller weights, smaller caches, the outputs of switching off."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sinkwise.capture.pruned.heads_kept import HeadsKept
from sinkwise.capture.pruned.rebuild import read_record
from sinkwise.rowdata import HeadId
from sinkwise.surgery.output_projections import head_ids

if TYPE_CHECKING:
    import torch

__all__ = ["remove_heads"]


def remove_heads(
    model: torch.nn.Module,
    heads: Iterable[HeadId | tuple[int, int]],
    *,
    inplace: bool = False,
) -> torch.nn.Module:
    """Remove heads from a model: it then computes what it computes while they are switched off.

    Their rows and columns leave the query, key, value and output projections, their biases and
    their learned sinks; a key/value head leaves (and with it its part of the cache) once no query
    head reads it.  The rest of a layer keeps its places: what was head 5 of 9 is head 4 of 8 when
    head 2 goes.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``: decoder, encoder, vision model or encoder-decoder, in
        any dtype and on any device.
    heads
        ``HeadId`` or ``(layer, index)``; query heads under grouped-query attention.  Any set, all
        heads of a layer included.
    inplace
        Change `model` itself; by default a copy is changed.

    Returns
    -------
    torch.nn.Module
        The smaller model, of the same class.  ``save_pretrained`` saves it;
        :func:`~sinkwise.load_pruned` (and :func:`~sinkwise.load_model`) loads it, and where the
        same number of heads left each layer mostly ``from_pretrained`` too.

    Raises
    ------
    RowError
        If there is no such head.
    CaptureError
        If the layout of a layer's weights isn't known, its weights are shared with another layer,
        a norm runs over all heads together, or they are quantised; `model` is then as it was.

    Notes
    -----
    Three forward passes over a few tokens: each kept head's output is checked to be what it was.
    Time and memory are those of the copy.  Hooks, device, dtype, ``requires_grad`` and training
    mode are kept; gradients of changed weights are dropped, so make the optimiser afterwards.

    Where the query heads left to the key/value heads are uneven in number, keys and values are
    gathered for each query head as attention runs, under any implementation.  A layer without
    heads keeps its output projection's bias, and two numbers a token in the cache, from which the
    cache's length is read.  A position bias that layers share (T5) stays whole.

    Examples
    --------
    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from sinkwise import switch_off
    >>> config = LlamaConfig(
    ...     hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    ...     head_dim=4, intermediate_size=16, vocab_size=11,
    ... )
    >>> model = LlamaForCausalLM(config).eval()
    >>> smaller = remove_heads(model, [(0, 1), (1, 0), (1, 1), (1, 2)])
    >>> smaller.model.layers[1].self_attn.k_proj.weight.shape  # a whole group went
    torch.Size([4, 24])
    >>> ids = torch.tensor([[1, 2, 3, 4]])
    >>> with switch_off(model, [(0, 1), (1, 0), (1, 1), (1, 2)]):
    ...     expected = model(ids).logits
    >>> bool(torch.allclose(smaller(ids).logits, expected, atol=1e-5))
    True
    """
    from sinkwise.capture.pruned.take_out import take_out
    from sinkwise.surgery.removal_config import describe_in_config
    from sinkwise.surgery.removal_plan import plan_removal, require_same_heads

    plans = plan_removal(model, head_ids(heads))
    before = read_record(model.config) or ()
    smaller = model if inplace else copy.deepcopy(model)
    with ExitStack() as undo:
        for plan in plans:
            take_out(smaller, plan.kept, undo)
        require_same_heads(smaller, plans)
        _forget_unpacked(smaller)
        describe_in_config(smaller, _joined(before, [plan.kept for plan in plans]))
        undo.pop_all()
    return smaller


def _forget_unpacked(model: torch.nn.Module) -> None:
    """Let a model be saved whose weights were packed in its file (GGUF) and no longer are."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None and all(
        tensor.is_floating_point() for tensor in model.state_dict().values()
    ):
        quantizer.remove_quantization_config(model)


def _joined(before: Iterable[HeadsKept], now: Iterable[HeadsKept]) -> list[HeadsKept]:
    """What an earlier removal left, with what this one leaves of it."""
    found = {layer.attention: layer for layer in before}
    for layer in now:
        earlier = found.get(layer.attention)
        found[layer.attention] = layer if earlier is None else earlier.narrowed(layer.kept)
    return sorted(found.values(), key=lambda layer: (layer.layer, layer.attention))
