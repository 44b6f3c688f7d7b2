"""Results as what JSON holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["jsonable"]


def jsonable(value: Any) -> Any:
    """Return `value` without NumPy numbers; NaN as None, a table as a list of records.

    Examples
    --------
    >>> jsonable({"rate": np.float64("nan"), "sizes": (np.int64(3), 2)})
    {'rate': None, 'sizes': [3, 2]}
    """
    if isinstance(value, pd.DataFrame):
        return [jsonable(record) for record in value.to_dict("records")]
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
