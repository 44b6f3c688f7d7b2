"""Listen to a transformers model's attention while it keeps the implementation it was loaded with.

Every call of the attention interface is handed on to the loaded function (sdpa, eager, flash); a
listener sees its queries, keys, mask and output, and may return another output in its place.  The
model is left exactly as it was found, also when something raises.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.capture.forward import evaluating
from sinkwise.errors import CaptureError, InputTypeError, MissingExtraError

if TYPE_CHECKING:
    import torch

__all__ = [
    "AttentionCall",
    "Listener",
    "listening",
    "loaded_function",
    "loaded_implementations",
    "relaying",
    "require_transformers_model",
]

_IMPLEMENTATION = "_attn_implementation_internal"


@dataclass(frozen=True)
class AttentionCall:
    """One call of the attention interface, as the model made it.

    Attributes
    ----------
    module
        The attention module that made the call.
    query
        ``(batch, heads, queries, head_dim)``.
    key, value
        ``(batch, kv_heads, keys, head_dim)``: grouped heads are not repeated.
    mask
        ``None``, a bool or additive mask ``(batch or 1, heads or 1, queries, keys)``, or the
        padding mask ``(batch, keys)`` that flash attention takes.
    options
        Every keyword of the call: scaling, softcap, s_aux, position_bias, sliding_window ...
    output
        ``(batch, queries, heads, head_dim)``, from the loaded implementation.
    implementation
        Name of the loaded implementation.
    """

    module: torch.nn.Module
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: Any
    options: Mapping[str, Any]
    output: torch.Tensor
    implementation: str


Listener = Callable[[AttentionCall], "torch.Tensor | None"]
"""Is told of a call; what it returns, if anything, takes the place of the call's output."""


def require_transformers_model(model: object) -> None:
    """Raise unless `model` is a transformers model.

    Raises
    ------
    InputTypeError
        If it is anything else: a serving engine, a plain module, a tokenizer, a name.
    MissingExtraError
        If torch or transformers is not installed.
    """
    try:
        from transformers import PreTrainedModel
    except ImportError as error:
        raise MissingExtraError(
            "capturing attention needs torch and transformers, which are not installed; type: "
            'pip install "sinkwise[hf]"'
        ) from error
    if isinstance(model, PreTrainedModel):
        return
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    if isinstance(model, str):
        hint = f'load it first: sinkwise.capture.load.load_model("{model}").model'
    elif hasattr(model, "_orig_mod"):
        hint = "pass the model as it was before torch.compile (model._orig_mod)"
    elif isinstance(getattr(model, "module", None), PreTrainedModel):
        hint = "pass the model inside the wrapper: model.module"
    else:
        hint = (
            "serving engines and fused kernels hold no attention weights, so load the same "
            "checkpoint with transformers.AutoModelForCausalLM.from_pretrained(...), or pass "
            "attention arrays through sinkwise.rows(weights, sink=0)"
        )
    raise InputTypeError(
        f"got an object of class {kind}, expected a transformers model (an instance of "
        f"transformers.PreTrainedModel): {hint}"
    )


def loaded_implementations(model: torch.nn.Module) -> tuple[str, ...]:
    """Names of the attention implementations that the model's modules hold, sorted.

    What counts is the config each module reads when it runs, not what was asked for at loading.
    """
    return tuple(sorted({_loaded(config) for config in _module_configs(model)}))


@contextmanager
def listening(
    model: torch.nn.Module, listener: Listener, *, masks: bool = True
) -> Iterator[torch.nn.Module]:
    """Call `listener` for every attention call that `model` makes inside the context.

    Inside, the model is in evaluation mode and gradients are off; on leaving, whatever happened,
    the registries of transformers, every config, and the mode of every module are as before.
    No hook is registered and no attribute is added to the model.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``, on any device or sharded over several.
    listener
        Gets an :class:`AttentionCall`; what it raises passes through.  It returns ``None``, and
        the model goes on with the loaded function's own output, or a tensor of that output's
        shape, dtype and device, and the model goes on with that.
    masks
        Whether `listener` reads masks.  A listener that doesn't hears any implementation.

    Yields
    ------
    torch.nn.Module
        `model` itself.

    Raises
    ------
    InputTypeError
        If `model` is not a transformers model.
    CaptureError
        On entering, if `masks` and the loaded implementation's can't be read (flex).

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2Model
    >>> import torch
    >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> shapes = []
    >>> with listening(model, lambda call: shapes.append(tuple(call.query.shape))):
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    >>> shapes
    [(1, 2, 3, 4), (1, 2, 3, 4)]
    """
    require_transformers_model(model)
    import torch

    with torch.no_grad(), evaluating(model), relaying(model, listener, masks=masks):
        yield model


