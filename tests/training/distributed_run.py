"""What one process of a distributed test does; run by test_monitor_distributed.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel

import sinkwise as sw

LENGTHS = (6, 16)
"""Tokens of the documents that each process looks at: their numbers of rows differ."""


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        vocab_size=32,
        n_positions=32,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=0.4,
    )
    return GPT2LMHeadModel(config).train()


def probe(rank: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(10 + rank)
    return {"input_ids": torch.randint(0, 32, (1 + rank, LENGTHS[rank]), generator=generator)}


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, 32, (2, 8), generator=generator)


def wrapped(kind: str, model: torch.nn.Module) -> torch.nn.Module:
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def some_numbers(weight: torch.Tensor) -> list[float]:
    if hasattr(weight, "full_tensor"):
        weight = weight.full_tensor()
    return weight.detach().double().flatten()[:50].tolist()


def train(kind: str, rank: int, *, watch: bool) -> tuple[list[dict], list[list[float]]]:
    model = wrapped(kind, make_model())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    records = []
    monitor = sw.Monitor(model, probe(rank), every=1, queries="all") if watch else None
    if monitor:
        records.append(monitor.record())
    for step in range(3):
        ids = batch(step, rank)
        model(input_ids=ids, labels=ids).loss.backward()
        if monitor and step == 1:
            monitor.record()  # before an update: nothing gathered may outlive it
        optimiser.step()
        optimiser.zero_grad()
        if monitor:
            records.append(monitor.step())
    told = [
        {
            "scalars": dict(record.scalars),
            "sink_mass": record.heads["sink_mass"].tolist(),
            "nan_places": [place.layer for place in record.nan_places],
        }
        for record in records
    ]
    return told, [some_numbers(weight) for weight in model.parameters()]
    return told, [some_numbers(weight) for weight in model.parameters()]


def main() -> None:
    kind, out, rank = sys.argv[1], Path(sys.argv[2]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        records, weights = train(kind, rank, watch=True)
        _, plain = train(kind, rank, watch=False)
    finally:
        dist.destroy_process_group()
    told = {"records": records, "weights": weights, "plain": plain}
    (out / f"{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
