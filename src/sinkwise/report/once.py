"""An audit that answers each question once while a page is made."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["computed_once"]


def computed_once(audit: Audit) -> Audit:
    """Return `audit` with a memory: a method called again gives its first answer again.

    Several sections read the same tables, and an audit computes some of them at every call.
    What is remembered is shared, so sections must not change it.
    """
    return audit if isinstance(audit, _Remembering) else cast("Audit", _Remembering(audit))


class _Remembering:
    """Stands for the audit; looks each attribute up once."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._audit, name)
        if callable(value):
            value = cache(value)
        setattr(self, name, value)  # the next look-up does not come here
        return value
