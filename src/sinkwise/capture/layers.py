"""Which layers of a model attend, found by one short forward pass rather than by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.errors import CaptureError, RowError
from sinkwise.rowdata import HeadId

if TYPE_CHECKING:
    import torch

    from sinkwise.capture.interface import AttentionCall

__all__ = ["AttentionLayers", "describe_layers", "no_attention_error"]

_ATTENDING_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


@dataclass(frozen=True)
class AttentionLayers:
    """The attention layers of a model in the order they run.

    Attributes
    ----------
    layers
        Original layer number of each call.
    n_heads, n_kv_heads
        Query heads and key heads of each call.
    learned_sinks
        Whether each call has a learned sink logit.
    skipped
        Layers of the model that don't attend (state-space and linear layers of hybrids).
    n_layers
        Layers of the model, attending or not.
    implementations
        Loaded attention implementation of each call.
    causal
        Whether no query saw a later key.
    n_tokens
        Key columns of the pass: what an image's token count is known from.
    """

    layers: tuple[int, ...]
    n_heads: tuple[int, ...]
    n_kv_heads: tuple[int, ...]
    learned_sinks: tuple[bool, ...]
    skipped: tuple[int, ...]
    n_layers: int
    implementations: tuple[str, ...]
    causal: bool
    n_tokens: int

    @property
    def heads(self) -> tuple[HeadId, ...]:
        """Every query head in layer-major order."""
        return tuple(
            HeadId(layer, index)
            for layer, number in sorted(zip(self.layers, self.n_heads, strict=True))
            for index in range(number)
        )

    @property
    def has_virtual_sink(self) -> bool:
        """Whether any layer has a learned sink logit."""
        return any(self.learned_sinks)

    def offsets(self) -> tuple[int, ...]:
        """First row of each call's heads in the layer-major order."""
        order = sorted(range(len(self.layers)), key=lambda call: self.layers[call])
        offsets, position = [0] * len(order), 0
        for call in order:
            offsets[call] = position
            position += self.n_heads[call]
        return tuple(offsets)

    def head_number(self, layer: int, index: int) -> int:
        """Return a head's place in the layer-major order.

        Raises
        ------
        RowError
            If the layer doesn't attend, or has fewer query heads; the message states the numbers
            of query heads and of key heads, which differ under grouped-query attention.
        """
        if layer not in self.layers:
            raise RowError(
                f"layer {layer} arrived, the layers that attend are {sorted(self.layers)}"
                + (f"; layers {list(self.skipped)} have no attention" if self.skipped else "")
            )
        call = self.layers.index(layer)
        if not 0 <= index < self.n_heads[call]:
            raise RowError(
                f"head {index} of layer {layer} arrived, the layer has {self.n_heads[call]} query "
                f"heads over {self.n_kv_heads[call]} key/value heads: rows belong to query heads, "
                f"so type an index from 0 to {self.n_heads[call] - 1}"
            )
        return self.offsets()[call] + index


def describe_layers(
    model: torch.nn.Module, calls: Sequence[tuple[AttentionCall, bool]]
) -> AttentionLayers:
    """Return the layers behind the attention calls of one forward pass.

    Parameters
    ----------
    calls
        Each call and whether every key it let a query see was the query's own or an earlier one.

    Raises
    ------
    CaptureError
        If no call was made, or the calls can't be told apart by layer.
    """
    if not calls:
        raise no_attention_error(model)
    names = {id(module): name for name, module in model.named_modules()}
    layers = _layer_numbers(model, [call for call, _ in calls], names)
    n_layers = max(_configured_layers(model), max(layers) + 1)
    skipped = tuple(layer for layer in range(n_layers) if layer not in layers)
    _refuse_unseen_attention(model, skipped)
    from sinkwise.capture.logits import learned_sink

    return AttentionLayers(
        layers=layers,
        n_heads=tuple(call.query.shape[1] for call, _ in calls),
        n_kv_heads=tuple(_kv_heads(call) for call, _ in calls),
        learned_sinks=tuple(learned_sink(call) is not None for call, _ in calls),
        skipped=skipped,
        n_layers=n_layers,
        implementations=tuple(call.implementation for call, _ in calls),
        causal=all(causal for _, causal in calls),
        n_tokens=calls[0][0].key.shape[2],
    )


