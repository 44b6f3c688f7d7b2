"""An audit's studies of where the sinks are and what hangs on them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from sinkwise.studies.audit_base import AuditSums
from sinkwise.studies.positional import PositionalNull, positional_null
from sinkwise.studies.regime import regime, sink_dispersion
from sinkwise.studies.sink_set_table import sink_set_table
from sinkwise.studies.sinks import SinkEvidence, found_sinks

__all__ = ["SinkStudies"]


class SinkStudies(AuditSums):
    """An audit's studies of where the sinks are and what hangs on them."""

    def sinks(self) -> SinkEvidence:
        """Where the sinks are, by position, token, document and layer, whatever was declared.

        See :func:`~sinkwise.studies.sinks.found_sinks`.
        """
        return self._sinks

    def sink_sets(self) -> pd.DataFrame:
        """The same verdicts under every sink set that the rows were summed under.

        See :func:`~sinkwise.studies.sink_set_table.sink_set_table`.
        """
        return self._sink_sets.copy()

    def positional_null(self) -> PositionalNull:
        """How much of the content distances position alone explains, and what is left.

        See :func:`~sinkwise.studies.positional.positional_null`.
        """
        return self._positional_null

    def repeated_tokens(self) -> dict[str, Any] | None:
        """The control on one repeated token a document, None where it was not run.

        ``tokens``, ``length`` and ``sink_mass`` (one mean per head); see
        :func:`~sinkwise.capture.repeated_tokens.repeated_token_control`.
        """
        return None if self._control is None else dict(self._control)

    def regime(self) -> dict[str, Any] | None:
        """Whether sink masses alone warn that classical verdicts flip; None for a single head.

        See :func:`~sinkwise.studies.regime.regime`; what happened then says
        :func:`~sinkwise.studies.regime.regime_outcome`.
        """
        if len(self.heads) < 2:
            return None
        return regime(sink_dispersion(*self._store.profile("sink_mass"), level=self.level))

    @cached_property
    def _sinks(self) -> SinkEvidence:
        return found_sinks(
            self._store, self.heads, declared=self.declared_positions, level=self.level
        )

    @cached_property
    def _sink_sets(self) -> pd.DataFrame:
        return sink_set_table(self._store, len(self.heads), level=self.level, seed=self.seed)

    @cached_property
    def _positional_null(self) -> PositionalNull:
        return positional_null(self._store, self.heads, level=self.level)
