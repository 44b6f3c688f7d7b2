"""Sums over the processes of a distributed run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["summed_over_processes"]


def summed_over_processes(
    vector: np.ndarray, device: torch.device, group: Any = None
) -> np.ndarray:
    """Return the sum of a float64 vector over all processes; the vector itself in a single one.

    Every process has to call it.  Sums and counts travel together in one exchange, counts as
    floats: a mean of the processes' means would weigh a process with few rows like one with many.

    Parameters
    ----------
    vector
        ``(n,)``, of one length everywhere.
    device
        Where the process group can exchange tensors: that of the model.
    group
        A process group of ``torch.distributed``; by default all processes.
    """
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return vector
    total = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float64)).to(device)
    torch.distributed.all_reduce(total, group=group)
    return total.cpu().numpy()
