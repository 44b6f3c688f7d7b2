"""Plain tables for a terminal: aligned columns, numbers to three places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["cell", "text_table"]


def text_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return aligned columns under their heads, numbers to the right."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        for i in range(len(head))
    ]
    return "\n".join(
        "  ".join(
            word.rjust(width) if to_right else word.ljust(width)
            for word, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(head), *cells]
    )


def cell(value: Any) -> str:
    """Return a value as a table shows it; a dash where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.1e}"
    return str(value)
