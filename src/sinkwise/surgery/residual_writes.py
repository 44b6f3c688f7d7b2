"""Record what attention writes and the residual stream it writes to, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.errors import CaptureError
from sinkwise.surgery.output_projections import OutputProjection

if TYPE_CHECKING:
    import torch

__all__ = ["LayerWrites", "recording_writes"]


@dataclass
class LayerWrites:
    """One layer's part of a forward pass.

    Attributes
    ----------
    projection
        Where the heads are joined.
    joined
        ``(batch, tokens, n_heads * head_dim)``: the projection's input, in the graph if asked.
    stream
        ``(batch, tokens, d_model)``: the residual stream that the layer adds to.
    factor
        ``(batch, tokens, d_model)``: what a norm or scale after the projection multiplied its
        output with, or ``None``.
    """

    projection: OutputProjection
    joined: Any = None
    stream: Any = None
    factor: Any = None

    def by_head(self, joined: torch.Tensor) -> torch.Tensor:
        """Return a tensor like `joined` as ``(batch, tokens, heads, head_dim)``."""
        return joined.unflatten(-1, (self.projection.n_heads, self.projection.head_dim))


@contextmanager
def recording_writes(
    model: torch.nn.Module, projections: Sequence[OutputProjection], *, graph: bool
) -> Iterator[list[LayerWrites]]:
    """Record the next forward pass; with `graph`, gradients can be taken to what was joined.

    Hooks go on the projections, the blocks they stand in, and the norms and scales of those
    blocks, and are gone afterwards.
    """
    modules = dict(model.named_modules())
    hooks: list[Any] = []
    layers = [LayerWrites(projection) for projection in projections]
    try:
        for layer in layers:
            recorder = _LayerRecorder(layer, graph)
            block = _block(modules, layer.projection)
            hooks.append(block.register_forward_pre_hook(recorder.entered, with_kwargs=True))
            projection = layer.projection.module
            hooks.append(projection.register_forward_pre_hook(recorder.joined))
            hooks.append(projection.register_forward_hook(recorder.projected))
            hooks += [
                module.register_forward_hook(recorder.scaled)
                for module in block.modules()
                if module is not projection and not list(module.children())
            ]
        yield layers
    finally:
        for hook in hooks:
            hook.remove()


def _block(modules: dict[str, torch.nn.Module], projection: OutputProjection) -> torch.nn.Module:
    """The innermost element of a list of layers that the projection stands in."""
    import torch

    parts = projection.name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        parent = modules.get(".".join(parts[: end - 1]))
        if isinstance(parent, torch.nn.ModuleList):
            return modules[".".join(parts[:end])]
    raise CaptureError(
        f"{projection.name} doesn't stand in a list of layers, so the residual stream it writes "
        "to can't be found"
    )


class _LayerRecorder:
    """The hooks of one layer."""

    def __init__(self, layer: LayerWrites, graph: bool) -> None:
        self._layer = layer
        self._graph = graph
        self._write: torch.Tensor | None = None

    def entered(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stream = args[0] if args else kwargs["hidden_states"]
        self._layer.stream = stream.detach()

    def joined(self, module: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        given, *rest = args
        if self._graph and not given.requires_grad:
            given = given.detach().requires_grad_()
        self._layer.joined = given
        return (given, *rest)

    def projected(self, module: Any, args: Any, output: torch.Tensor) -> None:
        self._write = output.detach()

    def scaled(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        """Follow the write through modules that are fed nothing else: a norm, a layer's scale."""
        import torch

        write = self._write
        if write is None or not args or not isinstance(args[0], torch.Tensor):
            return
        given = args[0].detach()
        if given.data_ptr() != write.data_ptr() or given.shape != write.shape:
            return
        if not isinstance(output, torch.Tensor) or output.shape != write.shape:
            return
        output = output.detach()
        ratio = torch.where(given == 0, torch.zeros_like(given), output / given)
        before = self._layer.factor
        self._layer.factor = ratio if before is None else before * ratio
        self._write = output
