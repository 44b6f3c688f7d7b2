"""Find out how each attention layer's heads lie in its weights, and hold a removal to that.

One tiny forward pass says which rows of which projection are the values, so a fused projection is
never read in the wrong order; the same pass is what the layer without the heads is checked on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from sinkwise.capture.forward import evaluating
from sinkwise.capture.interface import AttentionCall, listening
from sinkwise.capture.pruned.heads_kept import HeadsKept, value_positions
from sinkwise.capture.pruned.layer_config import LayerConfig
from sinkwise.capture.pruned.take_out import per_head_axis, submodule
from sinkwise.errors import CaptureError
from sinkwise.surgery.output_projections import (
    OutputProjection,
    heads_by_layer,
    output_projections,
    probe_inputs,
)

__all__ = ["LayerPlan", "output_width", "plan_removal", "require_same_heads"]


@dataclass(eq=False)
class LayerPlan:
    """One layer that heads are to leave, and what it did in a tiny forward pass.

    Attributes
    ----------
    projection
        Where its heads meet.
    indices
        The heads to remove.
    kept
        What stays, and where its weights lie.
    call
        The attention call.
    given
        Positional and keyword arguments of the attention module.
    joined
        ``(..., heads * head_dim)``: input of the output projection.
    returned
        How many things the attention module returned.
    """

    projection: OutputProjection
    indices: tuple[int, ...]
    kept: HeadsKept = field(init=False)
    call: AttentionCall = field(init=False)
    given: tuple[tuple[Any, ...], dict[str, Any]] = field(init=False)
    joined: torch.Tensor = field(init=False)
    returned: int = field(init=False)


def plan_removal(model: nn.Module, heads: Iterable[Any]) -> tuple[LayerPlan, ...]:
    """Say what removing `heads` would change; `model` is left as it was found.

    Raises
    ------
    RowError
        If there is no such head.
    CaptureError
        If a layer's heads can't be told apart in its weights.
    """
    of_layer = heads_by_layer(output_projections(model), heads)
    plans = [LayerPlan(projection, indices) for projection, indices in of_layer.items()]
    outputs = _observe(model, plans)
    names = {id(module): name for name, module in model.named_modules()}
    for plan in plans:
        plan.kept = _kept(model, plan, names, outputs)
    _refuse_shared_weights(model, plans)
    return tuple(plans)


def require_same_heads(model: nn.Module, plans: Sequence[LayerPlan]) -> None:
    """Check that every kept head of `model`, a model without the others, does what it did.

    Raises
    ------
    CaptureError
        If one does not, or the model no longer runs.
    """
    modules = dict(model.named_modules())
    with torch.no_grad(), evaluating(model):
        for plan in plans:
            _require_same(model, plan, modules)
        try:
            model(**_probe(model))
        except (RuntimeError, IndexError, ValueError) as error:
            raise _not_the_same(model, plans[0], f"the model no longer runs ({error})") from error


def _observe(
    model: nn.Module, plans: Sequence[LayerPlan]
) -> dict[int, tuple[nn.Module, torch.Tensor]]:
    """Run a few tokens; fill in the plans, and return what each linear layer put out."""
    outputs: dict[int, tuple[nn.Module, torch.Tensor]] = {}
    of_attention = {id(plan.projection.attention): plan for plan in plans}

    def heard(call: AttentionCall) -> None:
        if id(call.module) in of_attention:
            of_attention[id(call.module)].call = call

    def entered(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        of_attention[id(module)].given = (args, kwargs)

    def left(module: nn.Module, args: Any, output: Any) -> None:
        of_attention[id(module)].returned = len(output)

    def put_out(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        outputs[id(module)] = (module, output)

    hooks = []
    for plan in plans:
        attention = plan.projection.attention
        hooks.append(attention.register_forward_pre_hook(entered, with_kwargs=True))
        hooks.append(attention.register_forward_hook(left))
        hooks.append(plan.projection.module.register_forward_pre_hook(partial(_joined, plan)))
        hooks += [
            child.register_forward_hook(put_out)
            for child in attention.children()
            if _is_linear(child)
        ]
    try:
        with listening(model, heard, masks=False):
            model(**_probe(model))
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def _joined(plan: LayerPlan, module: nn.Module, args: tuple[Any, ...]) -> None:
    plan.joined = args[0]


def _probe(model: nn.Module) -> dict[str, Any]:
    """A few tokens, or a noisy image (a blank one is the same at every place), without a cache."""
    inputs = probe_inputs(model)
    if "pixel_values" in inputs:
        blank = inputs["pixel_values"]
        noise = torch.randn(blank.shape, generator=torch.Generator().manual_seed(0))
        inputs["pixel_values"] = noise.to(blank)
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs["use_cache"] = False
    return inputs


def _kept(
    model: nn.Module,
    plan: LayerPlan,
    names: Mapping[int, str],
    outputs: Mapping[int, tuple[nn.Module, torch.Tensor]],
) -> HeadsKept:
    attention, call = plan.projection.attention, plan.call
    n_heads = plan.projection.n_heads
    linear = {
        name: child
        for name, child in attention.named_children()
        if _is_linear(child) and child is not plan.projection.module
    }
    _refuse_unknown_parts(plan, linear)
    query_to_kv = _query_to_kv(attention, call)
    found = [
        HeadsKept(
            layer=plan.projection.layer,
            attention=_base_name(model, names[id(attention)]),
            output=_base_name(model, plan.projection.name),
            layout=layout,
            projections=tuple(projections),
            key_dim=call.query.shape[-1],
            value_dim=call.value.shape[-1],
            query_to_kv=query_to_kv,
            kept=tuple(head for head in range(n_heads) if head not in plan.indices),
        )
        for layout, projections in _candidates(linear)
    ]
    for kept in found:
        if _has_widths(kept, attention) and _holds_values(kept, attention, call, outputs):
            return kept
    raise _unknown(
        plan, f"its linear layers {sorted(linear) or 'within it'} hold them in no way known here"
    )


def _candidates(linear: Mapping[str, nn.Module]) -> list[tuple[str, list[str]]]:
    """Layouts that as many linear layers can have; three are told apart by their first letter."""
    named = {name[0]: name for name in linear}
    if len(linear) == 3 and set(named) == {"q", "k", "v"}:
        return [("separate", [named["q"], named["k"], named["v"]])]
    if len(linear) == 1:
        return [("side by side", list(linear)), ("per head", list(linear))]
    return []


def _query_to_kv(attention: nn.Module, call: AttentionCall) -> tuple[int, ...]:
    config = getattr(attention, "config", None)
    if isinstance(config, LayerConfig) and config.query_to_kv is not None:
        return config.query_to_kv
    heads, kv_heads = call.query.shape[1], call.key.shape[1]
    return tuple(head // (heads // kv_heads) for head in range(heads))


def _has_widths(kept: HeadsKept, attention: nn.Module) -> bool:
    widths = [output_width(getattr(attention, name)) for name in kept.projections]
    queries, keys = kept.n_heads * kept.key_dim, kept.n_kv_heads * kept.key_dim
    values = kept.n_kv_heads * kept.value_dim
    if kept.layout == "separate":
        return widths == [queries, keys, values]
    grouped = kept.n_kv_heads < kept.n_heads
    return widths == [queries + keys + values] and not (kept.layout == "per head" and grouped)


def _holds_values(
    kept: HeadsKept,
    attention: nn.Module,
    call: AttentionCall,
    outputs: Mapping[int, tuple[nn.Module, torch.Tensor]],
) -> bool:
    """Whether the rows that the layout calls values are the values that attention was given."""
    name, rows = value_positions(kept)
    put_out = outputs.get(id(getattr(attention, name)))
    if put_out is None:
        return False
    mine = put_out[1][..., rows].reshape(-1, kept.n_kv_heads, kept.value_dim)
    one_query_each = [kept.query_to_kv.index(kv) for kv in range(kept.n_kv_heads)]
    gathered = call.value.shape[1] != kept.n_kv_heads
    heard = call.value[:, one_query_each] if gathered else call.value
    heard = heard.transpose(1, 2).reshape(-1, kept.n_kv_heads, kept.value_dim)
    return mine.shape == heard.shape and bool(torch.equal(mine, heard))


def _refuse_unknown_parts(plan: LayerPlan, linear: Mapping[str, nn.Module]) -> None:
    """Every weight of the attention module has to be known for what it is."""
    attention = plan.projection.attention
    width = plan.call.query.shape[-1]
    for name, child in attention.named_children():
        weights = [parameter for parameter in child.parameters()]
        if name in linear or child is plan.projection.module or not weights:
            if weights and not _is_plain(child):
                raise _unknown(
                    plan,
                    f"its {name} is a {type(child).__name__}, expected nn.Linear or Conv1D with "
                    "weights of their own (merge adapters, load without quantisation)",
                )
            continue
        per_head_norm = all(weight.numel() == width for weight in weights)
        if not per_head_norm and name != "relative_attention_bias":
            raise _unknown(
                plan,
                f"its {name} ({type(child).__name__}) holds weights of shape "
                f"{tuple(weights[0].shape)} over all heads together",
            )
    if not _is_plain(plan.projection.module):
        kind = type(plan.projection.module).__name__
        raise _unknown(plan, f"{plan.projection.name} is a {kind}, expected nn.Linear or Conv1D")
    for name, parameter in attention.named_parameters(recurse=False):
        if per_head_axis(parameter, plan.projection.n_heads) is None:
            raise _unknown(plan, f"its {name} of shape {tuple(parameter.shape)} isn't one a head")
    if not hasattr(attention, "config"):
        raise _unknown(plan, "it holds no config, so it can't be given head counts of its own")


def _refuse_shared_weights(model: nn.Module, plans: Sequence[LayerPlan]) -> None:
    owners: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for plan in plans:
        for name in (*plan.kept.projections, None):
            module = getattr(plan.projection.attention, name) if name else plan.projection.module
            if any(owners[id(p)] > 1 for p in module.parameters(recurse=False)):
                raise _unknown(plan, f"the weight of its {name or plan.projection.name} is shared")
            if any(p.device.type == "meta" for p in module.parameters(recurse=False)):
                raise _unknown(plan, "its weights are offloaded: load the model without device_map")


def _require_same(model: nn.Module, plan: LayerPlan, modules: Mapping[str, nn.Module]) -> None:
    attention = submodule(model, plan.kept.attention)[1]
    given: list[torch.Tensor] = []
    output = modules[plan.projection.name]
    hook = output.register_forward_pre_hook(lambda module, args: given.append(args[0]))
    args, kwargs = plan.given
    try:
        returned = attention(*args, **kwargs)
    except (RuntimeError, IndexError, ValueError) as error:
        raise _not_the_same(model, plan, f"it no longer runs ({error})") from error
    finally:
        hook.remove()
    joined = given[0] if given else returned[0]  # BERT's projection stands outside
    heads = plan.joined.unflatten(-1, (plan.projection.n_heads, plan.projection.head_dim))
    expected = heads[..., list(plan.kept.kept), :].flatten(-2)
    if joined.shape != expected.shape or len(returned) != plan.returned:
        raise _not_the_same(
            model, plan, f"its heads put out {tuple(joined.shape)}, not {tuple(expected.shape)}"
        )
    if not expected.numel():
        return
    # a wrong row is an error of the order of the values; kernels round differently by shape
    tolerance = torch.finfo(expected.dtype).eps ** 0.5 * float(plan.joined.abs().max())
    gap = float((joined - expected).abs().max())
    if not gap <= tolerance:
        raise _not_the_same(model, plan, f"a kept head's output is off by {gap:.2g}")


def _not_the_same(model: nn.Module, plan: LayerPlan, what: str) -> CaptureError:
    return CaptureError(
        f"removing heads of layer {plan.projection.layer} of {type(model).__name__} would change "
        f"the heads that stay: {what}. Its weights ({type(plan.projection.attention).__name__}) "
        "aren't laid out as they seem; the model is as it was. sinkwise.switch_off(model, heads) "
        "works"
    )


def _unknown(plan: LayerPlan, what: str) -> CaptureError:
    return CaptureError(
        f"heads can't be removed from layer {plan.projection.layer} "
        f"({type(plan.projection.attention).__name__}): {what}. "
        "sinkwise.switch_off(model, heads) gives the same outputs without removing anything"
    )


def _base_name(model: nn.Module, name: str) -> str:
    return name.removeprefix(f"{model.base_model_prefix}.") if model.base_model_prefix else name


def _is_linear(module: nn.Module) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2 and not isinstance(
        module, nn.Embedding
    )


def _is_plain(module: nn.Module) -> bool:
    from transformers.pytorch_utils import Conv1D

    return (
        type(module) in (nn.Linear, Conv1D)
        and "weight" in module._parameters
        and module.weight.is_floating_point()
    )


def output_width(linear: nn.Module) -> int:
    """Return the output features of an ``nn.Linear`` or ``Conv1D``."""
    return int(linear.out_features if isinstance(linear, nn.Linear) else linear.nf)
