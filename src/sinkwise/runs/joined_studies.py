"""What a folder's finished study holds beyond what is asked for now: it stays in the study.

A run that goes on may ask for less than the one before it: fewer scores, shares or metrics.  What
was evaluated then is of the same documents and settings, so both belong to one study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sinkwise.errors import RunError
from sinkwise.runs.files import read_json
from sinkwise.studies.head_scores import SCORES
from sinkwise.studies.interchange import RANDOM, InterchangeStudy
from sinkwise.studies.jsonable import jsonable
from sinkwise.studies.prune_study import PruneStudy

__all__ = ["joined_interchange", "joined_prune", "kept_study", "refuse_other_tokens"]

_POINT = ("score", "operation", "scope", "sparsity", "seed")


class _Read(Protocol):
    @property
    def dense(self) -> Any: ...


_Study = TypeVar("_Study", bound=_Read)


def kept_study(path: Path, read: Callable[[Any], _Study]) -> _Study | None:
    """Return the study that a file holds; None where there is no file.

    Raises
    ------
    RunError
        If the file can't be read: nobody knows then what belongs to the study.
    """
    if not path.is_file():
        return None
    try:
        return read(read_json(path))
    except RunError as error:
        raise RunError(
            f"{path} is damaged, or of another version of sinkwise: remove it and go on with "
            "resume=True (--resume), and ask for all that the study is to hold; evaluated points "
            "are kept in points/ and not evaluated again"
        ) from error


def refuse_other_tokens(kept: PruneStudy | None, scores: Iterable[str], tokens: int) -> None:
    """Refuse heads judged alone on other tokens than those of the study in the folder.

    Raises
    ------
    RunError
        If both hold a score that switches off each head alone, on other numbers of tokens.
    """
    before = None if kept is None else kept.card.get("leave_one_out_tokens")
    both = kept is not None and _judges_alone(kept) and any(map(_alone, scores))
    if both and before != tokens:
        raise RunError(
            f"the study in the folder judged each head alone on leave_one_out_tokens={before}, now "
            f"it is {tokens}: the two can't stand in one study. Use the same number "
            f"(--leave-one-out-tokens {before}) or another folder (--out)"
        )


def joined_prune(kept: PruneStudy | None, now: PruneStudy) -> PruneStudy:
    """Return `now` with the points of `kept` that it lacks.

    The scores of `now` come first; cells by their shares.

    Raises
    ------
    RunError
        If the dense models of the two differ.
    """
    if kept is None:
        return now
    _require_one_dense(kept.metric, kept.dense, now.metric, now.dense, "prune.json")
    there = {tuple(record[name] for name in _POINT) for record in now.records}
    further = [r for r in kept.records if tuple(r[name] for name in _POINT) not in there]
    if not further:
        return now
    records = [*now.records, *further]
    asked = {score["name"] for score in now.scores}
    scores = [*now.scores, *(score for score in kept.scores if score["name"] not in asked)]
    operations, scopes = (_ranks(r[name] for r in records) for name in ("operation", "scope"))
    ranks = _ranks(score["name"] for score in scores)
    records.sort(
        key=lambda r: (
            operations[r["operation"]],
            scopes[r["scope"]],
            r["sparsity"],
            ranks[r["score"]],
            -1 if r["seed"] is None else r["seed"],
        )
    )
    card = dict(now.card)
    if _judges_alone(kept) and not _judges_alone(now):
        card["leave_one_out_tokens"] = kept.card.get("leave_one_out_tokens")
    return PruneStudy.from_points(
        dense={"metric": now.metric, "documents": now.dense},
        points=records,
        scores=scores,
        card=card,
        predicted=now.predicted,
        seed=now.seed,
        versions=now.versions,
        level=now.level,
    )


def joined_interchange(kept: InterchangeStudy | None, now: InterchangeStudy) -> InterchangeStudy:
    """Return `now` with the points of `kept` that it lacks; single pairs are those of `now`.

    The metrics of `now` come first, random pairs last.

    Raises
    ------
    RunError
        If the dense models of the two differ.
    """
    if kept is None:
        return now
    _require_one_dense(kept.measure, kept.dense, now.measure, now.dense, "interchange.json")
    there = {(p.metric, p.mode, p.scope, p.share, p.seed) for p in now.points}
    further = [p for p in kept.points if (p.metric, p.mode, p.scope, p.share, p.seed) not in there]
    if not further:
        return now
    points = [*now.points, *further]
    metrics = _ranks([*(p.metric for p in points if p.metric != RANDOM), RANDOM])
    scopes, modes = _ranks(p.scope for p in points), _ranks(p.mode for p in points)
    points.sort(
        key=lambda p: (
            metrics[p.metric],
            -1 if p.seed is None else p.seed,
            scopes[p.scope],
            p.share,
            modes[p.mode],
        )
    )
    return replace(now, points=tuple(points))


def _ranks(values: Iterable[str]) -> dict[str, int]:
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def _alone(score: str) -> bool:
    return score in SCORES and "leave_one_out" in SCORES[score].needs


def _judges_alone(study: PruneStudy) -> bool:
    return any(_alone(score["name"]) for score in study.scores)


def _require_one_dense(
    measure: str, dense: Iterable[Mapping[str, Any]], measure_now: str, now: Any, file: str
) -> None:
    if measure != measure_now or jsonable(list(dense)) != jsonable(list(now)):
        raise RunError(
            f"{file} in the folder holds another dense model, or other held-out documents: what "
            "was evaluated then can't be compared with what is asked now. Use another folder "
            f"(--out), or remove {file}"
        )
