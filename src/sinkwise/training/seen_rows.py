"""What some rows of a whole batch see, and where each row's own document begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinkwise.capture.logits import Visibility, visibility

if TYPE_CHECKING:
    import torch

    from sinkwise.capture.interface import AttentionCall

__all__ = ["SeenRows", "see_rows"]


@dataclass(frozen=True)
class SeenRows:
    """The mask of some rows, read once for all the layers that share it.

    Attributes
    ----------
    positions
        ``(rows,)`` query positions, the same in every element of the batch.
    visible, sink
        bool ``(batch or 1, heads or 1, rows, keys)``.
    bias
        ``None``, or what the mask adds to the logits, float32, of a shape that broadcasts to
        theirs.
    """

    positions: torch.Tensor
    visible: torch.Tensor
    sink: torch.Tensor
    bias: torch.Tensor | None


def see_rows(call: AttentionCall, positions: torch.Tensor, sink: Sequence[int]) -> SeenRows:
    """Read the mask of `call` at `positions`.

    A query that doesn't see its own key is padding: its row sees nothing.  A row's document
    begins at the first key it sees, if that key's own row doesn't look further back; if it does,
    a window hides the beginning, and the row has no sink.

    Parameters
    ----------
    sink
        Positions in the row's document.

    Raises
    ------
    CaptureError
        If the mask has a layout that isn't one column a key.
    """
    import torch

    one_for_all = call.mask is None or call.mask.shape[0] == 1
    items = range(1 if one_for_all else call.query.shape[0])
    n_keys = call.key.shape[2]
    looks = [visibility(call, item, positions, 0, n_keys) for item in items]
    visible = torch.stack([_with_heads(look) for look in looks])
    own = visible[:, :, torch.arange(len(positions), device=positions.device), positions]
    visible = visible & own[..., None]
    first = visible.to(torch.uint8).argmax(-1)
    begins = torch.stack([_is_beginning(call, item, first[item]) for item in items])
    keys = torch.arange(n_keys, device=positions.device)
    sinks = torch.zeros_like(visible)
    for position in sink:
        sinks |= keys == (first + position)[..., None]
    return SeenRows(positions, visible, sinks & visible & begins[..., None], _biases(looks))


def _with_heads(look: Visibility) -> torch.Tensor:
    return look.visible if look.visible.ndim == 3 else look.visible[None]


def _is_beginning(call: AttentionCall, item: int, first: torch.Tensor) -> torch.Tensor:
    """Whether each key of `first`, ``(heads or 1, rows)``, is where its own row begins."""
    import torch

    keys, place = torch.unique(first, return_inverse=True)
    rows = _with_heads(visibility(call, item, keys, 0, call.key.shape[2]))
    number = torch.arange(len(keys), device=keys.device)
    looks_back = rows[:, number, (keys - 1).clamp(min=0)] & (keys > 0)
    return ~looks_back.gather(1, place)


def _biases(looks: Sequence[Visibility]) -> torch.Tensor | None:
    import torch

    some = [look.bias for look in looks if look.bias is not None]
    if not some:
        return None
    none = torch.zeros_like(some[0])
    return torch.stack([none if look.bias is None else look.bias for look in looks])
