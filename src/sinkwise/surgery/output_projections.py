"""Where heads meet: the output projection of each attention layer, found by what it is given.

A tiny forward pass is listened to; the projection is the first linear layer whose input is the
attention's own output, heads side by side.  No name of a model or of a module is looked up, so
any model that calls transformers' attention interface is served.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.capture.interface import AttentionCall, listening, require_transformers_model
from sinkwise.capture.layers import describe_layers, no_attention_error
from sinkwise.errors import CaptureError, RowError
from sinkwise.rowdata import HeadId

if TYPE_CHECKING:
    import torch

__all__ = [
    "OutputProjection",
    "head_ids",
    "heads_by_layer",
    "heads_of",
    "output_projections",
    "probe_inputs",
]

_PROBE_TOKENS = 4


@dataclass(frozen=True)
class OutputProjection:
    """The linear layer that mixes the heads of one attention layer.

    Attributes
    ----------
    layer
        Number of the layer, as in :class:`~sinkwise.capture.layers.AttentionLayers`; in an
        encoder-decoder, whose layer numbers collide, the running number of the attention.
    n_heads
        Query heads.
    head_dim
        Width of one head at the projection's input.
    name
        Its name in ``model.named_modules()``.
    module
        ``nn.Linear``, or transformers' ``Conv1D``.
    attention
        The module that calls the attention interface.
    """

    layer: int
    n_heads: int
    head_dim: int
    name: str
    module: torch.nn.Module
    attention: torch.nn.Module

    def head_weights(self) -> torch.Tensor:
        """Return what each head's output is multiplied with, ``(n_heads, head_dim, d_model)``.

        A view of the weight.

        Raises
        ------
        CaptureError
            If the weight is packed (quantised), so that no head's part can be read.
        """
        weight = self.module.weight.detach()
        width = self.n_heads * self.head_dim
        rows = weight if _is_conv1d(self.module) else weight.T
        if not weight.is_floating_point() or weight.ndim != 2 or rows.shape[0] != width:
            raise CaptureError(
                f"{self.name} holds a packed weight of type {weight.dtype} and shape "
                f"{tuple(weight.shape)}: load the model without quantisation to read its heads"
            )
        return rows.unflatten(0, (self.n_heads, self.head_dim))


def output_projections(model: torch.nn.Module) -> tuple[OutputProjection, ...]:
    """Find the output projection of every attention layer of a transformers model.

    One forward pass over a few tokens (or one blank image); the model is left as it was found.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``: decoder, encoder, vision model or encoder-decoder.

    Returns
    -------
    tuple of OutputProjection
        By layer number.

    Raises
    ------
    InputTypeError
        If `model` is not a transformers model.
    CaptureError
        If it doesn't call the attention interface, its heads' outputs are changed before they are
        projected, or one projection serves several layers.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2Model
    >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> [(p.layer, p.n_heads, p.head_dim, p.name) for p in output_projections(model)]
    [(0, 2, 4, 'h.0.attn.c_proj'), (1, 2, 4, 'h.1.attn.c_proj')]
    """
    require_transformers_model(model)
    names = {id(module): name for name, module in model.named_modules()}
    calls: list[AttentionCall] = []
    fed: list[torch.nn.Module | None] = []

    def heard(call: AttentionCall) -> None:
        calls.append(call)
        fed.append(None)

    def entered(module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        if calls and fed[-1] is None and args and _is_joined(args[0], calls[-1].output):
            fed[-1] = module

    linear = [module for module in model.modules() if _is_linear(module)]
    # before hooks that are there: they may change what the projection is given
    hooks = [module.register_forward_pre_hook(entered, prepend=True) for module in linear]
    try:
        with listening(model, heard, masks=False):
            model(**probe_inputs(model))
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        raise no_attention_error(model)
    found = [
        _projection(model, layer, call, module, names)
        for layer, call, module in zip(_layers(model, calls), calls, fed, strict=True)
    ]
    _refuse_shared(model, found)
    return tuple(sorted(found, key=lambda projection: projection.layer))


def heads_of(projections: Iterable[OutputProjection]) -> tuple[HeadId, ...]:
    """Return every head in layer-major order."""
    return tuple(
        HeadId(projection.layer, index)
        for projection in projections
        for index in range(projection.n_heads)
    )


def head_ids(heads: Iterable[Any]) -> tuple[HeadId, ...]:
    """Return heads given as :class:`HeadId` or ``(layer, index)`` pairs, each once, in order.

    Raises
    ------
    RowError
        If something else arrived, or no head at all.
    """
    if isinstance(heads, HeadId):
        heads = (heads,)
    if not isinstance(heads, Iterable):
        raise RowError(f"heads={heads!r} arrived, expected pairs (layer, index), such as [(3, 5)]")
    found = {_head_id(head) for head in heads}
    if not found:
        raise RowError("no head arrived: name at least one, such as (3, 5) for layer 3, head 5")
    return tuple(sorted(found))


def _head_id(head: Any) -> HeadId:
    """Whole numbers only: 1.9 cut to 1 would switch off, or remove, another head."""
    place = (head.layer, head.index) if isinstance(head, HeadId) else head
    try:
        layer, index = place
        if isinstance(layer, bool) or isinstance(index, bool):
            raise TypeError
        return HeadId(operator.index(layer), operator.index(index))
    except (TypeError, ValueError):
        raise RowError(
            f"{head!r} arrived as a head, expected a HeadId or a pair (layer, index) of whole "
            "numbers"
        ) from None


def heads_by_layer(
    projections: Sequence[OutputProjection], heads: Iterable[Any]
) -> dict[OutputProjection, tuple[int, ...]]:
    """Return the indices of `heads` in each layer that has any.

    Raises
    ------
    RowError
        If the model has no such head; the message says what it has.
    """
    of_layer = {projection.layer: projection for projection in projections}
    found: dict[OutputProjection, list[int]] = {}
    for head in head_ids(heads):
        projection = of_layer.get(head.layer)
        if projection is None:
            raise RowError(
                f"head {head.label} arrived, the layers that attend are {sorted(of_layer)}"
            )
        if not 0 <= head.index < projection.n_heads:
            raise RowError(
                f"head {head.label} arrived, layer {head.layer} has {projection.n_heads} query "
                f"heads: type an index from 0 to {projection.n_heads - 1}"
            )
        found.setdefault(projection, []).append(head.index)
    return {projection: tuple(indices) for projection, indices in found.items()}


def probe_inputs(model: torch.nn.Module) -> dict[str, Any]:
    """Return the smallest input that makes every layer attend."""
    import torch

    config = model.config
    device = model.device
    if model.main_input_name == "pixel_values":
        size = getattr(config, "image_size", 32)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        shape = (1, getattr(config, "num_channels", 3), int(height), int(width))
        return {"pixel_values": torch.zeros(shape, dtype=model.dtype, device=device)}
    if model.main_input_name != "input_ids":
        raise CaptureError(
            f"{type(model).__name__} reads {model.main_input_name}, expected a model of texts "
            "(input_ids) or images (pixel_values): pass its text or vision part on its own"
        )
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    special = {getattr(text, f"{name}_token_id", None) for name in ("pad", "bos", "eos")}
    plain = [i for i in range(min(text.vocab_size, 64)) if i not in special]
    ids = torch.tensor([(plain * _PROBE_TOKENS)[:_PROBE_TOKENS]], device=device)
    inputs: dict[str, Any] = {"input_ids": ids}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = ids
    return inputs


def _is_conv1d(module: torch.nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, Conv1D)


def _is_linear(module: torch.nn.Module) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2


def _is_joined(given: Any, output: torch.Tensor) -> bool:
    """Whether a linear layer is given exactly the attention's output, heads side by side."""
    import torch

    if not isinstance(given, torch.Tensor) or given.numel() != output.numel():
        return False
    return given.shape[-1] == output.shape[-2] * output.shape[-1] and torch.equal(
        given.reshape(-1), output.reshape(-1)
    )


def _layers(model: torch.nn.Module, calls: Sequence[AttentionCall]) -> Sequence[int]:
    if getattr(model.config, "is_encoder_decoder", False):
        return range(len(calls))
    return describe_layers(model, [(call, False) for call in calls]).layers


def _projection(
    model: torch.nn.Module,
    layer: int,
    call: AttentionCall,
    module: torch.nn.Module | None,
    names: dict[int, str],
) -> OutputProjection:
    n_heads, head_dim = call.output.shape[-2:]
    if module is None:
        raise CaptureError(
            f"layer {layer} of {type(model).__name__} ({type(call.module).__name__}) changes the "
            "heads' outputs before it projects them (a gate, a norm over all heads), so no head "
            "has a part of its own at the projection's input"
        )
    return OutputProjection(layer, n_heads, head_dim, names[id(module)], module, call.module)


def _refuse_shared(model: torch.nn.Module, found: Sequence[OutputProjection]) -> None:
    names = [projection.name for projection in found]
    for projection in found:
        layers = [other.layer for other in found if other.name == projection.name]
        if names.count(projection.name) > 1:
            raise CaptureError(
                f"{projection.name} of {type(model).__name__} serves the layers {layers}: a head "
                "of one of them can't be changed without the others"
            )
