"""One seeded training loop for every experiment: AdamW, warm-up, cosine decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

__all__ = ["Batches", "Loss", "Recipe", "next_token_loss", "train"]

Batches = Callable[[int], torch.Tensor]
"""Token ids ``(batch, length)`` of a step; the same step always gives the same ones."""

Loss = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]
"""What is made small: of a model and the token ids of a step, a scalar."""


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes
    ----------
    steps
        Updates.
    learning_rate
        Its highest value.
    warm_up
        Steps over which the rate rises from 0.
    final_rate
        Share of `learning_rate` that is left at the last step, after a cosine decay.
    weight_decay
        Of AdamW, on matrices alone.
    clip
        Largest norm of the gradient.
    """

    steps: int
    learning_rate: float
    warm_up: int = 0
    final_rate: float = 1.0
    weight_decay: float = 0.0
    clip: float = 1.0

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warm_up:
            return self.learning_rate * (step + 1) / self.warm_up
        done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
        cosine = (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * cosine)


def next_token_loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats of each next token."""
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def train(
    model: torch.nn.Module,
    batches: Batches,
    recipe: Recipe,
    *,
    loss: Loss = next_token_loss,
    before_step: Callable[[int, float], None] = lambda step, loss: None,
) -> float:
    """Train a causal language model to predict each next token.

    The model is left in evaluation mode.  Nothing is drawn at random here: a model and batches
    that are the same give the same weights on one machine with one number of threads.

    Parameters
    ----------
    model
        A causal language model of transformers.
    batches
        What each step is trained on.
    loss
        What is made small.
    before_step
        Called as ``before_step(step, loss)`` before every update and once after the last; the
        loss is that of the update before (NaN at step 0).

    Returns
    -------
    float
        Mean loss in nats of the last tenth of the steps.
    """
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
    )
    losses = [math.nan]
    for step in range(recipe.steps):
        before_step(step, losses[-1])
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step)
        value = loss(model, batches(step))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(value.detach()))
    model.eval()
    before_step(recipe.steps, losses[-1])
    last = losses[-max(1, recipe.steps // 10) :]
    return sum(last) / len(last)
