"""What removing heads saves: parameters, multiply-adds and cache, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from sinkwise.capture.interface import (
    AttentionCall,
    listening,
    loaded_implementations,
    require_transformers_model,
)
from sinkwise.capture.pruned.heads_kept import LAYOUTS
from sinkwise.capture.pruned.no_heads import is_crossing
from sinkwise.errors import CaptureError, RowError
from sinkwise.rowdata import HeadId
from sinkwise.surgery.output_projections import head_ids, probe_inputs
from sinkwise.surgery.removal_plan import LayerPlan, output_width, plan_removal

__all__ = ["RemovalCost", "removal_cost"]

_EMPTY_LAYER = 2  # numbers a token that a layer without heads keeps in the cache


@dataclass(frozen=True)
class RemovalCost:
    """A model before and after some of its heads are removed.

    Attributes
    ----------
    parameters, parameters_after
        Numbers in weights, shared ones once.
    multiply_adds, multiply_adds_after
        A token, over a whole document of `n_tokens`: matrix products, convolutions and attention,
        where every query is counted with every key, causal or not, as PyTorch counts it.
    cache_bytes, cache_bytes_after
        Keys and values a token in all layers, in the model's dtype; 0 for a model without a cache.
    n_tokens
        Tokens of the document, or of the image.
    """

    parameters: int
    parameters_after: int
    multiply_adds: float
    multiply_adds_after: float
    cache_bytes: float
    cache_bytes_after: float
    n_tokens: int

    def __str__(self) -> str:
        """Return the three lines to read."""
        return "\n".join(
            f"{what}: {before:,.0f} -> {after:,.0f} ({_saved(before, after)})"
            for what, before, after in (
                ("parameters", self.parameters, self.parameters_after),
                ("multiply-adds a token", self.multiply_adds, self.multiply_adds_after),
                ("cache bytes a token", self.cache_bytes, self.cache_bytes_after),
            )
        )


def removal_cost(
    model: torch.nn.Module,
    heads: Iterable[HeadId | tuple[int, int]],
    n_tokens: int,
) -> RemovalCost:
    """Say what :func:`~sinkwise.remove_heads` would save; the model is left as it was found.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``.
    heads
        ``HeadId`` or ``(layer, index)``.
    n_tokens
        Length of the document, on which the share of attention in the work depends.  A vision
        model's is that of one image of its own size, whatever is given.

    Returns
    -------
    RemovalCost

    Raises
    ------
    RowError
        If there is no such head, or `n_tokens` isn't a positive number.
    CaptureError
        If the heads can't be removed, or the model attends by flex_attention, which PyTorch
        doesn't count.

    Notes
    -----
    The dense model's work is counted by PyTorch over one forward pass of `n_tokens`; what is saved
    follows from the weights.  Fewer multiply-adds are not in proportion less time: measure it.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2Model
    >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=4, n_embd=16, vocab_size=11))
    >>> print(removal_cost(model, [(0, 1), (1, 2)], 32))
    parameters: 23,152 -> 22,616 (2.3 % less)
    multiply-adds a token: 8,192 -> 7,168 (12.5 % less)
    cache bytes a token: 256 -> 192 (25.0 % less)
    """
    if not isinstance(n_tokens, int) or n_tokens < 1:
        raise RowError(
            f"n_tokens={n_tokens!r} arrived, expected the length of a document, such as 256"
        )
    require_transformers_model(model)
    if "flex_attention" in loaded_implementations(model):
        raise CaptureError(
            f"{type(model).__name__} is loaded with flex_attention, whose multiply-adds PyTorch "
            "doesn't count; the cost is the same under any implementation: call "
            'model.set_attn_implementation("sdpa") and ask again'
        )
    plans = plan_removal(model, head_ids(heads))
    calls: dict[int, AttentionCall] = {}
    counter = FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION)
    with (
        _caches_of(plans) as caches,
        listening(model, lambda call: calls.update({id(call.module): call})),
        counter,
    ):
        output = model(**_inputs(model, n_tokens))
    tokens = next(iter(calls.values())).query.shape[2]
    before = counter.get_total_flops() / 2 / tokens
    cache = _cache_bytes(output)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return RemovalCost(
        parameters,
        parameters - sum(_parameters_saved(plan) for plan in plans),
        before,
        before
        - sum(_multiply_adds_saved(plan, calls[id(plan.projection.attention)]) for plan in plans)
        / tokens,
        cache,
        cache - sum(_cache_saved(plan, held) for plan, held in caches),
        tokens,
    )


def _count_cpu_attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    return sdpa_flop_count(query, key, value)


_CPU_ATTENTION = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _count_cpu_attention}
"""PyTorch counts the fused attention of every device but the CPU."""


def _inputs(model: torch.nn.Module, n_tokens: int) -> dict[str, Any]:
    inputs = probe_inputs(model)
    for name in ("input_ids", "decoder_input_ids"):
        if name in inputs:
            ids = inputs[name]
            inputs[name] = ids.repeat(1, -(-n_tokens // ids.shape[1]))[:, :n_tokens]
    return inputs


def _rows_lost(plan: LayerPlan) -> dict[str, int]:
    """Output features that each projection of the attention module loses."""
    kept = plan.kept
    before = LAYOUTS[kept.layout](kept, range(kept.n_heads), range(kept.n_kv_heads))
    after = LAYOUTS[kept.layout](kept, kept.kept, kept.kept_kv)
    return {name: len(before[name]) - len(after[name]) for name in before}


def _parameters_saved(plan: LayerPlan) -> int:
    attention, saved = plan.projection.attention, 0
    for name, rows in _rows_lost(plan).items():
        linear = getattr(attention, name)
        width = linear.weight.numel() // output_width(linear)
        saved += rows * (width + int(linear.bias is not None))
    d_model = output_width(plan.projection.module)
    saved += len(plan.indices) * plan.kept.value_dim * d_model
    of_heads = len(list(attention.named_parameters(recurse=False)))
    saved += len(plan.indices) * of_heads
    if not plan.kept.kept:  # norms of queries and keys go with the last head
        saved += sum(
            parameter.numel()
            for name, child in attention.named_children()
            if name not in (*plan.kept.projections, "relative_attention_bias")
            and child is not plan.projection.module
            for parameter in child.parameters()
        )
    return saved


def _multiply_adds_saved(plan: LayerPlan, call: AttentionCall) -> int:
    queries, keys = call.query.shape[2], call.key.shape[2]
    kept, lost = plan.kept, len(plan.indices)
    lost_kv = kept.n_kv_heads - len(kept.kept_kv)
    d_model = output_width(plan.projection.module)
    attention = plan.projection.attention
    first = getattr(attention, kept.projections[0])
    width = first.weight.numel() // output_width(first)
    projected = lost * queries * (width * kept.key_dim + kept.value_dim * d_model)
    projected += lost_kv * keys * width * (kept.key_dim + kept.value_dim)
    return projected + lost * queries * keys * (kept.key_dim + kept.value_dim)


@contextmanager
def _caches_of(plans: Iterable[LayerPlan]) -> Iterator[list[tuple[LayerPlan, Any]]]:
    """Collect the layers of the cache that attention modules are given, as ``(plan, layer)``."""
    from transformers.cache_utils import Cache, EncoderDecoderCache

    found: list[tuple[LayerPlan, Any]] = []

    def left(plan: LayerPlan, module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        cache = next((v for v in (*args, *kwargs.values()) if isinstance(v, Cache)), None)
        if isinstance(cache, EncoderDecoderCache):
            crosses = is_crossing(kwargs)
            cache = cache.cross_attention_cache if crosses else cache.self_attention_cache
        if cache is not None:
            found.append((plan, cache.layers[module.layer_idx]))

    hooks = [
        plan.projection.attention.register_forward_hook(partial(left, plan), with_kwargs=True)
        for plan in plans
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _cache_bytes(output: Any) -> float:
    """Bytes of one token's keys and values in all layers of the cache that a pass left behind."""
    from transformers.cache_utils import Cache

    caches = [value for value in output.values() if isinstance(value, Cache)]
    return sum(_token_bytes(layer) for cache in caches for layer in _layers(cache))


def _layers(cache: Any) -> list[Any]:
    if hasattr(cache, "self_attention_cache"):
        return [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return list(cache.layers)


def _token_bytes(layer: Any) -> float:
    tensors = [tensor for tensor in (layer.keys, layer.values) if tensor is not None]
    return sum(tensor.numel() * tensor.itemsize / tensor.shape[-2] for tensor in tensors)


def _cache_saved(plan: LayerPlan, layer: Any) -> float:
    before = _token_bytes(layer)
    if plan.kept.kept:
        return before * (1 - len(plan.kept.kept_kv) / plan.kept.n_kv_heads)
    return before - (0 if is_crossing(plan.given[1]) else _EMPTY_LAYER * layer.keys.itemsize)


def _saved(before: float, after: float) -> str:
    return f"{100 * (1 - after / before):.1f} % less" if before else "none"