@contextmanager
def relaying(
    model: torch.nn.Module, listener: Listener, *, masks: bool = True
) -> Iterator[torch.nn.Module]:
    """Call `listener` for every attention call, while the model runs in the mode it is in.

    The half of :func:`listening` that training shares: gradients stay on, dropout too, and what
    a call holds is part of the step's graph.  Parameters, errors and what is left behind are
    those of :func:`listening`.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2Model
    >>> import torch
    >>> model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11)).train()
    >>> with relaying(model, lambda call: print(call.query.requires_grad)):
    ...     _ = model(torch.tensor([[1, 2, 3]]))
    True
    """
    require_transformers_model(model)
    configs = _all_configs(model)
    if masks:
        _refuse_block_masks(model, configs)
    with ExitStack() as undo:
        _switch_configs(configs, listener, undo)
        yield model


def _switch_configs(configs: Sequence[Any], listener: Listener, undo: ExitStack) -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    names: dict[str, str] = {}
    for config in configs:
        loaded = _loaded(config)
        if loaded not in names:
            name = f"sinkwise_{uuid.uuid4().hex}_{loaded}"
            names[loaded] = name
            _register(ALL_ATTENTION_FUNCTIONS, name, _relay(loaded, listener), undo)
            if loaded in ALL_MASK_ATTENTION_FUNCTIONS:
                mask_function = ALL_MASK_ATTENTION_FUNCTIONS[loaded]
                _register(ALL_MASK_ATTENTION_FUNCTIONS, name, mask_function, undo)
        undo.callback(
            config.__dict__.__setitem__, _IMPLEMENTATION, config.__dict__[_IMPLEMENTATION]
        )
        # not through the property: its setter would also rewrite the sub-configs
        config.__dict__[_IMPLEMENTATION] = names[loaded]


def _register(interface: Any, name: str, function: Callable[..., Any], undo: ExitStack) -> None:
    type(interface).register(name, function)
    undo.callback(type(interface)._global_mapping.pop, name, None)


def _relay(
    loaded: str, listener: Listener
) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
    """An attention function that hands on to the loaded one and then tells the listener."""

    def attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        function = loaded_function(module, loaded)
        result = function(module, query, key, value, attention_mask, **options)
        replaced = listener(
            AttentionCall(module, query, key, value, attention_mask, options, result[0], loaded)
        )
        return result if replaced is None else (replaced, *result[1:])

    return attention


def loaded_function(module: torch.nn.Module, loaded: str) -> Callable[..., Any]:
    """The function the module would have called: eager is each model file's own."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    eager = _from_model_file(module, "eager_attention_forward")
    interface = _from_model_file(module, "ALL_ATTENTION_FUNCTIONS") or ALL_ATTENTION_FUNCTIONS
    function = interface.get_interface(loaded, eager)
    if function is None:
        raise CaptureError(
            f"{type(module).__name__} runs an eager attention that its file "
            f"{type(module).__module__} doesn't define as eager_attention_forward, so it cannot be "
            'followed: load the model with attn_implementation="sdpa" and capture again'
        )
    return function


def _from_model_file(module: torch.nn.Module, name: str) -> Any:
    for base in type(module).__mro__:
        found = getattr(sys.modules.get(base.__module__), name, None)
        if found is not None:
            return found
    return None


def _loaded(config: Any) -> str:
    return config.__dict__.get(_IMPLEMENTATION) or "eager"


def _module_configs(model: torch.nn.Module) -> list[Any]:
    """The configs that modules hold, each once."""
    from transformers import PreTrainedConfig

    found: dict[int, Any] = {}
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, PreTrainedConfig) and _IMPLEMENTATION in value.__dict__:
                found[id(value)] = value
    return list(found.values())


def _all_configs(model: torch.nn.Module) -> list[Any]:
    """The modules' configs and every sub-config under them, each once."""
    from transformers import PreTrainedConfig

    found: dict[int, Any] = {}
    waiting = _module_configs(model)
    while waiting:
        config = waiting.pop()
        if id(config) in found:
            continue
        found[id(config)] = config
        waiting += [
            value
            for value in vars(config).values()
            if isinstance(value, PreTrainedConfig) and _IMPLEMENTATION in value.__dict__
        ]
    return list(found.values())


def _refuse_block_masks(model: torch.nn.Module, configs: Sequence[Any]) -> None:
    if any(_loaded(config) == "flex_attention" for config in configs):
        raise CaptureError(
            f"{type(model).__name__} is loaded with flex_attention, whose block masks don't "
            'say which key each query sees: load it with attn_implementation="sdpa" (or call '
            'model.set_attn_implementation("sdpa")) and capture again'
        )
