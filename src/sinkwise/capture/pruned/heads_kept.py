"""Which heads one attention layer keeps, and which rows of its weights are theirs.

The weights of queries, keys and values lie in one of three ways; each is declared once here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sinkwise.errors import CaptureError

__all__ = ["LAYOUTS", "HeadsKept", "positions", "value_positions"]


@dataclass(frozen=True)
class HeadsKept:
    """One attention layer before, and the query heads that stay in it.

    Attributes
    ----------
    layer
        Its number.
    attention, output
        Names of the attention module and of its output projection in the base model (without
        the prefix that a model with a head puts before).
    layout
        ``"separate"``, ``"side by side"`` or ``"per head"``.
    projections
        The attention module's own linear layers: ``(query, key, value)``, or the fused one.
    key_dim, value_dim
        Width of one head's queries and keys, and of its values.
    query_to_kv
        The key/value head that each query head reads, before.
    kept
        Indices of the query heads that stay, ascending; none for a layer without heads.
    """

    layer: int
    attention: str
    output: str
    layout: str
    projections: tuple[str, ...]
    key_dim: int
    value_dim: int
    query_to_kv: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def n_heads(self) -> int:
        """Query heads before."""
        return len(self.query_to_kv)

    @property
    def n_kv_heads(self) -> int:
        """Key/value heads before."""
        return max(self.query_to_kv) + 1

    @property
    def kept_kv(self) -> tuple[int, ...]:
        """Key/value heads that some query head still reads."""
        return tuple(sorted({self.query_to_kv[head] for head in self.kept}))

    @property
    def new_query_to_kv(self) -> tuple[int, ...]:
        """The key/value head, in the new numbering, that each kept query head reads."""
        return tuple(self.kept_kv.index(self.query_to_kv[head]) for head in self.kept)

    @property
    def group(self) -> int | None:
        """Query heads per key/value head, or ``None`` where groups are uneven."""
        size, rest = divmod(len(self.kept), len(self.kept_kv))
        even = tuple(head // size for head in range(len(self.kept))) if size else ()
        return size if not rest and self.new_query_to_kv == even else None

    def narrowed(self, kept: Iterable[int]) -> HeadsKept:
        """Return what stays when of the kept heads only some stay, by their new numbers."""
        return replace(self, kept=tuple(self.kept[head] for head in kept))

    def to_json(self) -> dict[str, Any]:
        """Return it as ``config.json`` holds it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> HeadsKept:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        CaptureError
            If entries are missing or unknown.
        """
        try:
            values = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
            read = cls(**values)
            ascending = tuple(sorted(set(read.kept))) == read.kept
            usable = (
                read.layout in LAYOUTS and ascending and set(read.kept) <= set(range(read.n_heads))
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise CaptureError(
                f"config.json says in a way that this version of sinkwise doesn't know which heads "
                f"were removed ({error}): install the version that saved the model"
            ) from error
        if not usable:
            raise CaptureError(
                f"config.json names the layout {read.layout!r} with the heads {list(read.kept)} of "
                f"{read.n_heads} in {read.attention}, expected a layout out of "
                f"{', '.join(map(repr, LAYOUTS))} and ascending heads: install the "
                "version that saved the model"
            )
        return read


def positions(heads: Iterable[int], width: int, start: int = 0) -> list[int]:
    """Return the rows of some heads in a stack of heads of one width that begins at `start`."""
    return [start + head * width + row for head in heads for row in range(width)]


def _separate(layer: HeadsKept, queries: Iterable[int], kvs: Iterable[int]) -> dict[str, list[int]]:
    query, key, value = layer.projections
    return {
        query: positions(queries, layer.key_dim),
        key: positions(kvs, layer.key_dim),
        value: positions(kvs, layer.value_dim),
    }


def _side_by_side(
    layer: HeadsKept, queries: Iterable[int], kvs: Iterable[int]
) -> dict[str, list[int]]:
    """All queries, then all keys, then all values."""
    (fused,) = layer.projections
    kvs = list(kvs)
    keys = layer.n_heads * layer.key_dim
    values = keys + layer.n_kv_heads * layer.key_dim
    return {
        fused: positions(queries, layer.key_dim)
        + positions(kvs, layer.key_dim, keys)
        + positions(kvs, layer.value_dim, values)
    }


def _per_head(layer: HeadsKept, queries: Iterable[int], kvs: Iterable[int]) -> dict[str, list[int]]:
    """Each head's query, key and value together."""
    (fused,) = layer.projections
    return {fused: positions(queries, 2 * layer.key_dim + layer.value_dim)}


LAYOUTS: Mapping[str, Callable[..., dict[str, list[int]]]] = {
    "separate": _separate,
    "side by side": _side_by_side,
    "per head": _per_head,
}
"""By name: the output rows of each projection that belong to some query and key/value heads."""


def value_positions(layer: HeadsKept) -> tuple[str, list[int]]:
    """Return which projection the values come from, and its output rows that are values."""
    if layer.layout == "separate":
        return layer.projections[2], positions(range(layer.n_kv_heads), layer.value_dim)
    (fused,) = layer.projections
    if layer.layout == "per head":
        width = 2 * layer.key_dim + layer.value_dim
        rows = [
            head * width + 2 * layer.key_dim + row
            for head in range(layer.n_heads)
            for row in range(layer.value_dim)
        ]
        return fused, rows
    start = (layer.n_heads + layer.n_kv_heads) * layer.key_dim
    return fused, positions(range(layer.n_kv_heads), layer.value_dim, start)
