"""Everything that scores read, measured once and kept beside the audit it belongs to.

In the folder of a run: the audit of the calibration documents, and in its ``calibration/``
``outputs.npz`` (what heads write,
and gradients), ``leave_one_out_N.npz`` and ``distances.npz`` (the distances an audit doesn't keep).
Each is written whole, so an interrupted calibration goes on with what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sinkwise.accumulate.head_outputs import GateGradients, HeadOutputs
from sinkwise.rowdata import HeadId, RowSource
from sinkwise.runs.array_file import read_arrays, write_arrays
from sinkwise.runs.audit import audit
from sinkwise.runs.pattern_distances import pattern_distances
from sinkwise.studies.audit import Audit
from sinkwise.studies.head_scores import Evidence, Score, distances_of

__all__ = ["Calibration", "calibrate", "calibration_steps"]

_ARRAYS = ("gram", "constant_gram", "relative_norm", "norm", "mean_output")
_MOMENTS = ("token_fisher", "document_fisher", "importance")


@dataclass(frozen=True)
class Calibration:
    """A model's heads on the calibration documents.

    Attributes
    ----------
    audit
        Profiles and distances.
    evidence
        The same with what heads write, as the scores read it.
    """

    audit: Audit
    evidence: Evidence


def calibrate(
    model: Any,
    processor: Any,
    texts: Sequence[Any],
    scores: Sequence[Score],
    *,
    audit_options: Mapping[str, Any],
    leave_one_out_tokens: int,
    out: Path | None,
    resume: bool,
    progress: Callable[[int], None],
) -> Calibration:
    """Measure whatever `scores` need, each kind once, or read it from `out`.

    Parameters
    ----------
    model, processor, texts
        As for :func:`sinkwise.audit`.
    scores
        What is to be chosen by.
    audit_options
        Keywords of :func:`sinkwise.audit`: sink, queries, max_length, documents, seed ...
    leave_one_out_tokens
        Tokens for scores that switch off each head alone.
    out, resume
        The run's folder, and whether it may hold a part of the run already.
    progress
        Called with the number of steps done since the last call.

    Raises
    ------
    RunError
        If `out` holds another run, or a damaged file.
    """
    from sinkwise.surgery.head_outputs import head_outputs
    from sinkwise.surgery.leave_one_out import leave_one_out

    found = audit(
        model,
        processor,
        texts,
        out=out,
        resume=resume,
        progress=_Advance(progress),
        **audit_options,
    )
    options = {name: audit_options[name] for name in ("max_length", "documents")}
    kept = _KeptArrays(out)
    arrays = kept.arrays(
        "outputs",
        lambda: _packed(
            head_outputs(
                model,
                processor,
                texts,
                seed=audit_options["seed"],
                progress=_Advance(progress),
                **options,
            )
        ),
    )
    outputs = _unpacked(arrays, found.heads)
    if _asks(scores, "leave_one_out"):
        some = list(texts)[: options["documents"]]
        alone = kept.arrays(
            f"leave_one_out_{leave_one_out_tokens}",
            lambda: {
                "damage": leave_one_out(
                    model,
                    processor,
                    some,
                    tokens=leave_one_out_tokens,
                    progress=_Advance(progress),
                )
            },
        )
        outputs = replace(outputs, leave_one_out=alone["damage"])

    def rows() -> RowSource:
        from sinkwise.capture.source import ModelRows

        given = {name: audit_options[name] for name in ("sink", "queries", "seed")}
        return ModelRows(model, processor, texts, **given, **options)

    distances = pattern_distances(found, distances_of(scores), rows, folder=out)
    return Calibration(found, Evidence.of_audit(found, outputs, distances))


def calibration_steps(scores: Sequence[Score], documents: int, heads: int) -> int:
    """Return how many steps a calibration reports: two a document, and one a head left out."""
    return 2 * documents + (heads if _asks(scores, "leave_one_out") else 0)


def _asks(scores: Sequence[Score], need: str) -> bool:
    return any(need in score.needs for score in scores)


class _Advance:
    """Progress of one part, ``(done, total)``, as steps of the whole."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        self._progress(done - self._done)
        self._done = done


class _KeptArrays:
    """Named arrays that are computed once and read from the run's folder afterwards."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def arrays(
        self, name: str, compute: Callable[[], Mapping[str, np.ndarray]]
    ) -> Mapping[str, np.ndarray]:
        if self._folder is None:
            return compute()
        path = self._folder / "calibration" / f"{name}.npz"
        if not path.exists():
            write_arrays(path, compute())
        return read_arrays(path)


def _packed(outputs: HeadOutputs) -> dict[str, np.ndarray]:
    arrays = {name: getattr(outputs, name) for name in _ARRAYS}
    arrays["objective"] = np.array(outputs.objective)
    for label, gradients in outputs.gradients.items():
        for moment in _MOMENTS:
            arrays[f"gradients/{label}/{moment}"] = getattr(gradients, moment)
    return arrays


def _unpacked(arrays: Mapping[str, np.ndarray], heads: tuple[HeadId, ...]) -> HeadOutputs:
    labels = sorted({name.split("/")[1] for name in arrays if name.startswith("gradients/")})
    return HeadOutputs(
        heads=heads,
        **{name: arrays[name] for name in _ARRAYS},
        gradients={
            label: GateGradients(*(arrays[f"gradients/{label}/{moment}"] for moment in _MOMENTS))
            for label in labels
        },
        objective=str(arrays["objective"]),
    )
