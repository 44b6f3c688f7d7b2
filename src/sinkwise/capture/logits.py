"""Attention logits in float32, and the keys each query sees, from one attention call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

    from sinkwise.capture.interface import AttentionCall

__all__ = [
    "Visibility",
    "capped_and_biased",
    "factors",
    "learned_sink",
    "row_output",
    "visibility",
    "visibility_key",
    "write_logits",
]


@dataclass(frozen=True)
class Visibility:
    """Which keys some queries see, and what the mask adds to their logits.

    Attributes
    ----------
    visible
        bool ``(queries, keys)``, or ``(heads, queries, keys)`` where heads differ.
    bias
        ``None``, or a float32 tensor that broadcasts to ``(heads, queries, keys)``: the finite
        part of an additive mask.
    """

    visible: torch.Tensor
    bias: torch.Tensor | None


def visibility(
    call: AttentionCall, item: int, queries: torch.Tensor, start: int, stop: int
) -> Visibility:
    """Return what the loaded implementation lets `queries` of batch element `item` see.

    Parameters
    ----------
    queries
        ``(rows,)`` positions in the padded batch.
    start, stop
        The columns of the document's own tokens; keys outside are padding.

    Raises
    ------
    CaptureError
        If the mask has a layout that isn't one column a key.
    """
    import torch

    mask = call.mask
    if mask is None or (isinstance(mask, torch.Tensor) and mask.ndim == 2):
        return Visibility(_unmasked(call, item, queries, start, stop), None)
    n_queries, n_keys = call.query.shape[2], call.key.shape[2]
    if not isinstance(mask, torch.Tensor) or mask.ndim != 4 or mask.shape[-1] != n_keys:
        shape = tuple(getattr(mask, "shape", ()))
        raise CaptureError(
            f"{type(call.module).__name__} passes an attention mask of class {type(mask).__name__} "
            f"and shape {shape}, expected one column for each of its {n_keys} keys and one row for "
            f'each of its {n_queries} queries: load the model with attn_implementation="sdpa"'
        )
    row = mask[item if mask.shape[0] > 1 else 0]
    row = row[:, queries if mask.shape[2] > 1 else queries * 0, start:stop]
    if row.dtype == torch.bool:
        return Visibility(_without_head_axis(row), None)
    hidden_below = torch.finfo(row.dtype).min / 2
    row = row.float()
    visible = row > hidden_below
    bias = row.masked_fill(~visible, 0.0)
    return Visibility(_without_head_axis(visible), bias if bool(bias.any()) else None)


def visibility_key(call: AttentionCall) -> tuple[Any, ...]:
    """What decides :func:`visibility`: calls with equal keys, alive together, see alike."""
    options = tuple(call.options.get(name) for name in ("is_causal", "sliding_window"))
    flags = (getattr(call.module, "is_causal", None), call.implementation)
    return (id(call.mask), call.query.shape[2], options, flags, call.query.device)


def write_logits(
    call: AttentionCall,
    item: int,
    queries: torch.Tensor,
    start: int,
    stop: int,
    seen: Visibility,
    out: torch.Tensor,
) -> None:
    """Write the float32 logits of `queries` into `out`, ``(heads, rows, keys)`` on the CPU.

    What `out` holds at keys that a query doesn't see has no meaning.  Cost: ``heads * rows * keys *
    head_dim`` multiplications; no copy of the result when it stays on the CPU and nothing is
    added to the product.
    """
    import torch

    n_kv = call.key.shape[1]
    n_heads, n_rows, n_keys = out.shape
    with torch.autocast(call.query.device.type, enabled=False):
        query, key = factors(call, call.query[item, :, queries], call.key[item, :, start:stop])
        on_cpu = out.is_contiguous() and query.device == out.device
        product = out if on_cpu else query.new_empty((n_heads, n_rows, n_keys))
        torch.bmm(query, key, out=product.view(n_kv, -1, n_keys))
    position_bias = call.options.get("position_bias")
    if position_bias is not None:
        bias = position_bias[item if position_bias.shape[0] > 1 else 0]
        position_bias = bias[:, queries if bias.shape[1] > 1 else queries * 0, start:stop]
    logits = capped_and_biased(call, product, position_bias, seen.bias)
    if logits is not out:
        out.copy_(logits)


def factors(
    call: AttentionCall, query: torch.Tensor, key: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float32 factors whose product is the scaled logits.

    Parameters
    ----------
    query, key
        ``(..., heads, rows, head_dim)`` and ``(..., kv_heads, keys, head_dim)`` of `call`.

    Returns
    -------
    tuple
        ``(..., kv_heads, heads / kv_heads * rows, head_dim)`` and ``(..., kv_heads, head_dim,
        keys)``: the query heads of a group share one matrix product, so grouped key heads are not
        repeated.
    """
    query = query.float() * _scaling(call)
    # query heads h with the same h // groups stand together, so a group is one block of rows
    rows = query.shape[-3] // key.shape[-3] * query.shape[-2]
    stacked = query.reshape(*key.shape[:-2], rows, query.shape[-1])
    return stacked, key.float().transpose(-1, -2)


