"""Take heads out of one attention layer: weights, biases, learned sinks and head counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from sinkwise.capture.pruned.heads_kept import LAYOUTS, HeadsKept, positions
from sinkwise.capture.pruned.layer_config import LayerConfig
from sinkwise.capture.pruned.no_heads import NoHeads, NoHeadsProjection, takes_position_bias
from sinkwise.errors import CaptureError

__all__ = ["per_head_axis", "submodule", "take_out"]

_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads")
_WIDTHS = ("split_size", "all_head_size", "inner_dim")


def take_out(model: nn.Module, layer: HeadsKept, undo: ExitStack) -> None:
    """Take the heads that `layer` doesn't keep out of `model`.

    Parameters
    ----------
    model
        Changed in place, on any device, the meta device too.
    undo
        Gets what restores the model.
    """
    attention_name, attention = submodule(model, layer.attention)
    output_name, output = submodule(model, layer.output)
    if not layer.kept:
        inside = output_name.startswith(attention_name + ".")
        if not inside:
            _replace(model, output_name, NoHeadsProjection(output), undo)
        own = output_name.removeprefix(attention_name + ".") if inside else None
        _replace(model, attention_name, NoHeads(attention, own), undo)
        return
    rows = LAYOUTS[layer.layout](layer, layer.kept, layer.kept_kv)
    for name, kept in rows.items():
        _keep(getattr(attention, name), kept, undo, outputs=True)
    _keep(output, positions(layer.kept, layer.value_dim), undo, outputs=False)
    for name, parameter in list(attention.named_parameters(recurse=False)):
        axis = per_head_axis(parameter, layer.n_heads)
        assert axis is not None, name
        _narrow(attention, name, axis, layer.kept, undo)
    _count(attention, layer, undo)


def submodule(model: nn.Module, name: str) -> tuple[str, nn.Module]:
    """Return a module of the base model and its name in `model`, which may hold a head as well.

    Raises
    ------
    CaptureError
        If there is none.
    """
    prefix = getattr(model, "base_model_prefix", "")
    for full in (name, f"{prefix}.{name}"):
        try:
            return full, model.get_submodule(full)
        except AttributeError:
            continue
    raise CaptureError(
        f"config.json says that heads of {name} were removed, which {type(model).__name__} doesn't "
        "have: load the class that was saved (architectures in config.json)"
    )


def per_head_axis(parameter: torch.Tensor, n_heads: int) -> int | None:
    """Return the axis of a parameter that holds one number a head (a learned sink), or ``None``."""
    axes = [axis for axis, size in enumerate(parameter.shape) if size != 1]
    if not axes and n_heads == 1 and parameter.ndim:
        return 0
    return axes[0] if len(axes) == 1 and parameter.shape[axes[0]] == n_heads else None


def _keep(linear: nn.Module, kept: Sequence[int], undo: ExitStack, *, outputs: bool) -> None:
    """Keep some output (or input) features of an ``nn.Linear`` or ``Conv1D``."""
    plain = isinstance(linear, nn.Linear)
    _narrow(linear, "weight", 0 if plain == outputs else 1, kept, undo)
    if outputs and linear.bias is not None:
        _narrow(linear, "bias", 0, kept, undo)
    sizes = ("out_features", "in_features") if plain else ("nf", "nx")
    _set(linear, sizes[0 if outputs else 1], len(kept), undo)


def _narrow(module: nn.Module, name: str, axis: int, kept: Sequence[int], undo: ExitStack) -> None:
    old = getattr(module, name)
    index = torch.tensor(kept, device=old.device)
    new = nn.Parameter(old.detach().index_select(axis, index), requires_grad=old.requires_grad)
    _set(module, name, new, undo)


def _count(attention: nn.Module, layer: HeadsKept, undo: ExitStack) -> None:
    heads, kv_heads, group = len(layer.kept), len(layer.kept_kv), layer.group
    width = layer.n_heads * layer.value_dim
    # the heads of a position bias stay: later layers read those that this one has lost
    shares_bias = takes_position_bias(attention)
    changes: list[tuple[Sequence[str], int, int]] = [
        (() if shares_bias else _HEADS, layer.n_heads, heads),
        (_KV_HEADS, layer.n_kv_heads, kv_heads),
        (_WIDTHS, width, heads * layer.value_dim),
    ]
    for names, before, after in changes:
        for name in names:
            if vars(attention).get(name) == before:
                _set(attention, name, after, undo)
    if "num_key_value_groups" in vars(attention):
        _set(attention, "num_key_value_groups", group or 1, undo)
    bias_heads = layer.kept if shares_bias else None
    config = attention.config
    if isinstance(config, LayerConfig):
        if bias_heads is not None and config.bias_heads is not None:
            bias_heads = tuple(config.bias_heads[head] for head in bias_heads)
        config = config.shared
    own = LayerConfig(
        config,
        {} if shares_bias else _counts_in_config(config, heads, kv_heads),
        query_to_kv=None if group else layer.new_query_to_kv,
        bias_heads=bias_heads,
    )
    _set(attention, "config", own, undo)


def _counts_in_config(config: Any, heads: int, kv_heads: int) -> Mapping[str, int]:
    """Head counts under every name that the config has for them."""
    alias = getattr(config, "attribute_map", {})
    counts = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    found: dict[str, int] = {}
    for name, count in counts.items():
        for spelled in {name, alias.get(name, name)}:
            if getattr(config, spelled, None) is not None:
                found[spelled] = count
    return found


def _replace(model: nn.Module, name: str, module: nn.Module, undo: ExitStack) -> None:
    parent, _, own = name.rpartition(".")
    old = model.get_submodule(name)
    module.train(old.training)
    _set(model.get_submodule(parent), own, module, undo)


def _set(module: nn.Module, name: str, value: Any, undo: ExitStack) -> None:
    undo.callback(setattr, module, name, getattr(module, name))
    setattr(module, name, value)
