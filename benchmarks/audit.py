"""A whole audit's rows and sums beside what the model's forward pass costs anyway.

GPT-2 small with random weights (speed doesn't depend on them) on random tokens.  "audit" goes
from token ids to every sum that intervals, matrices and reversal rates are made of: logits of
the sampled queries, profile, all pairs of heads under every measure and convention.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.measure import Contender, main
from sinkwise.accumulate.documents import document_sums
from sinkwise.capture.source import ModelRows
from sinkwise.rowdata.sink_sets import SINK_SETS


@cache
def _model(implementation: str) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config()
    config._attn_implementation = implementation
    return GPT2LMHeadModel(config).eval()


def make(args: argparse.Namespace) -> Mapping[str, Contender]:
    """The contenders at the sizes asked for."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50_000, (args.documents, args.tokens), generator=generator)
    texts = ids.tolist()

    def forward(implementation: str, **options: Any) -> object:
        with torch.inference_mode():
            return _model(implementation)(ids, use_cache=False, **options)

    def rows() -> ModelRows:
        return ModelRows(
            _model("sdpa"), None, texts, queries=args.queries, batch_size=args.documents
        )

    return {
        "fused forward": lambda: forward("sdpa"),
        "capture alone": lambda: sum(block.n_rows for block in rows().blocks()),
        "audit": lambda: document_sums(rows().blocks(), sink_sets=SINK_SETS),
        "eager, output_attentions": lambda: forward("eager", output_attentions=True),
    }


def summarise(args: argparse.Namespace, times: dict[str, dict[str, float]]) -> dict[str, Any]:
    """How many forward passes it costs."""
    out = {}
    for clock in ("wall", "cpu"):
        for name, key in (("audit", "audit"), ("eager, output_attentions", "eager")):
            out[f"{key}_over_fused_forward_{clock}"] = (
                times[name][clock] / times["fused forward"][clock]
            )
    return out


if __name__ == "__main__":
    main("benchmarks.audit", make, summarise, documents=4, tokens=1024, queries=64, repeats=3)