def capped_and_biased(
    call: AttentionCall, logits: torch.Tensor, *biases: torch.Tensor | None
) -> torch.Tensor:
    """Return the logits after the soft cap and what is added to them; as they are without any.

    The order is that of every eager implementation: scale, soft-cap, then the biases.
    Differentiable, nothing is changed in place.
    """
    softcap = call.options.get("softcap")
    if softcap is not None:
        logits = (logits / softcap).tanh() * softcap
    for bias in biases:
        if bias is not None:
            logits = logits + bias.to(logits.device).float()
    return logits


def learned_sink(call: AttentionCall) -> torch.Tensor | None:
    """Return the learned sink logits ``(heads,)`` in float32, or ``None``."""
    sink = call.options.get("s_aux")
    if sink is None:
        sink = getattr(call.module, "sinks", None)
    return None if sink is None else sink.detach().reshape(-1).float().cpu()


def row_output(
    call: AttentionCall,
    item: int,
    start: int,
    stop: int,
    seen: Visibility,
    logits: torch.Tensor,
    sink: torch.Tensor | None,
) -> torch.Tensor:
    """Return ``(rows, heads, head_dim)``: what these logits say the attention's output is."""
    import torch

    scores = logits.masked_fill(~seen.visible.cpu(), -torch.inf)
    if sink is not None:
        column = sink.view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1)[..., : logits.shape[-1]]
    value = call.value[item, :, start:stop].float().cpu()
    groups = logits.shape[0] // value.shape[0]
    n_rows = logits.shape[1]
    weights = weights.reshape(value.shape[0], groups * n_rows, -1)
    with torch.autocast("cpu", enabled=False):
        output = (weights @ value).view(value.shape[0] * groups, n_rows, -1)
    return output.transpose(0, 1)


def _scaling(call: AttentionCall) -> float | torch.Tensor:
    scaling: Any = call.options.get("scaling")
    return call.query.shape[-1] ** -0.5 if scaling is None else scaling


def _unmasked(
    call: AttentionCall, item: int, queries: torch.Tensor, start: int, stop: int
) -> torch.Tensor:
    """Visible keys where causality is a flag of the kernel, not a mask."""
    import torch

    keys = torch.arange(start, stop, device=queries.device)
    visible = torch.ones(len(queries), len(keys), dtype=torch.bool, device=queries.device)
    causal = call.options.get("is_causal")
    if causal is None:
        causal = getattr(call.module, "is_causal", True)
    # an eager function knows no flag: without a mask it sees everything
    causal = causal and call.implementation != "eager" and call.query.shape[2] > 1
    behind = queries[:, None] - keys
    if causal:
        visible &= behind >= 0
    window = call.options.get("sliding_window")
    if window is not None and "flash" in call.implementation:
        # the kernels see window - 1 keys on either side, and the query's own position
        visible &= behind.abs() < window
    if call.mask is not None:
        visible &= call.mask[item, start:stop].bool()
    return visible


def _without_head_axis(visible: torch.Tensor) -> torch.Tensor:
    return visible[0] if visible.shape[0] == 1 else visible
