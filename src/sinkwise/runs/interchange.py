"""Run an interchange study: an audit chooses the pairs, held-out documents say what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sinkwise.errors import RowError, RunError
from sinkwise.rowdata import RowSource
from sinkwise.runs.audit import audit
from sinkwise.runs.exchanges import Exchanges
from sinkwise.runs.files import read_json, write_json
from sinkwise.runs.joined_studies import joined_interchange, kept_study
from sinkwise.runs.model_source import refuse_shared_documents, unwrapped
from sinkwise.runs.pattern_distances import check_distance_names, pattern_distances
from sinkwise.runs.versions import versions
from sinkwise.studies.audit import Audit
from sinkwise.studies.clustering import cluster_heads
from sinkwise.studies.exchanged_pairs import (
    SCOPES,
    closest_pairs,
    random_distances,
    sampled_pairs,
)
from sinkwise.studies.interchange import RANDOM, ExchangePoint, InterchangeStudy, Singles
from sinkwise.studies.reversal_table import REVERSAL_NAMES

__all__ = ["CURVE_METRICS", "interchange_study", "open_interchange"]

CURVE_METRICS = (
    "content",
    "content/geometric_weights",
    "content_angle",
    "js_divergence/kept",
    "js_divergence/dropped",
    "cosine/kept",
)
"""The distances whose closest pairs are exchanged when none are named."""

SINGLE_METRICS = (
    *REVERSAL_NAMES,
    "content/geometric_weights",
    "aitchison/geometric_weights",
    "content/floor=0.001",
)
"""The distances that single exchanges are held against, beside those that were asked for."""

MODES = ("whole", "split")
CLUSTERINGS = ("average", "k-medoids")
_CLUSTERS = 5
_DONORS = 4


def interchange_study(
    model: Any,
    processor: Any = None,
    texts: Sequence[Any] | None = None,
    eval_texts: Sequence[Any] | None = None,
    *,
    metrics: Sequence[str] = CURVE_METRICS,
    shares: Sequence[float] = (0.1, 0.2, 0.3),
    scopes: Sequence[str] = SCOPES,
    modes: Sequence[str] = MODES,
    seeds: int = 5,
    single_pairs: int = 48,
    max_length: int | None = None,
    documents: int | None = None,
    sink: Any = "first",
    queries: int | Literal["all"] = 64,
    seed: int = 0,
    level: float = 0.95,
    batch_size: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    model_name: str | None = None,
    revision: str | None = None,
) -> InterchangeStudy:
    """Exchange the patterns of near heads, by several distances, and measure what it costs.

    An audit of the calibration texts gives every distance; the closest pairs by each exchange
    patterns (:func:`sinkwise.exchange_patterns`), as do random pairs, and the model is evaluated
    on held-out texts.  Besides, sampled pairs are exchanged one at a time: does a distance, or a
    clustering, say how much damage that does?

    Parameters
    ----------
    model
        A transformers model or a :class:`~sinkwise.capture.load.LoadedModel`.
    processor
        The model's tokenizer or image processor.
    texts
        Calibration texts, or images; each is one document.
    eval_texts
        Held-out texts or images, none of them among `texts`.
    metrics
        Distances whose closest pairs are exchanged; the single pairs are held against all that
        were measured, these and the audit's own.
    shares
        Shares of the heads that borrow.
    scopes
        ``"model"``: pairs from anywhere; ``"layer"``: pairs within a layer, the same share of
        each.
    modes
        ``"whole"`` and ``"split"``, as in :func:`sinkwise.exchange_patterns`.
    seeds
        How many sets of random pairs, at least 2 for a band.
    single_pairs
        Pairs to exchange one at a time; 0 for none.
    max_length
        Cut documents to so many tokens, each one window.
    documents
        Use the first N of `texts`, and of `eval_texts`.
    sink, queries, batch_size
        Of the audit; the sink, at fixed positions, is also the one that ``"split"`` keeps.
    seed
        Of the query rows, the random pairs (`seed`, `seed` + 1, ...) and the sample.
    level
        Two-sided level of intervals.
    out
        Folder for the run: the audit, every evaluated point, and ``interchange.json``.
    resume
        Go on with the run in `out`: what is there is not computed again.  Other metrics, shares,
        scopes and modes may be asked for: the study then holds them beside those it held before.
        Single pairs are drawn once, and others beside them only where more are asked for.
    progress
        Called as ``progress(done, total)`` after every document and evaluation.
    model_name, revision
        For the card, where the model itself doesn't say.

    Returns
    -------
    InterchangeStudy
        Curves, random bands, rank correlations and clusters, as tables.

    Raises
    ------
    RowError
        On options that say nothing, texts that calibrate and evaluate, or unknown distances.
    CaptureError, InputTypeError
        If the model's rows can't be captured or its heads can't be exchanged.
    RunError
        If `out` holds something else, or points evaluated otherwise.

    Notes
    -----
    One pass over the evaluation texts for each of ``(metrics + seeds) * shares * scopes * modes``
    points and ``single_pairs * modes`` pairs.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=4, n_embd=8, vocab_size=11))
    >>> calibration, held_out = [[1, 2, 3, 4, 5], [5, 4, 3, 2, 6]], [[7, 8, 9, 1, 2]] * 3
    >>> study = interchange_study(
    ...     model, None, calibration, held_out, metrics=["content"], shares=[0.25],
    ...     scopes=["model"], modes=["split"], seeds=2, single_pairs=0)
    >>> study.curves()[["metric", "heads"]].values.tolist()
    [['content', 3], ['random', 3], ['random', 3]]
    """
    grid = _Grid(tuple(metrics), tuple(shares), tuple(scopes), tuple(modes), seeds, single_pairs)
    grid.check(sink)
    texts, eval_texts = _texts(texts, documents), _texts(eval_texts, documents)
    refuse_shared_documents(texts, eval_texts)
    folder = None if out is None else Path(out)
    kept = None
    if folder is not None and resume:
        kept = kept_study(folder / "interchange.json", InterchangeStudy.from_json)
    model, processor, named = unwrapped(model, processor)
    counted = _Counted(progress, grid.steps)
    options: dict[str, Any] = {
        "sink": sink,
        "queries": queries,
        "max_length": max_length,
        "seed": seed,
        "batch_size": batch_size,
    }
    calibration = audit(
        model,
        processor,
        texts,
        **options,
        level=level,
        out=out,
        resume=resume,
        progress=counted.calibrated,
        model_name=model_name or named.get("model"),
        revision=revision or named.get("revision"),
    )

    def rows() -> RowSource:
        from sinkwise.capture.source import ModelRows

        given = {name: value for name, value in options.items() if value is not None}
        return ModelRows(model, processor, texts, **given)

    before = None if kept is None else kept.singles
    known = () if before is None else tuple(before.distances)
    names = dict.fromkeys((*grid.metrics, *SINGLE_METRICS, *known))
    distances = pattern_distances(calibration, tuple(names), rows, folder=folder)
    evaluator = Exchanges(model, processor, eval_texts, max_length, sink, calibration, folder)
    points = []
    for point in _planned(grid, distances, calibration, seed):
        points.append(evaluator.point(point))
        counted.step()
    singles = _exchange_singly(grid, distances, calibration, seed, evaluator, counted, before)
    study = InterchangeStudy(
        heads=calibration.heads,
        measure=evaluator.measure,
        dense=evaluator.dense,
        points=tuple(points),
        singles=singles,
        card={"calibration": calibration.card(), "evaluation": evaluator.card},
        seed=seed,
        level=level,
        versions=versions(),
    )
    study = joined_interchange(kept, study)
    if folder is not None:
        write_json(folder / "interchange.json", study.to_json())
    counted.finish()
    return study


def open_interchange(folder: str | Path) -> InterchangeStudy:
    """Open the study kept in a folder; works without torch.

    Raises
    ------
    RunError
        If the folder holds none, or a damaged one.
    """
    path = Path(folder) / "interchange.json"
    if not path.is_file():
        raise RunError(
            f"{folder} holds no interchange.json: the study was not run there, or is not finished. "
            "Go on with resume=True (sinkwise interchange ... --resume)"
        )
    return InterchangeStudy.from_json(read_json(path))


@dataclass(frozen=True)
class _Grid:
    """What is evaluated."""

    metrics: tuple[str, ...]
    shares: tuple[float, ...]
    scopes: tuple[str, ...]
    modes: tuple[str, ...]
    seeds: int
    single_pairs: int

    @property
    def steps(self) -> int:
        cells = len(self.shares) * len(self.scopes) * len(self.modes)
        return (len(self.metrics) + self.seeds) * cells + self.single_pairs * len(self.modes)

    def check(self, sink: Any) -> None:
        """Look at what would only fail after the audit."""
        for name, given, known in (
            ("scopes", self.scopes, SCOPES),
            ("modes", self.modes, MODES),
        ):
            wrong = [value for value in given if value not in known]
            if wrong or not given:
                raise RowError(f"{name}={list(given)} arrived, expected some of {', '.join(known)}")
        if not self.shares or not all(0 < share < 1 for share in self.shares):
            raise RowError(f"shares={list(self.shares)} arrived, expected shares such as 0.1, 0.2")
        check_distance_names([name for name in self.metrics if name != RANDOM])
        if RANDOM in self.metrics:
            raise RowError("random pairs are always there: say how many sets with seeds=")
        if self.seeds < 0 or self.single_pairs < 0:
            raise RowError(f"seeds={self.seeds}, single_pairs={self.single_pairs}: at least 0 each")
        if sink == "found" and "split" in self.modes:
            raise RowError(
                'sink="found" is another set of keys in every document, which a head can\'t keep '
                'while it borrows: name positions, sink="first", or exchange whole rows alone '
                'with modes=["whole"]'
            )


def _texts(texts: Sequence[Any] | None, limit: int | None) -> list[Any]:
    if texts is None:
        raise RowError(
            "give calibration texts and held-out ones: sw.interchange_study(model, tokenizer, "
            "texts, eval_texts)"
        )
    if limit is not None and limit < 1:
        raise RowError(f"{limit} documents arrived, expected at least 1")
    return list(texts)[:limit] if not isinstance(texts, str) else [texts]


class _Counted:
    """Progress over the audit's documents and the evaluations after it."""

    def __init__(self, progress: Callable[[int, int], None] | None, steps: int) -> None:
        self._progress = progress
        self._steps = steps
        self._done = 0
        self._total = steps

    def calibrated(self, done: int, total: int) -> None:
        self._done, self._total = done, total + self._steps
        self._report()

    def step(self) -> None:
        self._done = min(self._done + 1, self._total)  # kept pairs may be more than are asked for
        self._report()

    def finish(self) -> None:
        """Fewer single pairs may be there than were asked for."""
        if self._done < self._total:
            self._done = self._total
            self._report()

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self._done, self._total)


