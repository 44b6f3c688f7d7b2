"""Two runs of one model on the same texts: in one a sink grows, in the other the content collapses.

``python -m experiments.collapse_runs --out DIR`` writes ``DIR/sink`` and ``DIR/content``, each a
folder of checkpoints that ``sinkwise collapse`` reads, with ``DIR/texts.txt`` for both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

from experiments.bigrams import HELD_OUT, Bigrams, new_model, tokenizer
from experiments.training import Loss, Recipe, next_token_loss, train

__all__ = ["CHECKPOINTS", "RECIPES", "last_checkpoint", "train_run"]

RECIPES: Mapping[str, Recipe] = {
    "sink": Recipe(steps=3000, learning_rate=3e-3, warm_up=100, final_rate=0.05),
    "content": Recipe(steps=300, learning_rate=3e-2),
}
"""Warm-up and decay at a rate that learns well; ten times the rate from the first step on."""
CHECKPOINTS = (0, 2, 5, 10, 20, 50, 100, 200, 300, 500, 700, 1000, 1500, 2000, 2500, 3000)


def train_run(
    recipe: Recipe,
    folder: Path,
    *,
    seed: int,
    loss_of: Callable[[torch.nn.Module], Loss] = lambda model: next_token_loss,
) -> dict[str, float]:
    """Train one model and save it at each of :data:`CHECKPOINTS` that the recipe reaches.

    Parameters
    ----------
    loss_of
        From the model what is made small.

    Returns
    -------
    dict
        ``loss`` on held-out texts, ``least_loss`` of whoever knows the process, ``seconds``.
    """
    texts, words = Bigrams.drawn(seed), tokenizer()
    model = new_model(seed)
    start = time.perf_counter()

    def save(step: int, _: float) -> None:
        if step in CHECKPOINTS:
            place = folder / f"checkpoint-{step}"
            model.save_pretrained(place)
            words.save_pretrained(place)

    train(model, texts.batch, recipe, loss=loss_of(model), before_step=save)
    held_out = texts.batch(HELD_OUT, 256)
    with torch.no_grad():
        reached = float(next_token_loss(model, held_out))
    return {
        "loss": reached,
        "least_loss": texts.least_loss(held_out),
        "seconds": time.perf_counter() - start,
    }


def last_checkpoint(folder: Path) -> torch.nn.Module:
    """Load the model of a run's last step."""
    steps = [int(place.name.removeprefix("checkpoint-")) for place in folder.glob("checkpoint-*")]
    return AutoModelForCausalLM.from_pretrained(folder / f"checkpoint-{max(steps)}").eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    disable_progress_bar()
    torch.set_num_threads(1)  # matrices this small only wait for each other
    arguments.out.mkdir(parents=True, exist_ok=True)
    Bigrams.drawn(arguments.seed).save_texts(arguments.out / "texts.txt")
    for name, recipe in RECIPES.items():
        result = train_run(recipe, arguments.out / name, seed=arguments.seed)
        (arguments.out / name / "training.json").write_text(json.dumps(result, indent=2) + "\n")
        print(f"{name}: loss {result['loss']:.3f}, least {result['least_loss']:.3f} nats")


if __name__ == "__main__":
    main()
