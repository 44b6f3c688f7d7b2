"""Say in a model's config which heads were removed, in transformers' own words where it has any."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from sinkwise.capture.pruned.heads_kept import HeadsKept
from sinkwise.capture.pruned.layer_config import LayerConfig
from sinkwise.capture.pruned.rebuild import RECORD, record

__all__ = ["describe_in_config"]


def describe_in_config(model: torch.nn.Module, layers: Sequence[HeadsKept]) -> None:
    """Write into ``model.config`` what saving and loading needs.

    Where the same number of heads left every layer and a config with new head counts builds
    exactly this model, the counts are changed and the layers read the model's config again;
    otherwise the config lists what each layer keeps.

    Parameters
    ----------
    layers
        Every layer that has lost heads since the model's config described it.
    """
    counts = _common_counts(model, layers)
    if counts is None or not _builds_it(model, counts):
        setattr(model.config, RECORD, record(layers))
        return
    for name, count in counts.items():
        setattr(model.config, name, count)
    for module in model.modules():
        if isinstance(vars(module).get("config"), LayerConfig):
            module.config = module.config.shared
    setattr(model.config, RECORD, record(()))


def _common_counts(model: torch.nn.Module, layers: Sequence[HeadsKept]) -> dict[str, int] | None:
    """Head counts that all changed layers have in common, if their groups are even."""
    found = set()
    for layer in layers:
        if not layer.kept or layer.group is None or layer.key_dim != layer.value_dim:
            return None
        found.add((len(layer.kept), len(layer.kept_kv), layer.key_dim))
    configs = [c for m in model.modules() if isinstance(c := vars(m).get("config"), LayerConfig)]
    if len(found) != 1 or any(c.redirects or c.shared is not model.config for c in configs):
        return None
    heads, kv_heads, width = found.pop()
    counts = {"num_attention_heads": heads, "head_dim": width}
    if getattr(model.config, "num_key_value_heads", None) is not None:
        counts["num_key_value_heads"] = kv_heads
    return counts


def _builds_it(model: torch.nn.Module, counts: dict[str, int]) -> bool:
    """Whether the model's class builds the same structure from a config with new counts."""
    wanted = copy.deepcopy(model.config)
    if hasattr(wanted, RECORD):
        delattr(wanted, RECORD)
    try:
        for name, count in counts.items():
            setattr(wanted, name, count)
        config = type(wanted).from_dict(wanted.to_dict())  # as loading would read it
        config._attn_implementation = model.config._attn_implementation
        with torch.device("meta"):
            built = type(model)(config)
    except Exception:  # whatever a class raises says that its config can't express the model
        return False
    return _structure(built) == _structure(model)


def _structure(model: torch.nn.Module) -> dict[str, Any]:
    """Shapes of all tensors, and the plain numbers that the model's modules hold."""
    shapes = {
        name: tuple(tensor.shape)
        for tensors in (model.named_parameters(), model.named_buffers())
        for name, tensor in tensors
    }
    numbers = {
        f"{name}.{key}": value
        for name, module in model.named_modules()
        if name  # the model itself also holds how it was loaded
        for key, value in vars(module).items()
        if isinstance(value, int | float | str) and not key.startswith("_") and key != "training"
    }
    return shapes | numbers
