"""From whatever a training loop holds to the transformers model in it, run without a trace."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.capture.forward import refuse_encoder_decoder, without_output_head
from sinkwise.capture.interface import Listener, listening, require_transformers_model
from sinkwise.errors import CaptureError, InputTypeError

if TYPE_CHECKING:
    import torch

__all__ = ["Watched", "random_state_kept", "watched"]

_OWN_GENERATORS = ("cuda", "xpu")


@dataclass(frozen=True)
class Watched:
    """A model in training and the part of it that a pass of our own runs.

    Attributes
    ----------
    model
        The transformers model.
    run
        What is called: the part that attends; with sharded weights all of it, because the
        outermost module gathers some of them.
    """

    model: torch.nn.Module
    run: torch.nn.Module

    @property
    def device(self) -> torch.device:
        """Where the first weight lies."""
        return next(self.model.parameters()).device

    def forward(self, inputs: Mapping[str, torch.Tensor], listener: Listener) -> None:
        """Run the model on `inputs` in evaluation mode, without gradients, telling `listener`.

        Nothing of it reaches the training step: random states, autocast's copies of the weights,
        compiled code, the mode of every module and sharded weights are as before.
        """
        takes = inspect.signature(self.run.forward).parameters
        given: dict[str, Any] = {
            name: self._placed(name, tensor) for name, tensor in inputs.items() if name in takes
        }
        own = {"use_cache": False, "logits_to_keep": 1}
        given |= {name: value for name, value in own.items() if name in takes}
        # a config that asks for outputs would make the model install hooks of its own
        for name in ("output_attentions", "output_hidden_states"):
            if getattr(self.model.config, name, False):
                given[name] = False
        with ExitStack() as stack:
            stack.callback(_reshard, self.model)
            stack.enter_context(random_state_kept(self.device))
            stack.enter_context(_autocast_without_cache(self.device))
            stack.enter_context(_not_compiled())
            stack.enter_context(listening(self.model, listener))
            self.run(**given)

    def _placed(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to(self.device)
        return tensor.to(self.model.dtype) if name == "pixel_values" else tensor


def watched(model: Any) -> Watched:
    """Return the transformers model inside whatever a training loop holds.

    Data parallelism, compilation, sharding, adapters, or a module of one's own.

    Raises
    ------
    InputTypeError
        If there is none, or more than one.
    CaptureError
        If it is an encoder-decoder, or its weights are gathered by a module around it.
    """
    inner = model
    while (deeper := _inside(inner)) is not None:
        inner = deeper
    part = _only_part(inner)
    require_transformers_model(part)
    refuse_encoder_decoder(part)
    sharded = _sharded(part)
    if len(_sharded(inner)) > len(sharded):
        raise CaptureError(
            f"the weights of {type(inner).__name__} are sharded together, and running the "
            f"{type(part).__name__} in it alone doesn't gather them: call fully_shard on the "
            f"{type(part).__name__} itself"
        )
    return Watched(part, part if sharded else without_output_head(part))


def _only_part(module: Any) -> Any:
    """The transformers model that a module of one's own holds, if there is exactly one."""
    from torch.nn import Module
    from transformers import PreTrainedModel

    if isinstance(module, PreTrainedModel) or not isinstance(module, Module):
        return module
    found: list[Any] = []
    waiting = list(module.children())
    while waiting:
        child = waiting.pop()
        if isinstance(child, PreTrainedModel):
            found.append(child)
        else:
            waiting += child.children()
    if len({id(part) for part in found}) > 1:
        raise InputTypeError(
            f"{type(module).__name__} holds {len(found)} transformers models "
            f"({', '.join(sorted(type(part).__name__ for part in found))}), expected one: pass "
            "the one to watch"
        )
    return found[0] if found else module


def _inside(model: Any) -> Any:
    """What a wrapper holds, or None."""
    from transformers import PreTrainedModel

    if isinstance(model, PreTrainedModel):
        return None
    if hasattr(model, "get_base_model"):  # adapters
        return model.get_base_model()
    for name in ("_orig_mod", "module"):  # compiled; data parallel or sharded
        if name in getattr(model, "_modules", {}):
            return model._modules[name]
    return None


def _sharded(module: torch.nn.Module) -> list[Any]:
    """The modules in it whose weights are sharded in place (``fully_shard``)."""
    import torch

    if not torch.distributed.is_available():
        return []
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    if any(isinstance(part, FullyShardedDataParallel) for part in module.modules()):
        raise CaptureError(
            f"{type(module).__name__} is sharded by FullyShardedDataParallel, which isn't served: "
            "shard it with torch.distributed.fsdp.fully_shard (FSDP2; transformers' Trainer and "
            "accelerate call it version 2)"
        )
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _reshard(model: torch.nn.Module) -> None:
    """Free what our pass gathered: a later step must not find weights from before an update."""
    for module in _sharded(model):
        module.reshard()


def _autocast_without_cache(device: torch.device) -> Any:
    """Autocast as it is around the call, but its cache is neither read nor filled.

    It may hold copies of weights from before the last update; and a copy that we leave, made
    without gradients, could be taken by the training step.
    """
    import torch

    if not torch.is_autocast_enabled(device.type):
        return nullcontext()
    dtype = torch.get_autocast_dtype(device.type)
    return torch.autocast(device.type, dtype=dtype, cache_enabled=False)


def _not_compiled() -> Any:
    """Run what is compiled as it was written: a pass with a listener would compile anew."""
    import torch

    set_stance = getattr(torch.compiler, "set_stance", None)  # from PyTorch 2.6
    nothing_compiled = "torch._dynamo" not in sys.modules
    return nullcontext() if nothing_compiled or not set_stance else set_stance("force_eager")


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Give back every random state as it was: PyTorch's, NumPy's and Python's."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    own = device.type in _OWN_GENERATORS
    devices = [device.index or 0] if own else []
    kind = device.type if own else "cuda"
    try:
        with torch.random.fork_rng(devices=devices, device_type=kind):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
