"""An audit: what the per-document sums say about heads, distances and conventions."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from sinkwise.studies.audit_groups import GroupStudies
from sinkwise.studies.audit_reversals import ReversalStudies
from sinkwise.studies.audit_sinks import SinkStudies
from sinkwise.studies.audit_summary import audit_summary
from sinkwise.studies.interchange import InterchangeStudy
from sinkwise.studies.prune_study import PruneStudy

__all__ = ["Audit"]


class Audit(ReversalStudies, GroupStudies, SinkStudies):
    """Profiles, distances, reversals and taxonomy of a model's heads, with their conventions.

    Made by :func:`sinkwise.audit` and :func:`sinkwise.open_audit`; everything is computed from
    per-document sums when it is first asked for.  Its parameters are those of
    :class:`~sinkwise.studies.audit_base.AuditSums`.
    """

    @property
    def interchange(self) -> InterchangeStudy | None:
        """The study of exchanged patterns that lies beside this audit; None where there is none.

        See :func:`sinkwise.interchange_study`.
        """
        found = self._store.study("interchange")
        return None if found is None else InterchangeStudy.from_json(found)

    @property
    def pruning(self) -> PruneStudy | None:
        """The study of removed heads that lies beside this audit; None where there is none.

        See :func:`sinkwise.prune_study`.
        """
        found = self._store.study("prune")
        return None if found is None else PruneStudy.from_json(found)

    def summary(self) -> dict[str, Any]:
        """Return the content of ``summary.json``; NaN becomes None."""
        return audit_summary(self, self._store)

    def report(self, path: str | Path) -> Path:
        """Write the report, one self-contained HTML page, and return its path.

        Raises
        ------
        MissingExtraError
            If Plotly or Jinja2 is absent: ``pip install "sinkwise[report]"``.
        """
        # the report stands above the studies; it is looked up by name, never imported from here
        page = importlib.import_module("sinkwise.report.page")
        page.write_report(self, path)
        return Path(path)
