"""Jensen-Shannon divergence of all pairs of heads, mean over rows, beside what people write.

Plain PyTorch and NumPy broadcast one head against the others; SciPy's ``pdist`` takes a row at
a time.  They start from weights, we from logits.  Errors are against a float64 reference of
every pair, on these rows and on rows at sink mass 0.99999.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import pdist, squareform
from scipy.special import softmax

from benchmarks.measure import Contender, main
from benchmarks.rows import random_block
from sinkwise.distances.all_pairs import pair_sums
from sinkwise.rowdata import RowBlock


def plain_pytorch(p: torch.Tensor) -> torch.Tensor:
    """``(rows, heads, keys)`` weights to ``(heads, heads)``."""
    heads = p.shape[1]
    own = (p * p.log()).sum(-1)
    out = torch.zeros(heads, heads)
    for i in range(heads - 1):
        m = (p[:, i : i + 1] + p[:, i + 1 :]) / 2
        js = (own[:, i : i + 1] + own[:, i + 1 :]) / 2 - (m * m.log()).sum(-1)
        out[i, i + 1 :] = js.mean(0)
    return out


def plain_numpy(p: np.ndarray) -> np.ndarray:
    """As :func:`plain_pytorch`."""
    heads = p.shape[1]
    own = (p * np.log(p)).sum(-1)
    out = np.zeros((heads, heads))
    for i in range(heads - 1):
        m = (p[:, i : i + 1] + p[:, i + 1 :]) / 2
        js = (own[:, i : i + 1] + own[:, i + 1 :]) / 2 - (m * np.log(m)).sum(-1)
        out[i, i + 1 :] = js.mean(0)
    return out


def scipy_pdist(p: np.ndarray) -> np.ndarray:
    """As :func:`plain_pytorch`, condensed."""
    return np.mean([pdist(row, "jensenshannon") ** 2 for row in p], axis=0)


def make(args: argparse.Namespace) -> Mapping[str, Contender]:
    """The contenders at the sizes asked for."""
    block = random_block(args.heads, args.rows, args.keys)
    logits = np.ascontiguousarray(block.log_weights.transpose(1, 0, 2))
    kept = softmax(logits, axis=-1)
    dropped = np.ascontiguousarray(softmax(logits[..., 1:], axis=-1))
    tkept, tdropped = torch.from_numpy(kept), torch.from_numpy(dropped)
    names = ("js_divergence/kept", "js_divergence/dropped")
    return {
        "sinkwise, kept": lambda: pair_sums(block, metrics=names[:1]),
        "sinkwise, kept and dropped": lambda: pair_sums(block, metrics=names),
        "PyTorch, kept": lambda: plain_pytorch(tkept),
        "PyTorch, kept and dropped": lambda: (plain_pytorch(tkept), plain_pytorch(tdropped)),
        "NumPy, kept": lambda: plain_numpy(kept),
        "SciPy pdist, kept": lambda: scipy_pdist(kept),
        "SciPy pdist, kept and dropped": lambda: (scipy_pdist(kept), scipy_pdist(dropped)),
    }


def worst_errors(block: RowBlock) -> tuple[float, float]:
    """Largest absolute and relative error of the mean kept divergence against float64."""
    reference = 0
    x = block.log_weights.astype(np.float64).transpose(1, 0, 2)
    p = softmax(x, axis=-1)
    rest = 1 / (1 + np.exp(x[..., 0] - np.logaddexp.reduce(x[..., 1:], axis=-1)))
    for weights, content in zip(p, rest, strict=True):
        rows = []
        for i in range(len(weights) - 1):
            a, b = weights[i], weights[i + 1 :]
            phi = _phi((a - b) / (a + b))
            # the sink's own term from the content masses, which keep their digits
            phi[:, 0] = _phi((content[i + 1 :] - content[i]) / (a[0] + b[:, 0]))
            rows.append(((a + b) / 4 * phi).sum(-1))
        reference = reference + np.concatenate(rows) / len(p)
    found = pair_sums(block, metrics=("js_divergence/kept",)).mean("js_divergence/kept")
    gap = np.abs(found - reference)
    return float(gap.max()), float((gap / reference).max())


def _phi(x: np.ndarray) -> np.ndarray:
    small = np.abs(x) < 1e-3
    y = x * x
    full = np.where(small, 0, x)
    exact = (1 + full) * np.log1p(full) + (1 - full) * np.log1p(-np.minimum(full, 1 - 1e-16))
    return np.where(small, y * (1 + y * (1 / 6 + y / 15)), exact)


def summarise(args: argparse.Namespace, times: dict[str, dict[str, float]]) -> dict[str, Any]:
    """How many times faster, and how exact."""
    block = random_block(args.heads, min(args.rows, 8), args.keys)
    strong = random_block(args.heads, min(args.rows, 8), args.keys)
    strong.log_weights[..., 0] = np.logaddexp.reduce(strong.log_weights[..., 1:], axis=-1) + 11.5
    plain, at_sink = worst_errors(block), worst_errors(strong)
    sums = squareform(pair_sums(block).mean("js_divergence/kept"))
    peers = softmax(block.log_weights.transpose(1, 0, 2), axis=-1)
    gap = float(np.abs(np.triu(sums) - plain_numpy(peers)).max())
    out: dict[str, Any] = {}
    for clock in ("wall", "cpu"):
        own, both = (times[f"sinkwise, kept{s}"][clock] for s in ("", " and dropped"))
        torch_both = times["PyTorch, kept and dropped"][clock]
        out[f"times_faster_than_pytorch_kept_{clock}"] = times["PyTorch, kept"][clock] / own
        out[f"times_faster_than_pytorch_both_{clock}"] = torch_both / both
        out[f"times_faster_than_numpy_{clock}"] = times["NumPy, kept"][clock] / own
        out[f"times_faster_than_scipy_kept_{clock}"] = times["SciPy pdist, kept"][clock] / own
        scipy_both = times["SciPy pdist, kept and dropped"][clock]
        out[f"times_faster_than_scipy_both_{clock}"] = scipy_both / both
    out |= {"absolute_error": plain[0], "relative_error": plain[1]}
    out |= {"absolute_error_at_0.99999": at_sink[0], "relative_error_at_0.99999": at_sink[1]}
    out["gap_to_numpy_float32"] = gap
    return out


if __name__ == "__main__":
    main("benchmarks.js", make, summarise, heads=144, rows=64, keys=256, repeats=5)
