"""Any JSON-like value, such as the convention card, as nested entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sinkwise.report.section import Entries, Table
from sinkwise.report.wording import MISSING, plain

__all__ = ["entries"]


def entries(value: Mapping[str, Any]) -> Entries:
    """Return a mapping as entries; an inner list of mappings becomes a table.

    Examples
    --------
    >>> entries({"sink": {"rule": "first"}, "seed": 0}).entries[1]
    ('seed', '0')
    """
    return Entries(tuple((_words(key), entry(inner, _words(key))) for key, inner in value.items()))


def entry(value: Any, caption: str) -> str | Entries | Table:
    """Return one value of the card as text, entries or a table called `caption`."""
    if isinstance(value, Mapping):
        return entries(value) if value else "none"
    if _is_records(value):
        head = list(dict.fromkeys(key for record in value for key in record))
        rows = [
            tuple(MISSING if record.get(k) is None else plain(record[k]) for k in head)
            for record in value
        ]
        return Table(caption, tuple(_words(k) for k in head), tuple(rows))
    return plain(value)


def _is_records(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(v, Mapping) for v in value)
    )


def _words(key: Any) -> str:
    return str(key).replace("_", " ")
