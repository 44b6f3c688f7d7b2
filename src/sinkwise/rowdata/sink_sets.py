"""Sink sets by name, and the sink that a document's own rows show.

A *found* sink is the key that takes the most attention, with every other key that is a sink for
a fair share of the heads.  It is chosen from the rows it is then used on; that is stated wherever
it is shown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata.block import RowBlock
from sinkwise.rowdata.softmax import visible_softmax

__all__ = [
    "FOUND_HEADS",
    "FOUND_MASS",
    "SEEN_BY",
    "SINK_SETS",
    "column_mass",
    "found_columns",
    "with_sink_set",
]

SINK_SETS = ("first", "first4", "bos", "found")
"""Sink sets with a name of their own."""

FOUND_MASS = 0.1
"""Mean weight from which a key counts as a head's sink, and the share of heads that must agree.

Held against massive activations, evidence that attention has no part in: on SmolLM2 it finds 29 of
41 secondary sinks (occurrences of one word, at other places in every document) and no false one;
on MiniLM and DINOv2-S, which have none, nothing but the class token.
"""

FOUND_HEADS = 0.1
_EVEN_SHARES = 4
_FEWEST_HEADS = 2  # one head's favourite key is its habit, not the model's sink

SEEN_BY = 0.5
"""Share of the rows that must see a key: a late one is seen by the few queries behind it alone."""


def column_mass(log_weights: np.ndarray, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean weight of every key over the rows that see it, and by how many it is seen.

    Parameters
    ----------
    log_weights
        ``(heads, rows, keys)``, unnormalised.
    support
        bool ``(rows, keys)`` or ``(heads, rows, keys)``.

    Returns
    -------
    mass
        float64 ``(heads, keys)``; NaN for a key that no row sees.
    seen
        float64 ``(keys,)``: share of the rows that see the key, averaged over heads.

    Notes
    -----
    O(heads · rows · keys), a head at a time.
    """
    n_heads, n_rows, n_keys = log_weights.shape
    mass = np.full((n_heads, n_keys), np.nan)
    seen = np.zeros(n_keys)
    for head in range(n_heads):
        visible = support[head] if support.ndim == 3 else support
        weights = visible_softmax(log_weights[head], visible)
        rows = visible.sum(0)
        np.divide(weights.sum(0), rows, out=mass[head], where=rows > 0)
        seen += rows
    return mass, seen / max(1, n_heads * n_rows)


def found_columns(mass: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Mark the keys that are sinks, bool ``(keys,)``, from :func:`column_mass`.

    Among the keys that at least half of the rows see: the one with the largest mean weight over
    heads, and every one with a mean weight above 0.1 (and four times an even share of the keys)
    in at least 10 % of the heads (and two heads).  No key is marked where no key is seen by half
    of the rows.

    Examples
    --------
    >>> mass = np.full((4, 50), 0.005)
    >>> mass[:, 0], mass[2:, 7], mass[0, 9] = 0.3, 0.2, 0.4
    >>> np.flatnonzero(found_columns(mass, np.ones(50))).tolist()  # one head alone has key 9
    [0, 7]
    """
    candidate = (seen >= SEEN_BY) & np.isfinite(mass).any(0)
    if not candidate.any():
        return np.zeros(len(seen), dtype=bool)
    known = np.where(np.isfinite(mass), mass, 0.0)
    heads = (known > max(FOUND_MASS, _EVEN_SHARES / len(seen))).sum(0)
    marked = candidate & (heads >= max(_FEWEST_HEADS, FOUND_HEADS * len(known)))
    marked[np.where(candidate, known.mean(0), -1.0).argmax()] = True
    return marked


def with_sink_set(block: RowBlock, name: str) -> RowBlock | None:
    """Return the same rows under another sink set; a virtual sink stays part of it.

    Parameters
    ----------
    block
        Rows of one document.
    name
        ``"first"`` (position 0), ``"first4"`` (positions 0 to 3), ``"bos"`` (the tokenizer's
        beginning tokens, wherever they stand) or ``"found"``.

    Returns
    -------
    RowBlock or None
        None where the document has no such key.
    """
    positions = block.key_positions
    if name == "first":
        keys = positions == 0
    elif name == "first4":
        keys = (positions >= 0) & (positions < 4)
    elif name == "bos":
        bos = None if block.keys is None else block.keys.bos
        keys = np.zeros(block.n_keys, dtype=bool) if bos is None else bos
    elif name == "found":
        mass, seen = column_mass(block.log_weights, block.support)
        real = positions >= 0
        keys = np.zeros(block.n_keys, dtype=bool)
        keys[real] = found_columns(mass[:, real], seen[real])
    else:
        raise RowError(f"no sink set is called {name!r}; there are {', '.join(SINK_SETS)}")
    if not keys.any():
        return None
    if block.virtual:
        keys = keys.copy()
        keys[-1] = True
    return replace(block, sink=np.broadcast_to(keys, block.sink.shape))