def _planned(
    grid: _Grid, distances: Mapping[str, np.ndarray], calibration: Audit, seed: int
) -> Iterator[ExchangePoint]:
    """Yield the points to evaluate, all pairs chosen before the first one is."""
    heads = calibration.heads
    chosen: list[tuple[str, int | None, np.ndarray]] = [
        (name, None, distances[name]) for name in grid.metrics
    ]
    drawn = range(seed, seed + grid.seeds)
    chosen += [(RANDOM, number, random_distances(len(heads), number)) for number in drawn]
    planned = []
    for (name, number, matrix), scope, share in product(chosen, grid.scopes, grid.shares):
        pairs = closest_pairs(matrix, heads, share, scope)
        planned += [
            ExchangePoint(name, mode, scope, share, number, pairs, ()) for mode in grid.modes
        ]
    yield from planned


def _exchange_singly(
    grid: _Grid,
    distances: Mapping[str, np.ndarray],
    calibration: Audit,
    seed: int,
    evaluator: Exchanges,
    counted: _Counted,
    kept: Singles | None,
) -> Singles | None:
    n_heads = len(calibration.heads)
    whole = {name: d for name, d in distances.items() if np.isfinite(d).all()}
    if not grid.single_pairs or n_heads < 3 or not whole:
        return kept
    pairs = () if kept is None else kept.pairs
    if len(pairs) < grid.single_pairs:
        drawn = sampled_pairs(
            {name: whole[name] for name in grid.metrics if name in whole} or whole,
            n_heads,
            grid.single_pairs,
            donors=min(_DONORS, n_heads - 1),
            seed=seed,
        )
        # the pairs of one borrower stand together
        pairs = tuple(sorted(dict.fromkeys((*pairs, *drawn)), key=lambda pair: pair[0]))
    modes = dict.fromkeys((*grid.modes, *(() if kept is None else kept.documents)))
    clusters = {
        (name, method): cluster_heads(
            matrix, k=min(_CLUSTERS, n_heads - 1), method=method, heads=calibration.heads
        ).tolist()
        for name, matrix in whole.items()
        for method in CLUSTERINGS
    }
    found: dict[str, list[list[dict[str, Any]]]] = {mode: [] for mode in modes}
    for pair in pairs:  # both modes of a pair together: what is done is whole pairs
        for mode in modes:
            found[mode].append(evaluator.single(mode, pair))
            counted.step()
    near = {name: [float(d[b, donor]) for b, donor in pairs] for name, d in whole.items()}
    return Singles(pairs, near, clusters, found)
