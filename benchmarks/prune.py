"""A whole pruning study of one model: time, peak memory, and what every score cost.

``--texts FILE`` gives documents parted by blank lines, at least 160: eight of them (4, 14, ... 74,
counted from 0) calibrate, and eight others judge (``--held-out A``: 84, 94, ...; ``B``: 88, 98,
...).  Without it the bundled 16 documents are halved.  ``--score all`` takes every score there is.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pandas as pd

import sinkwise as sw
from benchmarks.measure import forget_peak, peak_mib
from benchmarks.witnesses import HELD_OUT, witness
from sinkwise.studies.head_scores import DEFAULT
from sinkwise.studies.head_scores import SCORES as ALL_SCORES

SCORES = (
    "fisher_matrix",
    "fisher_matrix+output",
    "joint_output_fisher",
    "joint_output",
    "relative_output_norm",
    "ahon_ln",
    "output_norm",
    "michel",
    "fisher",
    "sink_mass/most",
    "flattest",
    "js_divergence/kept",
    "cosine/kept",
    "content",
    "content_angle",
    "content/geometric_weights",
    "random",
)


def main() -> None:
    """Run the study in memory and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prune", description=__doc__)
    parser.add_argument("--model", default="demo", help="demo, minilm, dinov2 or a folder")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--held-out", choices=sorted(HELD_OUT), default="B")
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    parser.add_argument("--scope", nargs="+", default=["model", "layer"])
    parser.add_argument("--operation", nargs="+", default=["zero", "mean"])
    parser.add_argument("--score", nargs="+", default=list(SCORES))
    given = parser.parse_args()
    tried = witness(given.model, given.texts, given.held_out)
    scores = list(ALL_SCORES) if given.score == ["all"] else given.score
    forget_peak()
    began = time.perf_counter()
    study = sw.prune_study(
        tried.model,
        tried.processor,
        tried.calibration,
        tried.held_out,
        scores=scores,
        sparsity=given.sparsity,
        scope=given.scope,
        operation=given.operation,
        max_length=tried.max_length,
    )
    seconds = time.perf_counter() - began
    values = "value" if study.metric == "perplexity" else "damage"
    table = study.curves().pivot_table(
        index="score", columns=["operation", "scope", "sparsity"], values=values
    )
    print(f"dense {study.metric} {study.dense_outcome['value']:.4g}, {len(study.points)} points")
    print(table.round(1 if values == "value" else 3).to_string())
    print(study.random_band().round(3).to_string())
    print("damage over that of the best classical score of each cell:")
    print(_against_classical(study).to_string())
    shown = DEFAULT if DEFAULT in scores else scores[0]
    print(f"{shown} in each cell:")
    print(study.against_classical(shown).cells.round(3).to_string(index=False))
    tried_scores = [score["name"] for score in study.scores]
    for other in ("js_divergence/kept", "michel"):
        if other not in tried_scores:
            continue
        print(f"damage of {shown} and of {other}, paired by document:")
        print(study.paired(shown, other).round(3).to_string(index=False))
    happened = study.happened()
    print(f"regime rule: {study.predicted['verdict'] if study.predicted else 'silent'}")
    print(f"what happened: {happened['verdict']}, {happened['why']}")
    print(f"{seconds:.0f} s, peak {peak_mib() / 1024:.2f} GiB")


def _against_classical(study: sw.PruneStudy) -> pd.DataFrame:
    """Geometric mean over the cells, by score, with the worst cell."""
    rows = {}
    for score in (score["name"] for score in study.scores if score["kind"] != "random"):
        found = study.against_classical(score)
        where, worst = found.worst or ("", float("nan"))
        mean = found.geometric_mean
        rows[score] = (mean, found.low, found.high, found.cells_used, worst, where)
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=["mean", "low", "high", "cells", "worst", "in"]
    ).round(3)


if __name__ == "__main__":
    main()
