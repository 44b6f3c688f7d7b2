"""Import and help times: ``python -m benchmarks.startup``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 9


def median_seconds(*arguments: str) -> float:
    """Median wall time of fresh interpreters, the first (cold) one left out."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def main() -> None:
    """Print each median."""
    base = median_seconds("-c", "import numpy, pandas")
    ours = median_seconds("-c", "import numpy, pandas, sinkwise")
    # Public names are looked up lazily: the price of the core is paid by its first use.
    core = median_seconds(
        "-c", "import numpy, pandas, sinkwise as sw; sw.content_distance, sw.js_divergence, sw.rows"
    )
    print(f"import numpy, pandas              {base:.3f} s")
    print(f"  and sinkwise                   +{ours - base:.3f} s")
    print(f"  and the numerical core of it   +{core - base:.3f} s")
    print(
        f"sinkwise audit --help             {median_seconds('-m', 'sinkwise', 'audit', '-h'):.3f} s"
    )


if __name__ == "__main__":
    main()
