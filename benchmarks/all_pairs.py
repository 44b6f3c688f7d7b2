"""All pairs of heads against this machine's own batched matrix product at the same shapes.

The content distance needs one product ``(heads x keys) (keys x heads)`` per row; the figure of
merit is how much of that product's rate is left once logits have become distances.  "everything"
is every sum that an audit keeps, both divergences among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Contender, main
from benchmarks.rows import random_block
from sinkwise.distances.all_pairs import pair_sums


def make(args: argparse.Namespace) -> Mapping[str, Contender]:
    """The contenders at the sizes asked for."""
    block = random_block(args.heads, args.rows, args.keys)
    documents = [
        random_block(args.heads, args.rows, args.long_keys, seed=seed, causal=True)
        for seed in range(args.documents)
    ]
    a = np.ascontiguousarray(block.log_weights.transpose(1, 0, 2))
    b = a.copy()  # NumPy halves the work of a product with its own transpose: not here
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    return {
        "product, NumPy": lambda: np.matmul(a, b.transpose(0, 2, 1)),
        "product, PyTorch": lambda: torch.bmm(ta, tb.transpose(1, 2)),
        "content": lambda: pair_sums(block, metrics=("content",)),
        "content and angle": lambda: pair_sums(block, metrics=("content", "content_angle")),
        "everything": lambda: pair_sums(block),
        "everything, causal documents": lambda: [pair_sums(d) for d in documents],
    }


def summarise(args: argparse.Namespace, times: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Shares of the product's rate."""
    flop = 2 * args.rows * args.heads**2 * args.keys
    product = min(times["product, NumPy"]["wall"], times["product, PyTorch"]["wall"])
    product_cpu = min(times["product, NumPy"]["cpu"], times["product, PyTorch"]["cpu"])
    return {
        "product_gflops": flop / product / 1e9,
        "content_share_of_product_rate": product / times["content"]["wall"],
        "content_share_of_product_rate_by_cpu": product_cpu / times["content"]["cpu"],
        "documents_seconds": times["everything, causal documents"]["wall"],
    }


if __name__ == "__main__":
    main(
        "benchmarks.all_pairs", make, summarise,
        heads=144, rows=64, keys=256, documents=4, long_keys=1024,
    )  # fmt: skip
