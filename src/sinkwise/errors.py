"""Errors that say what arrived, what was expected and what to type next."""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "InputTypeError",
    "MemoryBudgetError",
    "MissingExtraError",
    "RowError",
    "RunError",
    "SinkwiseError",
]


class SinkwiseError(Exception):
    """Base of every error that sinkwise raises on purpose."""


class RowError(SinkwiseError, ValueError):
    """Rows or arguments that are not what a function of attention rows can use."""


class InputTypeError(SinkwiseError, TypeError):
    """An object of a kind that sinkwise cannot read."""


class CaptureError(SinkwiseError, RuntimeError):
    """A model from which attention rows cannot be captured faithfully."""


class MemoryBudgetError(SinkwiseError, MemoryError):
    """A request refused before allocation, with the number of bytes it would need."""


class MissingExtraError(SinkwiseError, ImportError):
    """An optional dependency is absent; the message holds the line that installs it."""


class RunError(SinkwiseError, RuntimeError):
    """A run folder that cannot be read, resumed or compared."""
