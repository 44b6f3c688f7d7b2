"""The sections of the report, one module each with a function ``section(audit)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, cast

from sinkwise.errors import MissingExtraError
from sinkwise.report.section import Section

if TYPE_CHECKING:
    from sinkwise.studies.audit import Audit

__all__ = ["ORDER", "make_sections", "maker"]

ORDER = (
    "headline",
    "sink_mass",
    "sinks_found",
    "reversals",
    "worst_pairs",
    "distances",
    "channels",
    "bands",
    "taxonomy",
    "removal",
    "interchange",
    "head_maps",
    "position",
    "sink_sets",
    "regime",
    "zero_rule",
    "card",
    "guide",
)
"""Modules of this package in the order of the page."""


def maker(name: str) -> Callable[[Audit], Section | None]:
    """Return the function that makes the section `name`; None from it: it does not apply."""
    module = import_module(f"{__name__}.{name}")
    return cast("Callable[[Audit], Section | None]", module.section)


def make_sections(audit: Audit) -> Iterator[Section]:
    """Yield the sections that apply to `audit`, in the order of the page.

    Raises
    ------
    RuntimeError
        If a section can't be made; it names the section.
    MissingExtraError
        As it came.
    """
    for name in ORDER:
        try:
            made = maker(name)(audit)
        except MissingExtraError:
            raise
        except Exception as error:
            raise RuntimeError(
                f"the section {name!r} of the report could not be made: {error}"
            ) from error
        if made is not None:
            yield made
