"""The sink set of a row: an index, a tuple of them, a mask, or a virtual column."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkwise.errors import RowError
from sinkwise.geometry.checks import row_name
from sinkwise.geometry.namespace import Array, as_mask, to_numpy

__all__ = ["NO_SINK", "VIRTUAL", "Sink", "check_sink", "has_virtual", "sink_mask"]

VIRTUAL = "virtual"
NO_SINK: Any = object()
"""For functions of whole rows, which ask for no sink."""

Sink = Any
"""``int``, tuple of ``int`` (may hold ``"virtual"``), boolean mask, or ``"virtual"``."""


def has_virtual(sink: Sink) -> bool:
    """Whether the sink set has a column that is no token."""
    if isinstance(sink, str):
        if sink != VIRTUAL:
            raise RowError(
                f'sink={sink!r}: array functions take an index, a tuple, a mask or "{VIRTUAL}"'
            )
        return True
    return isinstance(sink, tuple | list) and any(isinstance(i, str) and i == VIRTUAL for i in sink)


def sink_mask(xp: Any, x: Array, sink: Sink, *, appended: bool) -> Array:
    """Return the sink set as a mask over the keys of `x`, and over the appended column.

    A virtual column always belongs to the sink set: it is no token, so it can't be content.
    """
    n_keys = x.shape[-1]
    if sink is None:
        raise RowError("sink=None: say which key is the sink, by index, tuple or mask")
    if sink is NO_SINK or isinstance(sink, str):
        chosen = np.zeros(n_keys, dtype=bool)
    elif isinstance(sink, bool | np.bool_):
        raise RowError(f"sink={sink!r}: expected an index, a tuple of indices or a boolean mask")
    elif isinstance(sink, int | np.integer):
        chosen = _at((int(sink),), n_keys)
    elif isinstance(sink, tuple | list) and not any(isinstance(i, bool) for i in sink):
        chosen = _at(tuple(i for i in sink if not isinstance(i, str)), n_keys)
    else:
        return _given(xp, x, sink, appended)
    chosen = np.append(chosen, True) if appended else chosen
    return as_mask(xp, chosen, x)


def _at(indices: tuple[int, ...], n_keys: int) -> np.ndarray:
    mask = np.zeros(n_keys, dtype=bool)
    for i in indices:
        if not isinstance(i, int | np.integer):
            raise RowError(f"sink index {i!r} is not a whole number")
        if not -n_keys <= i < n_keys:
            raise RowError(f"sink index {i} is out of range for rows of {n_keys} keys")
        mask[i] = True
    return mask


def _given(xp: Any, x: Array, sink: Array, appended: bool) -> Array:
    name = str(getattr(sink, "dtype", "")).rsplit(".", maxsplit=1)[-1]
    if "int" in name:
        raise RowError(
            "sink is an integer array, which could mean one index a row or several for all rows; "
            "pass a tuple of indices, or a boolean mask that broadcasts to the rows"
        )
    mask = as_mask(xp, sink, x)
    if mask.ndim == 0 or mask.shape[-1] not in (1, x.shape[-1]):
        raise RowError(
            f"the sink mask has shape {tuple(mask.shape)}, which does not broadcast to the rows' "
            f"{tuple(x.shape)}"
        )
    if appended:
        mask = xp.broadcast_to(mask, (*mask.shape[:-1], x.shape[-1]))
        column = xp.ones_like(mask[..., :1])
        mask = xp.concat([mask, column], axis=-1)
    return mask


def check_sink(xp: Any, support: Array, sink: Array, need_content: bool, name: str) -> None:
    """Raise where a row's sink is hidden, or its content where that is needed."""
    seen = xp.any(support & sink, axis=-1)
    if not bool(xp.all(seen)):
        row = _first(~seen)
        raise RowError(
            f"{row_name(row)} of `{name}`: the sink is not among the keys it may see (a window or "
            "padding hides it). Leave such rows out, or name with a boolean mask the sink of "
            "each row"
        )
    content = xp.any(support & ~sink, axis=-1)
    if need_content and not bool(xp.all(content)):
        row = _first(~content)
        raise RowError(
            f"{row_name(row)} of `{name}`: only the sink is visible, so there is no content to "
            "share. Leave out the first rows of a causal map"
        )


def _first(bad: Array) -> tuple[int, ...]:
    bad = to_numpy(bad)
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
