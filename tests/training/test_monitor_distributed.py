"""Two processes over gloo: sums and counts are exact, and training is what it was."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

import sinkwise as sw  # noqa: E402
from sinkwise.channels.entropy import EntropyParts  # noqa: E402
from sinkwise.training.sums import probe_sums  # noqa: E402

RUN = Path(__file__).with_name("distributed_run.py")


def run_two(kind: str, out: Path) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    common |= {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, str(RUN), kind, str(out)],
            env=common | {"RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("kind", ["ddp", "fsdp2"])
def test_two_processes_sum_rows_exactly_and_train_as_before(kind, tmp_path):
    sys.path.insert(0, str(RUN.parent))
    try:
        from distributed_run import make_model, probe
    finally:
        sys.path.remove(str(RUN.parent))
    first, second = run_two(kind, tmp_path)
    assert first["records"] == second["records"]  # the same on every process
    assert first["weights"] == first["plain"] == second["weights"]  # trained as without
    # before training, the processes' probes in one: pooled rows, not the mean of two means
    model = make_model()
    alone = [sw.Monitor(model, probe(rank), queries="all").record() for rank in (0, 1)]
    rows = [one.scalars["sinkwise/rows"] for one in alone]
    assert rows[0] != rows[1]
    told = first["records"][0]["scalars"]
    assert told["sinkwise/rows"] == sum(rows)
    for name in ("sink_mass", "content_entropy", "entropy", "content_evenness"):
        values = [one.scalars[f"sinkwise/{name}"] for one in alone]
        assert told[f"sinkwise/{name}"] == pytest.approx(np.average(values, weights=rows), 1e-12)
        assert told[f"sinkwise/{name}"] != pytest.approx(np.mean(values), 1e-6)
    by_head = np.average([one.heads["sink_mass"] for one in alone], axis=0, weights=rows)
    np.testing.assert_allclose(first["records"][0]["sink_mass"], by_head, rtol=1e-12)
    last = first["records"][-1]["scalars"]
    parts = sum(last[f"sinkwise/since_first/{c}"] for c in ("sink", "content", "within_sink"))
    assert last["sinkwise/since_first/total"] == pytest.approx(parts, abs=1e-12)
    assert abs(last["sinkwise/since_first/total"]) > 1e-3


def test_i2_counts_travel_as_floats_and_a_rank_with_few_rows_weighs_little():
    """44 samples on 16 ranks: a mean of means, or counts cut to integers, gave 1.375 times it."""
    rng = np.random.default_rng(0)
    rows = [3] * 12 + [2] * 4
    assert sum(rows) == 44
    shards = [EntropyParts(*rng.uniform(0.2, 0.8, size=(4, 1, n))) for n in rows]
    whole = EntropyParts(*np.concatenate([np.stack(part) for part in shards], axis=-1))
    sums = [
        probe_sums(part, part, part, np.full((1, n), 5))
        for part, n in zip(shards, rows, strict=True)
    ]
    total = sums[0].with_vector(np.sum([part.vector for part in sums], axis=0))
    assert total.sums["rows"].dtype == np.float64
    assert total.sums["rows"].sum() == 44
    assert total.mean("sink_mass") == pytest.approx(whole.sink_mass.mean(), rel=1e-14)