def _kv_heads(call: AttentionCall) -> int:
    """Key/value heads of a layer, also where attention is given them once for each query head."""
    from sinkwise.capture.pruned.layer_config import LayerConfig

    config = getattr(call.module, "config", None)
    if isinstance(config, LayerConfig) and config.query_to_kv is not None:
        return max(config.query_to_kv) + 1
    return call.key.shape[1]


def no_attention_error(model: torch.nn.Module, *, ran: bool = True) -> CaptureError:
    """The error for a forward pass in which no attention call was heard.

    Parameters
    ----------
    ran
        Whether there was a forward pass for certain, or perhaps none.
    """
    kind = type(model).__name__
    if _has_no_heads_left(model):
        return CaptureError(
            f"{kind} has no attention head left: all were removed from it (sinkwise.remove_heads), "
            "so it has no attention rows. Keep at least one head, or pass the model as it was "
            "before"
        )
    if getattr(model.config, "attention_window", None) is not None:
        return CaptureError(
            f"{kind} computes banded attention: its columns are offsets in a window, not key "
            "positions, so its rows are no compositions over keys. Use a model with full or "
            "masked sliding-window attention"
        )
    perhaps = (
        ""
        if ran
        else f"no forward pass of this very {kind} ran inside the context (type `with "
        "content.collecting() as held: model(**batch)`), or "
    )
    return CaptureError(
        f"not one attention row was captured from {kind}: {perhaps}it doesn't call transformers' "
        "attention interface (its own attention code, or a forward that was compiled before the "
        "capture began). If it was compiled, pass the model as it was before torch.compile. "
        'Otherwise run it with attn_implementation="eager" and output_attentions=True yourself and '
        "pass the arrays: sinkwise.rows(outputs.attentions, sink=0), with causal=True for a decoder"
    )


def _layer_numbers(
    model: torch.nn.Module, calls: Sequence[AttentionCall], names: Mapping[int, str]
) -> tuple[int, ...]:
    numbers = [_layer_number(call.module, names) for call in calls]
    known = [number for number in numbers if number is not None]
    if len(known) == len(set(known)) == len(calls):
        return tuple(known)
    # one module run for every layer (ALBERT), or numbers that restart in each stage
    shared = len({id(call.module) for call in calls}) < len(calls)
    if len(calls) == _configured_layers(model) or (shared and not known):
        return tuple(range(len(calls)))
    listed = ", ".join(f"{names.get(id(call.module), '?')}" for call in calls[:6])
    raise CaptureError(
        f"{type(model).__name__} made {len(calls)} attention calls that its layer numbers don't "
        f"tell apart ({listed}, ...): pass the part that holds one attention a layer, for example "
        "model.get_encoder() or model.vision_model"
    )


def _layer_number(module: torch.nn.Module, names: Mapping[int, str]) -> int | None:
    number = getattr(module, "layer_idx", None)
    if isinstance(number, int):
        return number
    inside = [int(part) for part in names.get(id(module), "").split(".") if part.isdigit()]
    return inside[0] if len(inside) == 1 else None


def _text_config(model: torch.nn.Module) -> Any:
    config = model.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _configured_layers(model: torch.nn.Module) -> int:
    number = getattr(_text_config(model), "num_hidden_layers", None)
    return number if isinstance(number, int) else 0


def _has_no_heads_left(model: torch.nn.Module) -> bool:
    """Whether every layer that would attend was emptied of its heads."""
    from sinkwise.capture.pruned.no_heads import NoHeads

    emptied = sum(isinstance(module, NoHeads) for module in model.modules())
    types = getattr(_text_config(model), "layer_types", None)
    attending = sum(name in _ATTENDING_TYPES for name in types) if types else 0
    return emptied > 0 and emptied >= (attending or _configured_layers(model))


def _refuse_unseen_attention(model: torch.nn.Module, skipped: Sequence[int]) -> None:
    """A layer that its config calls attention, yet made no call, isn't one without attention."""
    from sinkwise.capture.pruned.no_heads import NoHeads

    types = getattr(_text_config(model), "layer_types", None) or ()
    emptied = {module.layer_idx for module in model.modules() if isinstance(module, NoHeads)}
    unseen = [
        i for i in skipped if i < len(types) and types[i] in _ATTENDING_TYPES and i not in emptied
    ]
    if unseen:
        raise CaptureError(
            f"layers {unseen} of {type(model).__name__} attend by their config (layer_types) but "
            "made no call to transformers' attention interface, so their rows would be missing: "
            "this model can't be captured whole"
        )
