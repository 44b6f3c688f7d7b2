"""What an attention layer with heads taken out reads as its config, and how it attends.

Where query heads no longer share key/value heads evenly, the layer's config names an attention
function that gathers each query head's keys and values and hands on to the implementation the
model is loaded with, so the cache stays small and any implementation, also one set later, serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sinkwise.capture.interface import loaded_function
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["ATTENTION", "LayerConfig"]

ATTENTION = "sinkwise_kept_heads"
"""Name of the attention function in transformers' registry; there once a model needs it."""


class LayerConfig:
    """A model's config as one of its attention layers reads it: the layer's own head counts.

    Everything else, read now or later, is the model's own config.

    Parameters
    ----------
    shared
        The model's config.
    own
        What this layer reads differently.
    query_to_kv
        The key/value head of each query head where groups are uneven, else ``None``.
    bias_heads
        The heads of a shared position bias that this layer's heads read, or ``None``.
    """

    def __init__(
        self,
        shared: Any,
        own: Mapping[str, int],
        *,
        query_to_kv: tuple[int, ...] | None = None,
        bias_heads: tuple[int, ...] | None = None,
    ) -> None:
        self.__dict__.update(own)
        self.shared = shared
        self.query_to_kv = query_to_kv
        self.bias_heads = bias_heads
        self._register()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "shared" not in self.__dict__:  # while it is being copied
            raise AttributeError(name)
        return getattr(self.shared, name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()

    @property
    def redirects(self) -> bool:
        """Whether keys, values or a position bias have to be gathered."""
        return self.query_to_kv is not None or self.bias_heads is not None

    @property
    def _attn_implementation(self) -> str:
        return ATTENTION if self.redirects else self.shared._attn_implementation

    def _register(self) -> None:
        if self.redirects:
            from transformers.modeling_utils import AttentionInterface

            AttentionInterface.register(ATTENTION, _attend)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Give each query head its own keys and values, and hand on to the loaded implementation."""
    config: LayerConfig = module.config
    loaded = config.shared._attn_implementation
    if loaded.startswith("paged|"):
        raise CaptureError(
            f'attn_implementation="{loaded}" stores keys and values by the number of heads in the '
            "config, which a layer with uneven groups doesn't have: type "
            'model.set_attn_implementation("sdpa")'
        )
    if config.query_to_kv is not None:
        key, value = _heads(key, config.query_to_kv), _heads(value, config.query_to_kv)
    bias = options.get("position_bias")
    if bias is not None and config.bias_heads is not None:
        options["position_bias"] = _heads(bias, config.bias_heads)
    function = loaded_function(module, loaded)
    return function(module, query, key, value, attention_mask, **options)


def _heads(tensor: torch.Tensor, heads: tuple[int, ...]) -> torch.Tensor:
    """Gather along axis 1, the heads' axis."""
    import torch

    return tensor.index_select(1, torch.tensor(heads, device=tensor.device))
