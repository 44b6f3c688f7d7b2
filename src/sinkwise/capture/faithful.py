"""Hold captured rows against the output that the attention itself gave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sinkwise.capture.logits import Visibility, learned_sink, row_output, write_logits
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

    from sinkwise.capture.interface import AttentionCall

__all__ = [
    "cause_of_non_finite",
    "refuse_unfaithful",
    "told_output",
    "too_far_off",
    "working_dtype",
]


def working_dtype(call: AttentionCall) -> torch.dtype:
    """Return the coarsest dtype that an attention call goes through, asked while it is heard.

    Under autocast it can be coarser than that of the queries: a bfloat16 projection times rotary
    cosines in float32 is float32, and the attention kernel rounds it again.
    """
    import torch

    dtypes = [tensor.dtype for tensor in (call.query, call.key, call.value, call.output)]
    device = call.query.device.type
    if torch.is_autocast_enabled(device):
        dtypes.append(torch.get_autocast_dtype(device))
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


def cause_of_non_finite(model: torch.nn.Module, dtype: torch.dtype) -> str:
    """Say, in sentences, what made an attention in `dtype` not finite and what to type."""
    import torch

    kind = type(model).__name__
    held = [
        (name, weight)
        for name, weight in model.named_parameters()
        if not weight.is_meta and weight.dtype.itemsize > 1  # packed weights can't be asked
    ]
    bad = [name for name, weight in held if not bool(torch.isfinite(weight).all())]
    found = (
        f"{len(bad)} of {len(held)} parameters of {kind} hold values that aren't finite, first "
        f"{bad[0]}"
        if bad
        else f"every parameter of {kind} is finite"
    )
    if dtype == torch.float16:
        advice = (
            "attention works in float16, which overflows above 65504: load the model with dtype="
            '"float32" or dtype="bfloat16", outside float16 autocast, and capture again'
        )
    elif bad:
        advice = "load a checkpoint from before its training broke"
    else:
        advice = (
            f"so inputs that aren't, or weights too large for {str(dtype).removeprefix('torch.')}, "
            "made it so: look at both"
        )
    return f"{found}; {advice}"


def too_far_off(
    call: AttentionCall, told: torch.Tensor, output: torch.Tensor, value: torch.Tensor
) -> str:
    """Say how far `told` is from the attention's own `output`; nothing where rounding explains it.

    Relative to the largest `value`.  float32 kernels differ in the order of their sums;
    half-precision ones round the logits themselves, by up to 6 % of a weight at logits near 27.
    """
    import torch

    scale = float(value.float().abs().amax()) or 1.0
    error = float((told - output).abs().amax()) / scale
    tolerance = 1e-3 if torch.finfo(working_dtype(call)).bits >= 32 else 0.25
    if error <= tolerance:  # NaN isn't
        return ""
    return f"off by {error:.2g} of the largest value, expected below {tolerance:g}"


def told_output(
    call: AttentionCall,
    item: int,
    queries: torch.Tensor,
    start: int,
    stop: int,
    seen: Visibility,
    logits: torch.Tensor,
) -> torch.Tensor:
    """Return ``(rows, heads, head_dim)`` on the CPU: what rows say the attention's output is.

    Where the attention rounded its queries and keys before it multiplied them, the logits are
    made again from rounded ones: at logits in the hundreds, rounding alone moves the weights.

    Parameters
    ----------
    queries
        ``(rows,)`` positions in the padded batch.
    seen
        What they see.
    logits
        Their float32 logits ``(heads, rows, keys)``.
    """
    import torch

    dtype = working_dtype(call)
    if not call.query.dtype == call.key.dtype == dtype:
        rounded = replace(call, query=call.query.to(dtype), key=call.key.to(dtype))
        logits = torch.empty(logits.shape, dtype=torch.float32, device=call.query.device)
        write_logits(rounded, item, queries, start, stop, seen, logits)
    return row_output(call, item, start, stop, seen, logits.cpu(), learned_sink(call))


def refuse_unfaithful(
    call: AttentionCall,
    layer: int,
    told: torch.Tensor,
    output: torch.Tensor,
    value: torch.Tensor,
) -> None:
    """Raise unless what the rows say an attention's output is, `told`, is what it was.

    Raises
    ------
    CaptureError
        If they differ by more than rounding, relative to the largest `value`.
    """
    off = too_far_off(call, told, output, value)
    if off:
        raise CaptureError(
            f"layer {layer} ({type(call.module).__name__}): the captured rows don't give the "
            f"attention's own output ({off}). The model changes its logits in a way that "
            "transformers' attention interface doesn't say, so its rows can't be captured "
            "faithfully"
        )
