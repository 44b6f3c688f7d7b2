"""An attention layer without heads: what is left of it is its output projection's bias."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch import nn

__all__ = ["NoHeads", "NoHeadsProjection", "is_crossing", "takes_position_bias"]


class NoHeadsProjection(nn.Module):
    """An output projection that is given no head: its bias, or zero, at every token.

    It keeps an empty weight: with no weight at all, a loader that expects heads would fill in
    random ones and only warn; an empty one it refuses.

    Parameters
    ----------
    projection
        The ``nn.Linear`` or ``Conv1D`` whose place it takes.
    """

    def __init__(self, projection: Any) -> None:
        super().__init__()
        weight = projection.weight
        self.transposed = not isinstance(projection, nn.Linear)
        self.width = weight.shape[1 if self.transposed else 0]
        shape = (0, self.width) if self.transposed else (self.width, 0)
        self.weight = nn.Parameter(weight.new_empty(shape), requires_grad=weight.requires_grad)
        self.register_parameter("bias", projection.bias)

    def forward(self, joined: torch.Tensor) -> torch.Tensor:
        """Return the bias, ``(..., d_model)``, for an input of no columns, ``(..., 0)``."""
        if self.bias is None:
            return joined.new_zeros((*joined.shape[:-1], self.width))
        return self.bias.expand(*joined.shape[:-1], self.width).clone()


class NoHeads(nn.Module):
    """An attention module without heads; the cache still learns how many tokens went by.

    Parameters
    ----------
    attention
        The module whose place it takes; only what needs no head is kept of it.
    output
        Name of the output projection in it, or ``None`` where that stands outside.
    """

    def __init__(self, attention: Any, output: str | None) -> None:
        super().__init__()
        self.layer_idx = getattr(attention, "layer_idx", None)
        self.output = output
        if output is not None:
            self.add_module(output, NoHeadsProjection(getattr(attention, output)))
        dropout = getattr(attention, "resid_dropout", None)  # of GPT-2, after the projection
        self.resid_dropout = dropout if dropout is not None else nn.Identity()
        self.takes_position_bias = takes_position_bias(attention)
        if getattr(attention, "has_relative_attention_bias", False):
            self.relative_attention_bias = attention.relative_attention_bias
            source = copy(attention)
            source._modules = {"relative_attention_bias": self.relative_attention_bias}
            self._bias_source = (source,)  # a tuple: not a child, so that no name is doubled

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what an attention module returns, ``(output, None)``, for whatever it is given."""
        hidden = args[0] if args else kwargs["hidden_states"]
        before, keys = 0, hidden.shape[1]
        if not is_crossing(kwargs):
            before, keys = self._remember(hidden, (*args, *kwargs.values()))
        output = hidden.new_empty((*hidden.shape[:-1], 0))
        if self.output is not None:
            output = self.resid_dropout(getattr(self, self.output)(output))
        if not self.takes_position_bias:
            return output, None
        bias = kwargs.get("position_bias")
        if bias is None and hasattr(self, "_bias_source"):
            bias = self._bias_source[0].compute_bias(
                hidden.shape[1], keys, device=hidden.device, past_seen_tokens=before
            )
        return output, bias, None

    def _remember(self, hidden: torch.Tensor, given: tuple[Any, ...]) -> tuple[Any, int]:
        """Tell the cache of new tokens, at two numbers each; return its length before and now."""
        from transformers.cache_utils import Cache

        cache = next((value for value in given if isinstance(value, Cache)), None)
        if cache is None:
            return 0, hidden.shape[1]
        cache = getattr(cache, "self_attention_cache", cache)
        before = cache.get_seq_length(self.layer_idx)
        if isinstance(before, torch.Tensor):
            before = before.clone()  # a static cache counts on in the same tensor
        nothing = hidden.new_zeros((hidden.shape[0], 1, hidden.shape[1], 1))
        keys, _ = cache.update(nothing, nothing, self.layer_idx)
        return before, keys.shape[-2]


def is_crossing(kwargs: Mapping[str, Any]) -> bool:
    """Whether an attention module is called to attend to another sequence than its own."""
    names = ("key_value_states", "encoder_hidden_states")
    return any(kwargs.get(name) is not None for name in names)


def takes_position_bias(attention: nn.Module) -> bool:
    """Whether one layer's position bias is handed on to the next, as T5 does it."""
    return "position_bias" in inspect.signature(type(attention).forward).parameters
