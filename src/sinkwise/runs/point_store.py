"""Evaluated points, each a file of its own: what is done stays done.

A point is what a model gave on the held-out documents under one intervention; its file is named
by the intervention, so two scores that choose the same heads share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkwise.errors import RunError
from sinkwise.runs.begin import refuse_other_settings
from sinkwise.runs.files import read_json, write_json
from sinkwise.runs.model_source import documents_digest
from sinkwise.studies.jsonable import jsonable

if TYPE_CHECKING:
    from sinkwise.surgery.evaluation import DocumentResult

__all__ = ["PointStore", "evaluation_protocol", "kept_results"]


class PointStore:
    """The points of one evaluation, in a folder or in memory.

    Parameters
    ----------
    folder
        Where to keep them; ``None`` for memory.
    protocol
        What makes points comparable: documents, lengths, model.  A folder whose points were
        evaluated otherwise is refused.

    Raises
    ------
    RunError
        If the folder's points are of another protocol; the message names the difference.
    """

    def __init__(self, folder: Path | None, protocol: Mapping[str, Any]) -> None:
        self._folder = folder
        self._memory: dict[str, Any] = {}
        if folder is None:
            return
        path = folder / "protocol.json"
        if not path.exists():
            write_json(path, dict(protocol))
            return
        refuse_other_settings(
            read_json(path),
            protocol,
            begun=f"{folder} holds points evaluated",
            others="on other held-out documents",
            why="they can't be compared",
        )

    def point(
        self, intervention: Mapping[str, Any], evaluate: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the point of an intervention, evaluated if it wasn't yet, and kept at once."""
        name = _name(intervention)
        if self._folder is None:
            if name not in self._memory:
                self._memory[name] = evaluate()
            return dict(self._memory[name])
        path = self._folder / f"{name}.json"
        if not path.exists():
            write_json(path, {"intervention": dict(intervention), "result": evaluate()})
        found = _read(path)
        if found.get("intervention") != json.loads(json.dumps(dict(intervention))):
            raise RunError(
                f"{path} holds the point of another intervention: remove it and go on with "
                "resume=True (--resume)"
            )
        return dict(found["result"])


def evaluation_protocol(
    card: Mapping[str, Any], eval_texts: Sequence[Any], calibration: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what makes points comparable: how it was evaluated, on what, and which weights.

    Parameters
    ----------
    card
        Of the evaluation.
    eval_texts
        The held-out documents.
    calibration
        Card of the calibration's audit, which knows the weights.
    """
    return {
        **card,
        "documents_sha256": documents_digest(eval_texts),
        "weights_fingerprint": calibration.get("weights_fingerprint"),
    }


def kept_results(results: Sequence[DocumentResult]) -> dict[str, Any]:
    """Return what a point keeps of an evaluation; ``None`` for what isn't finite.

    ``documents``, one record each, and ``top1_agreement``, the share of tokens whose most likely
    label is the dense model's (``None`` for states, which have no labels).
    """
    agreed = [result.agreement for result in results if result.agreement is not None]
    tokens = sum(result.tokens for result in results)
    found: dict[str, Any] = jsonable(
        {
            "documents": [result.record() for result in results],
            "top1_agreement": sum(agreed) / tokens if len(agreed) == len(results) else None,
        }
    )
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
        if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
            raise RunError("it holds no result")
    except RunError as error:
        raise RunError(
            f"{path} is damaged: remove this one file and go on with resume=True (--resume); its "
            "point is evaluated anew"
        ) from error
    return found


def _name(intervention: Mapping[str, Any]) -> str:
    text = json.dumps(dict(intervention), sort_keys=True)
    return "point-" + hashlib.sha256(text.encode()).hexdigest()[:16]
