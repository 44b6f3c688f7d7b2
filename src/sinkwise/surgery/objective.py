"""What a model's output is judged by: its next tokens, its labels, or the direction of its states.

One reading of the output serves calibration (a loss with gradients), the proof (a damage) and
the dense reference, so that no score is computed from one thing and judged by another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["OBJECTIVES", "Objective", "objective_of", "sampled_loss", "true_loss"]

Objective = Literal["next_token", "labels", "states"]

OBJECTIVES = {
    "next_token": "cross-entropy of the next token, nats",
    "labels": "cross-entropy of the model's own labels, nats",
    "states": "direction of the last hidden state at every token",
}
"""What each objective is, for cards."""


def objective_of(model: torch.nn.Module) -> Objective:
    """Return what `model` is judged by.

    A language model that generates is judged by the next token; a model with other logits
    (masked language model, classifier) by its own labels; a bare encoder by its states.
    """
    if model.can_generate() and not getattr(model.config, "is_encoder_decoder", False):
        return "next_token"
    name = type(model).__name__
    if any(part in name for part in ("ForMaskedLM", "Classification", "ForPreTraining")):
        return "labels"
    return "states"


def readout(objective: Objective, outputs: Any) -> torch.Tensor:
    """Return the part of the outputs that is judged, float32.

    Logits ``(batch, tokens or labels ..., vocabulary)``, or states ``(batch, tokens, d_model)``.

    Raises
    ------
    CaptureError
        If the model returns none.
    """
    name = "last_hidden_state" if objective == "states" else "logits"
    found = getattr(outputs, name, None)
    if found is None and objective == "labels":
        found = getattr(outputs, "prediction_logits", None)
    if found is None:
        raise CaptureError(
            f"the model returns {type(outputs).__name__} without {name}, so its output can't be "
            "judged: pass a language model, a classifier or an encoder of transformers"
        )
    return found.float()


def true_loss(output: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the summed loss of the text's own next tokens, nats; logits ``(1, T, V)``."""
    import torch

    return torch.nn.functional.cross_entropy(output[0, :-1], ids[0, 1:], reduction="sum")


def sampled_loss(
    objective: Objective, output: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Return a loss whose squared gradients are, in the mean over draws, the model's own Fisher.

    For logits: summed cross-entropy against labels drawn from the model.  For states: their
    directions projected on a Gaussian vector, the Fisher of a unit Gaussian around them.
    """
    import torch

    if objective == "states":
        direction = torch.nn.functional.normalize(output, dim=-1)
        probe = torch.randn(direction.shape, generator=generator).to(direction)
        return (direction * probe).sum()
    logits = output[:, :-1] if objective == "next_token" else output
    logits = logits.flatten(0, -2)
    with torch.no_grad():
        weights = torch.softmax(logits.detach(), dim=-1).cpu()
        labels = torch.multinomial(weights, 1, generator=generator)[:, 0].to(logits.device)
    return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
