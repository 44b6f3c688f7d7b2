"""Held-out documents under one exchange of patterns after another, each kept as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sinkwise.runs.point_store import PointStore, evaluation_protocol, kept_results
from sinkwise.studies.audit import Audit
from sinkwise.studies.exchange_records import ExchangePoint
from sinkwise.studies.exchanged_pairs import Pair

__all__ = ["Exchanges"]


class Exchanges:
    """What a model gives on held-out documents while its heads exchange patterns.

    Parameters
    ----------
    model, processor, eval_texts, max_length
        As for :class:`~sinkwise.surgery.evaluation.Evaluation`.
    sink
        That a split exchange leaves to the borrower.
    calibration
        The audit whose heads the pairs are numbers of.
    folder
        The run's folder; its ``points/interchange`` keeps every result as soon as it is there.

    Attributes
    ----------
    measure, dense, card
        What the model is judged by, the dense model's records, and the protocol.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        eval_texts: Sequence[Any],
        max_length: int | None,
        sink: Any,
        calibration: Audit,
        folder: Path | None,
    ) -> None:
        from sinkwise.surgery.attention_order import attention_order
        from sinkwise.surgery.evaluation import Evaluation

        self._model = model
        self._order = attention_order(model)
        self._heads = calibration.heads
        self._sink = sink
        self._evaluation = Evaluation(model, processor, eval_texts, max_length=max_length)
        self.measure = self._evaluation.metric
        self.dense = [result.record() for result in self._evaluation.dense]
        self.card = self._evaluation.card()
        protocol = evaluation_protocol(self.card, eval_texts, calibration.card())
        points = None if folder is None else folder / "points" / "interchange"
        self._store = PointStore(points, protocol)

    def point(self, planned: ExchangePoint) -> ExchangePoint:
        """Return a planned point with what it gave."""
        documents, agreement = self._measured(planned.mode, planned.pairs)
        return replace(planned, documents=documents, top1_agreement=agreement)

    def single(self, mode: str, pair: Pair) -> list[dict[str, Any]]:
        """Return what one pair gave."""
        return self._measured(mode, (pair,))[0]

    def _measured(
        self, mode: str, pairs: Sequence[Pair]
    ) -> tuple[list[dict[str, Any]], float | None]:
        lent = {self._heads[borrower]: self._heads[donor] for borrower, donor in sorted(pairs)}
        named = [[[b.layer, b.index], [d.layer, d.index]] for b, d in lent.items()]
        # whole rows don't hang on the sink
        kept = {} if mode == "whole" else {"sink": self._sink}
        intervention = {"kind": "interchange", "mode": mode, **kept, "pairs": named}

        def evaluate() -> dict[str, Any]:
            from sinkwise.surgery.interchange import exchanging

            with exchanging(self._model, self._order, lent, mode=mode, **kept):
                return kept_results(self._evaluation.measure())

        found = self._store.point(intervention, evaluate)
        return found["documents"], found["top1_agreement"]
