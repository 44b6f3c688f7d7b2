"""What the content-entropy floor adds to a training step of a 12-layer model, on one core.

Steps with and without it alternate, so that a busy machine slows both alike; the ratio is that of
the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import sinkwise as sw
from benchmarks.small_decoder import random_ids, small_decoder

BATCH, LENGTH = 4, 512


def seconds(step: int, model: torch.nn.Module, content: sw.ContentEntropyFloor | None) -> float:
    """Time of one forward and backward pass, with the penalty where `content` is given."""
    ids = random_ids(step + 1, BATCH, LENGTH)
    start = time.perf_counter()
    if content is None:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    else:
        with content.collecting() as held:
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss = loss + held.penalty
    loss.backward()
    model.zero_grad()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = small_decoder(LENGTH).train()
    floors = {
        "plain": None,
        **{f"queries={n}": sw.ContentEntropyFloor(model, 0.3, queries=n) for n in (8, 32, 128)},
    }
    times: dict[str, list[float]] = {name: [] for name in floors}
    for step in range(-1, arguments.repeats):
        for name, content in floors.items():
            taken = seconds(step, model, content)
            if step >= 0:  # the first of each warms up
                times[name].append(taken)
    medians = {name: statistics.median(values) for name, values in times.items()}
    figures = {name: value / medians["plain"] for name, value in medians.items()}
    for name, ratio in figures.items():
        print(f"{name}: {medians[name]:.3f} s a step, {100 * (ratio - 1):+.1f} %")
    if arguments.out:
        arguments.out.write_text(json.dumps({"seconds": medians, "ratio": figures}, indent=2))


if __name__ == "__main__":
    main()
