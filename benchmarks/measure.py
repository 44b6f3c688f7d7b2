"""Time contenders in turn, take peak memory in a child process, print a table and JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Contender = Callable[[], object]


def best_times(contenders: Mapping[str, Contender], repeats: int) -> dict[str, dict[str, float]]:
    """Best wall and processor seconds of each contender.

    They take turns, so that whatever else the machine does in the meantime meets all alike.
    """
    best = {name: {"wall": float("inf"), "cpu": float("inf")} for name in contenders}
    for run in contenders.values():
        run()  # warm: compiled kernels, thread pools, pages
    for _ in range(repeats):
        for name, run in contenders.items():
            time.sleep(0.25)  # the last contender's thread pool spins a while for more work
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            best[name]["cpu"] = min(best[name]["cpu"], time.process_time() - cpu)
            best[name]["wall"] = min(best[name]["wall"], time.perf_counter() - wall)
    return best


def forget_peak() -> None:
    """Start the peak anew, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> float:
    """Peak resident memory of this process, since :func:`forget_peak` on Linux."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(
    module: str,
    make: Callable[[argparse.Namespace], Mapping[str, Contender]],
    summarise: Callable[[argparse.Namespace, dict[str, dict[str, float]]], dict[str, Any]],
    **defaults: int,
) -> None:
    """Run a benchmark's command line: sizes as flags, ``--repeats``, ``--no-memory``."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    for name, value in {**defaults, "repeats": defaults.get("repeats", 7)}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    contenders = make(args)
    if args.peak_of:
        forget_peak()
        before = peak_mib()
        contenders[args.peak_of]()
        print(json.dumps({"peak_mib": peak_mib(), "before_mib": before}))
        return
    results = best_times(contenders, args.repeats)
    if not args.no_memory:
        sizes = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in defaults]
        for name, result in results.items():
            child = subprocess.run(
                [sys.executable, "-m", module, *sizes, "--peak-of", name],
                check=True,
                capture_output=True,
                text=True,
            )
            result.update(json.loads(child.stdout.splitlines()[-1]))
    width = max(map(len, results))
    print(f"{'':{width}}  {'wall ms':>9}  {'cpu ms':>9}  {'peak MiB':>9}  {'of it own':>9}")
    for name, r in results.items():
        peak, own = r.get("peak_mib", float("nan")), r.get("before_mib", float("nan"))
        times = f"{r['wall'] * 1e3:9.1f}  {r['cpu'] * 1e3:9.1f}"
        print(f"{name:{width}}  {times}  {peak:9.0f}  {peak - own:9.0f}")
    summary = summarise(args, results)
    for name, value in summary.items():
        print(f"{name}: {value:.3g}" if isinstance(value, float) else f"{name}: {value}")
    print(json.dumps({"benchmark": module, "args": vars(args), "times": results, **summary}))
