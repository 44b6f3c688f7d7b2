"""A whole pruning study of the demo model: time, peak memory, and what every score cost.

``--texts FILE`` gives documents parted by blank lines, at least 160: eight of them (4, 14, ... 74,
counted from 0) calibrate, and eight others judge (``--held-out A``: 84, 94, ...; ``B``: 88, 98,
...).  Without it the bundled 16 documents are halved.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import sinkwise as sw
from benchmarks.measure import forget_peak, peak_mib

SCORES = (
    "joint_output_fisher",
    "joint_output",
    "fisher_matrix+output",
    "relative_output_norm",
    "ahon_ln",
    "output_norm",
    "michel",
    "fisher",
    "leave_one_out",
    "sink_mass/most",
    "flattest",
    "js_divergence/kept",
    "cosine/kept",
    "content",
    "content_angle",
    "content/geometric_weights",
    "random",
)
FIRST = {"A": 84, "B": 88}


def documents(texts: Path | None, held_out: str) -> tuple[list[str], list[str]]:
    """Calibration documents, and those that choose nothing."""
    if texts is None:
        from sinkwise.cli.documents import demo_texts

        return demo_texts()[:8], demo_texts()[8:]
    found = [text for text in texts.read_text(encoding="utf-8").split("\n\n") if text.strip()]
    return [found[i] for i in range(4, 80, 10)], [found[i] for i in range(FIRST[held_out], 160, 10)]


def main() -> None:
    """Run the study in memory and print its table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prune", description=__doc__)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--held-out", choices=sorted(FIRST), default="B")
    parser.add_argument("--sparsity", type=float, nargs="+", default=[0.1, 0.2, 0.3])
    parser.add_argument("--scope", nargs="+", default=["model", "layer"])
    parser.add_argument("--operation", nargs="+", default=["zero", "mean"])
    parser.add_argument("--score", nargs="+", default=list(SCORES))
    given = parser.parse_args()
    calibration, held_out = documents(given.texts, given.held_out)
    loaded = sw.load_model("demo")
    forget_peak()
    began = time.perf_counter()
    study = sw.prune_study(
        loaded,
        None,
        calibration,
        held_out,
        scores=given.score,
        sparsity=given.sparsity,
        scope=given.scope,
        operation=given.operation,
        max_length=256,
    )
    seconds = time.perf_counter() - began
    table = study.curves().pivot_table(
        index="score", columns=["operation", "scope", "sparsity"], values="value"
    )
    print(f"dense {study.dense_outcome['value']:.2f}, {len(study.points)} points")
    print(table.round(1).to_string())
    print(study.random_band().round(3).to_string())
    against = study.against_classical()
    print(f"default over the best classical score: {against.geometric_mean:.3f}, {against.worst}")
    print(f"{seconds:.0f} s, peak {peak_mib() / 1024:.2f} GiB")


if __name__ == "__main__":
    main()
