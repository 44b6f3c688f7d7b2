"""Switch heads off by every score asked for, and hold each set against the dense model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.runs.calibration import Calibration, calibrate, calibration_steps
from sinkwise.runs.files import write_json
from sinkwise.runs.joined_studies import joined_prune, kept_study, refuse_other_tokens
from sinkwise.runs.model_source import refuse_shared_documents, unwrapped
from sinkwise.runs.point_store import PointStore, evaluation_protocol, kept_results
from sinkwise.runs.versions import versions
from sinkwise.studies.head_scores import (
    DEFAULT,
    Score,
    refuse_no_removal,
    removed_heads,
    score_named,
    set_energy,
)
from sinkwise.studies.jsonable import jsonable
from sinkwise.studies.prune_study import PruneStudy

if TYPE_CHECKING:
    from sinkwise.surgery.evaluation import Evaluation

__all__ = ["ALWAYS", "SCORES_BY_DEFAULT", "prune_study"]

ALWAYS = ("relative_output_norm", "michel", "flattest", "random")
"""What every study holds beside what is asked for."""

SCORES_BY_DEFAULT = (
    DEFAULT,
    "joint_output_fisher",
    "joint_output",
    "fisher_matrix",
    "relative_output_norm",
    "ahon_ln",
    "output_norm",
    "michel",
    "fisher",
    "sink_mass/most",
    "sink_mass/least",
    "flattest",
    "js_divergence/kept",
    "js_divergence/dropped",
    "cosine/kept",
    "content",
    "content_angle",
    "random",
)

FEWEST_SEEDS = 5


def prune_study(
    model: Any,
    processor: Any = None,
    texts: Sequence[Any] | None = None,
    eval_texts: Sequence[Any] | None = None,
    *,
    scores: str | Sequence[str] = SCORES_BY_DEFAULT,
    sparsity: float | Sequence[float] = (0.1, 0.2, 0.3),
    scope: str | Sequence[str] = "model",
    operation: str | Sequence[str] = "zero",
    random_seeds: int = FEWEST_SEEDS,
    leave_one_out_tokens: int = 256,
    sink: Any = "first",
    queries: int | Literal["all"] = 64,
    max_length: int | None = None,
    documents: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    model_name: str | None = None,
    revision: str | None = None,
) -> PruneStudy:
    """Choose heads by several scores, switch them off, and measure what is lost on held-out texts.

    Parameters
    ----------
    model
        A transformers model, or a :class:`~sinkwise.capture.load.LoadedModel`.
    processor
        The model's tokenizer or image processor.
    texts
        Calibration texts (or images): what the scores see.
    eval_texts
        Held-out texts (or images): what chose nothing.
    scores
        Names from :data:`sinkwise.studies.head_scores.SCORES`.  Relative output norm, Michel's
        importance, flattest first and random heads are added where they weren't asked for.
    sparsity
        Shares of the heads to switch off.
    scope
        ``"model"`` (heads anywhere; no layer is emptied), ``"layer"`` (the same number from each
        layer), or both.
    operation
        ``"zero"``, ``"mean"`` (the head's mean output on the calibration texts), or both.
    random_seeds
        How many random sets make the band, at least five.
    leave_one_out_tokens
        Tokens on which ``leave_one_out`` judges each head; one forward pass a head.
    sink, queries, max_length, documents, seed
        As for :func:`sinkwise.audit` of the calibration texts; `max_length` cuts the held-out
        texts too, and `documents` takes the first N of both.
    out
        Folder: the audit of the calibration texts, what was calibrated, every evaluated point
        as it comes, and ``prune.json``.
    resume
        Go on with the run in `out`; other scores, shares, scopes and operations may be asked for:
        the study then holds them beside those it held before.
    progress
        Called as ``progress(done, total)``.
    model_name, revision
        For the card, where the model itself doesn't say.

    Returns
    -------
    PruneStudy

    Raises
    ------
    RowError
        On a score, sparsity, scope or operation that says nothing, or held-out texts that are
        the calibration texts.
    CaptureError, InputTypeError
        If the model can't be calibrated or evaluated.
    RunError
        If `out` holds something else.

    Notes
    -----
    One calibration serves all scores.  Every set costs one forward pass over the held-out texts;
    a set that two scores choose is run once.  Heads are switched off, not removed: the removed
    model (:func:`sinkwise.remove_heads`) gives the same numbers.

    Examples
    --------
    >>> import numpy as np, sinkwise as sw
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=8, vocab_size=11))
    >>> ids = np.random.default_rng(0).integers(0, 11, size=(6, 12))
    >>> study = sw.prune_study(model, None, ids[:3], ids[3:], scores="joint_output", sparsity=0.25)
    >>> study.points.query("score == 'joint_output'").removed.str.len().tolist()
    [2]
    """
    model, processor, named = unwrapped(model, processor)
    chosen = _scores(scores)
    plans = _Plans(
        _listed("sparsity", sparsity), _listed("scope", scope), _listed("operation", operation)
    )
    if random_seeds < FEWEST_SEEDS:
        raise RowError(
            f"random_seeds={random_seeds} arrived, expected at least {FEWEST_SEEDS}: a band of "
            "fewer random sets says nothing"
        )
    texts, eval_texts = _checked_texts(texts, eval_texts, documents)
    folder = None if out is None else Path(out)
    kept = None
    if folder is not None and resume:
        kept = kept_study(folder / "prune.json", PruneStudy.from_json)
        refuse_other_tokens(kept, [score.name for score in chosen], leave_one_out_tokens)
    from sinkwise.surgery.evaluation import Evaluation

    audit_options = {
        "sink": sink,
        "queries": queries,
        "max_length": max_length,
        "documents": documents,
        "seed": seed,
        "model_name": model_name or named.get("model"),
        "revision": revision or named.get("revision"),
    }
    from sinkwise.surgery.output_projections import heads_of, output_projections

    projections = output_projections(model)
    heads = heads_of(projections)
    for where in plans.scope:
        for share in plans.sparsity:
            refuse_no_removal(heads, float(share), where)
    tasks = list(plans.tasks(chosen, random_seeds, seed))
    before = calibration_steps(chosen, len(texts[:documents]), len(heads))
    steps = _Steps(before + len(tasks), progress)
    calibration = calibrate(
        model,
        processor,
        texts,
        chosen,
        audit_options=audit_options,
        leave_one_out_tokens=leave_one_out_tokens,
        out=folder,
        resume=resume,
        progress=steps.advance,
    )
    steps.reach(before)  # a part that was kept, or a text too short, reports no step
    evaluation = Evaluation(
        model, processor, eval_texts, max_length=max_length, documents=documents
    )
    protocol = jsonable(
        {
            **evaluation_protocol(evaluation.card(), eval_texts, calibration.audit.card()),
            "dense": [result.record() for result in evaluation.dense],
        }
    )
    store = PointStore(None if folder is None else folder / "points", protocol)
    runner = _Runner(projections, calibration, evaluation, store)
    points = []
    for task in tasks:
        points.append(runner.run(task))
        steps.advance(1)
    regime = calibration.audit.regime()
    study = PruneStudy.from_points(
        dense={
            "metric": evaluation.metric,
            "documents": [result.record() for result in evaluation.dense],
        },
        points=points,
        scores=[
            {
                "name": score.name,
                "title": score.title,
                "kind": score.kind,
                "classical": score.classical,
                "parameters": dict(score.parameters),
            }
            for score in chosen
        ],
        card={
            "calibration": calibration.audit.card(),
            "evaluation": evaluation.card(),
            "objective": calibration.evidence.outputs.objective,
            "leave_one_out_tokens": leave_one_out_tokens,
        },
        predicted=None if regime is None else {k: regime[k] for k in ("verdict", "why")},
        seed=seed,
        versions=versions(),
    )
    study = joined_prune(kept, study)
    if folder is not None:
        write_json(folder / "prune.json", study.to_json())
    return study


@dataclass(frozen=True)
class _Task:
    """One set of heads to choose and switch off."""

    score: Score
    scope: Any
    sparsity: float
    operation: Any
    seed: int | None


@dataclass(frozen=True)
class _Plans:
    """Every cell that is asked for."""

    sparsity: tuple[Any, ...]
    scope: tuple[Any, ...]
    operation: tuple[Any, ...]

    def __post_init__(self) -> None:
        for name, values, known in (
            ("scope", self.scope, ("model", "layer")),
            ("operation", self.operation, ("zero", "mean")),
        ):
            for value in values:
                if value not in known:
                    raise RowError(
                        f"{name}={value!r} arrived, expected {' or '.join(map(repr, known))}"
                    )
        for value in self.sparsity:
            if not isinstance(value, int | float) or not 0 < value < 1:
                raise RowError(
                    f"sparsity={value!r} arrived, expected a share between 0 and 1, such as 0.1"
                )

    def tasks(self, scores: Sequence[Score], random_seeds: int, seed: int) -> Iterator[_Task]:
        for operation in self.operation:
            for scope in self.scope:
                for sparsity in self.sparsity:
                    for score in scores:
                        drawn = score.kind == "random"
                        seeds = range(seed, seed + random_seeds) if drawn else (None,)
                        for one in seeds:
                            yield _Task(score, scope, float(sparsity), operation, one)


class _Runner:
    """Runs tasks on one model."""

    def __init__(
        self, projections: Any, calibration: Calibration, evaluation: Evaluation, store: PointStore
    ) -> None:
        self._projections = projections
        self._evidence = calibration.evidence
        self._evaluation = evaluation
        self._store = store
        self._chosen: dict[tuple[str, str, float, int | None], tuple[HeadId, ...]] = {}

    def run(self, task: _Task) -> dict[str, Any]:
        heads = self._heads(task)
        removed = [[head.layer, head.index] for head in heads]
        intervention = {"operation": task.operation, "heads": sorted(removed)}
        result = self._store.point(intervention, lambda: self._evaluate(heads, task.operation))
        energy = set_energy(self._evidence.outputs, heads)
        return {
            "score": task.score.name,
            "scope": task.scope,
            "sparsity": task.sparsity,
            "seed": task.seed,
            "operation": task.operation,
            "removed": removed,
            **result,
            **jsonable({"energy_ratio": energy.ratio, "constant_share": energy.constant_share}),
        }

    def _heads(self, task: _Task) -> tuple[HeadId, ...]:
        key = (task.score.name, task.scope, task.sparsity, task.seed)
        if key not in self._chosen:
            self._chosen[key] = removed_heads(
                task.score, self._evidence, task.sparsity, task.scope, task.seed
            )
        return self._chosen[key]

    def _evaluate(self, heads: Sequence[HeadId], operation: Any) -> dict[str, Any]:
        from sinkwise.surgery.switch import switched_off

        means = self._evidence.outputs if operation == "mean" else None
        with switched_off(self._projections, heads, operation=operation, means=means):
            results = self._evaluation.measure()
        return kept_results(results)


class _Steps:
    """Progress of all parts as one."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def advance(self, steps: int) -> None:
        self.reach(self._done + steps)

    def reach(self, steps: int) -> None:
        self._done = min(max(self._done, steps), self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)


def _scores(names: str | Sequence[str]) -> list[Score]:
    listed = [names] if isinstance(names, str) else list(names)
    return [score_named(name) for name in dict.fromkeys((*listed, *ALWAYS))]


def _listed(name: str, value: Any) -> tuple[Any, ...]:
    found = tuple(value) if isinstance(value, list | tuple | np.ndarray) else (value,)
    if not found:
        raise RowError(f"{name} is empty: give at least one")
    return tuple(dict.fromkeys(found))


def _checked_texts(
    texts: Any, eval_texts: Any, documents: int | None
) -> tuple[list[Any], list[Any]]:
    if texts is None or eval_texts is None:
        raise RowError(
            "give calibration texts and held-out texts: sinkwise.prune_study(model, tokenizer, "
            "texts, eval_texts)"
        )
    texts, eval_texts = list(texts), list(eval_texts)
    refuse_shared_documents(texts[:documents], eval_texts[:documents])
    return texts, eval_texts
