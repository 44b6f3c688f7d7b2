"""What two penalties do to the runs of :mod:`experiments.collapse_runs`.

``python -m experiments.entropy_floors --out DIR`` trains each recipe three times: as it is, with
the usual penalty (the whole row's entropy is held above a share of its largest) and with the
content-entropy floor.  Every run is a folder of checkpoints beside ``DIR/texts.txt``, and
``DIR/summary.json`` holds what their last models measure on texts that nothing was trained on.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

import sinkwise as sw
from experiments.bigrams import HELD_OUT, Bigrams, is_trigger
from experiments.collapse_runs import RECIPES, last_checkpoint, train_run
from experiments.training import Loss, next_token_loss
from sinkwise.training.rows import collecting_rows

__all__ = ["LOSSES", "measure", "whole_row_shortfall", "with_content_floor"]

FLOOR, WEIGHT, QUERIES = 0.3, 3.0, 16


def without_penalty(_: torch.nn.Module) -> Loss:
    """The next-token loss as it is."""
    return next_token_loss


def with_entropy_penalty(model: torch.nn.Module) -> Loss:
    """The loss and the usual penalty, which sees the sink."""
    numbers = itertools.count()

    def loss(_: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        with collecting_rows(model, queries=QUERIES, draw=(0, next(numbers))) as rows:
            value = next_token_loss(model, ids)
        parts = [whole_row_shortfall(layer.logits, layer.visible) for layer in rows]
        return value + WEIGHT * torch.stack(parts).mean()

    return loss


def whole_row_shortfall(logits: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """Mean over rows of three keys and more of ``max(0, FLOOR - H(p) / log n)``, sink included."""
    keys = visible.sum(-1)
    entropy = sw.entropy(logits, where=visible, logits=True, check=False)
    missing = (FLOOR - entropy / keys.clamp(min=2).log()).clamp(min=0)
    return missing[(keys >= 3).expand_as(missing)].mean()


def with_content_floor(model: torch.nn.Module) -> Loss:
    """The loss and the floor under the content entropy."""
    content = sw.ContentEntropyFloor(model, FLOOR, queries=QUERIES)

    def loss(_: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        with content.collecting() as held:
            value = next_token_loss(model, ids)
        return value + WEIGHT * held.penalty

    return loss


LOSSES: Mapping[str, Callable[[torch.nn.Module], Loss]] = {
    "none": without_penalty,
    "entropy": with_entropy_penalty,
    "content": with_content_floor,
}


def measure(model: torch.nn.Module, texts: Bigrams, *, documents: int = 64) -> dict[str, float]:
    """Measure a model on texts that nothing was trained on.

    Returns
    -------
    dict
        ``sink_mass``, ``entropy`` and ``content_entropy`` in nats, means over rows with two
        content keys and over heads; the first two also over the rows where nothing is copied
        (``_elsewhere``); ``loss`` and ``least_loss`` of whoever knows the process, in nats;
        ``copied``, the share of triggers after which the
        likeliest token is the one before.
    """
    ids = texts.batch(HELD_OUT, documents)
    rows = sw.ModelRows(model, None, ids.tolist(), queries="all")
    found = []
    for block in rows.blocks():
        use = block.queries >= 2
        logits, where = block.log_weights[:, use].astype(np.float64), block.support[use]
        split = sw.entropy_split(logits, sink=0, where=where, logits=True)
        mass = sw.sink_mass(logits, sink=0, where=where, logits=True)
        copies = is_trigger(ids[block.document].numpy()[block.queries[use]])
        found.append(
            (mass, split.total, split.content_entropy, np.broadcast_to(copies, mass.shape))
        )
    mass, total, content, copies = (np.concatenate([f[i] for f in found], 1) for i in range(4))
    with torch.no_grad():
        out = model(input_ids=ids, labels=ids)
    guess = out.logits[:, 1:-1].argmax(-1)
    asked = torch.from_numpy(is_trigger(ids[:, 1:-1].numpy()))
    return {
        "sink_mass": float(mass.mean()),
        "sink_mass_elsewhere": float(mass[~copies].mean()),
        "entropy": float(total.mean()),
        "content_entropy": float(content.mean()),
        "content_entropy_elsewhere": float(content[~copies].mean()),
        "loss": float(out.loss),
        "least_loss": texts.least_loss(ids),
        "copied": float((guess == ids[:, 2:])[asked].float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    disable_progress_bar()
    torch.set_num_threads(1)  # matrices this small only wait for each other
    arguments.out.mkdir(parents=True, exist_ok=True)
    texts = Bigrams.drawn(arguments.seed)
    texts.save_texts(arguments.out / "texts.txt")
    summary = []
    for recipe, penalty in itertools.product(RECIPES, LOSSES):
        folder = arguments.out / f"{recipe}-{penalty}"
        train_run(RECIPES[recipe], folder, seed=arguments.seed, loss_of=LOSSES[penalty])
        values = measure(last_checkpoint(folder), texts)
        summary.append({"recipe": recipe, "penalty": penalty} | values)
        print(recipe, penalty, *(f"{name} {value:.3f}" for name, value in values.items()))
        (arguments.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
