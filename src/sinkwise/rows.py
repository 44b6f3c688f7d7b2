"""Attention rows: the one place where absent keys, rounding zeros and the sink set are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["HeadId", "RowBlock"]


@dataclass(frozen=True, order=True)
class HeadId:
    """A head's place in its model: layer number and index within the layer."""

    layer: int
    index: int

    @property
    def label(self) -> str:
        """Short name, for example ``"L3H5"``."""
        return f"L{self.layer}H{self.index}"


@dataclass(frozen=True)
class RowBlock:
    """Rows of one document: every head on the same queries, one composition per row."""

    document: int
    log_weights: np.ndarray
    support: np.ndarray
    sink: np.ndarray
    queries: np.ndarray
    excluded: Mapping[str, int] = field(default_factory=dict)
