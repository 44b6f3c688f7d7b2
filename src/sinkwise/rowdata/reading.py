"""From what people hold (arrays, model outputs, generate()'s tuples, caches) to maps by layer.

Only shapes are looked at here: which axis is what, which layer a map belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sinkwise.errors import InputTypeError, RowError

__all__ = ["Piece", "read_pieces"]

_PATTERN = re.compile(r"blocks\.(\d+)\.attn\.hook_pattern$")


@dataclass(frozen=True)
class Piece:
    """Maps that share their queries and keys: one array per layer, ``[..., heads, queries, keys]``.

    generate() yields one piece per step; everything else is a single piece.
    """

    layers: tuple[int, ...]
    maps: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Leading shape, then queries and keys: what all layers share."""
        *lead, _, queries, keys = self.maps[0].shape
        return (*lead, queries, keys)


def read_pieces(weights: Any) -> tuple[list[Piece], tuple[int, ...]]:
    """Return the pieces of `weights` and the layers that have no map."""
    if hasattr(weights, "global_attentions"):
        raise RowError(
            "these outputs hold global_attentions: the map is banded (window + global columns), so "
            "a column is no position and a sink can't be named. Models of the Longformer kind "
            "are not supported"
        )
    if hasattr(weights, "cross_attentions") and hasattr(weights, "encoder_attentions"):
        raise RowError(
            "these outputs hold three kinds of attention: pass outputs.encoder_attentions, "
            "outputs.decoder_attentions (with causal=True) or outputs.cross_attentions"
        )
    if hasattr(weights, "attentions") and not _is_array(weights):
        weights = weights.attentions
    if weights is None:
        raise RowError(_NO_MAPS)
    if _is_array(weights):
        return [_piece({0: weights})], ()
    if _is_mapping(weights):
        return [_piece(_from_cache(weights))], ()
    if not isinstance(weights, Sequence) or isinstance(weights, str):
        raise InputTypeError(
            f"cannot read attention rows from a {type(weights).__name__}; expected an array "
            "[..., heads, queries, keys], outputs.attentions, generate()'s nested tuples or a "
            "cache with blocks.N.attn.hook_pattern. A serving engine holds no attention: load "
            "the checkpoint as a transformers model"
        )
    if len(weights) == 0:
        raise RowError("an empty sequence of attention maps")
    if any(isinstance(step, tuple | list) and _holds_maps(step) for step in weights):
        steps = [_layers(step) for step in weights]
        skipped = {tuple(missing) for _, missing in steps}
        return [_piece(found) for found, _ in steps], skipped.pop() if skipped else ()
    if all(not _is_array(item) and item is not None for item in weights):
        import numpy as np

        return [_piece({0: np.asarray(weights)})], ()  # nested lists of numbers
    found, missing = _layers(weights)
    return [_piece(found)], missing


_NO_MAPS = (
    "every attention map is None: fused attention (sdpa, flash) returns no weights. Audit the "
    "model itself (sw.audit(model, tokenizer, texts, sink=...) keeps fused attention), or load it "
    'with attn_implementation="eager"'
)


def _layers(maps: Sequence[Any]) -> tuple[dict[int, Any], tuple[int, ...]]:
    found = {layer: m for layer, m in enumerate(maps) if m is not None}
    if not found:
        raise RowError(_NO_MAPS)
    return found, tuple(layer for layer, m in enumerate(maps) if m is None)


def _from_cache(cache: Any) -> dict[int, Any]:
    found = {}
    for name in cache.keys():  # noqa: SIM118 - ActivationCache iterates over values of its own
        match = _PATTERN.search(str(name))
        if match:
            found[int(match[1])] = cache[name]
    if not found:
        raise RowError(
            "the cache holds no blocks.N.attn.hook_pattern; run_with_cache must keep the patterns"
        )
    return dict(sorted(found.items()))


def _piece(maps: Mapping[int, Any]) -> Piece:
    layers, arrays = tuple(maps), tuple(maps.values())
    first = arrays[0]
    for layer, array in zip(layers, arrays, strict=True):
        if not _is_array(array):
            raise InputTypeError(
                f"layer {layer} is a {type(array).__name__}, expected an array "
                "[..., heads, queries, keys]"
            )
        shape = tuple(array.shape)
        if len(shape) < 3:
            raise RowError(
                f"layer {layer} has shape {shape}; expected [..., heads, queries, keys] with at "
                "least 3 axes. For one head's map pass map[None]; for single rows use the row "
                "functions (sw.sink_mass, sw.content_distance, ...)"
            )
        kind = str(array.dtype).rsplit(".", maxsplit=1)[-1]
        if not ("float" in kind or "int" in kind or kind == "bool"):
            raise InputTypeError(f"layer {layer} has dtype {kind}; attention weights are numbers")
        if 0 in shape:
            raise RowError(f"layer {layer} has shape {shape}: an axis is empty")
        if shape[:-3] != tuple(first.shape[:-3]) or shape[-2:] != tuple(first.shape[-2:]):
            raise RowError(
                f"layer {layer} has shape {shape}, layer {layers[0]} {tuple(first.shape)}: layers "
                "may differ in their number of heads alone. Pass layers with other windows apart"
            )
    return Piece(layers, arrays)


def _holds_maps(step: Sequence[Any]) -> bool:
    return any(_is_array(m) and len(m.shape) >= 3 for m in step)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "cache_dict"))
