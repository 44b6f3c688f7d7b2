"""What a monitor adds to the training of a 12-layer model, a record every fifty steps.

Runs with and without it alternate, each of the same fifty steps, so that a busy machine slows both
alike.  ``--compiled`` runs both under ``torch.compile``.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import sinkwise as sw
from benchmarks.small_decoder import random_ids, small_decoder

BATCH, LENGTH = 8, 128
PROBE = 996
"""Seed of the probe: no step that is trained on."""


def batch(step: int) -> dict[str, torch.Tensor]:
    """The tokens of a step."""
    ids = random_ids(step, BATCH, LENGTH)
    return {"input_ids": ids, "labels": ids}


def seconds(
    model: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    steps: int,
    monitor: sw.Monitor | None,
) -> float:
    """Time of so many steps, and of the record among them where there is a monitor."""
    began = time.perf_counter()
    for step in range(steps):
        model(**batch(step)).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        if monitor is not None:
            monitor.step()
    return time.perf_counter() - began


def main() -> None:
    """Alternate plain and monitored runs and print the share that monitoring took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--compiled", action="store_true")
    given = parser.parse_args()
    model = small_decoder(LENGTH)
    model.config.use_cache = False
    if given.compiled:
        model = torch.compile(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    monitor = sw.Monitor(model, batch(PROBE), every=given.every)
    monitor.record()
    seconds(model, optimiser, 5, None)  # warms up
    times: dict[str, list[float]] = {"plain": [], "monitored": []}
    for _ in range(given.rounds):
        times["plain"].append(seconds(model, optimiser, given.every, None))
        times["monitored"].append(seconds(model, optimiser, given.every, monitor))
    began = time.perf_counter()
    monitor.record()
    record = time.perf_counter() - began
    plain, monitored = (statistics.median(times[name]) for name in times)
    print(f"{given.every} steps: plain {plain:.2f} s, monitored {monitored:.2f} s")
    print(f"by the medians {100 * (monitored / plain - 1):+.1f} %; rounds: {times}")
    print(f"one record {record:.3f} s, {100 * record / plain:.2f} % of {given.every} steps")


if __name__ == "__main__":
    main()
