"""Check here and now that captured rows are the model's own attention, family by family."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.capture.families import FAMILIES, Family, tiny_inputs, tiny_model
from sinkwise.capture.source import ModelRows
from sinkwise.errors import CaptureError, SinkwiseError

if TYPE_CHECKING:
    import torch

__all__ = ["check_families", "compare_with_eager"]

_TOLERANCE = 1e-5


def check_families() -> list[dict[str, Any]]:
    """Capture a tiny random model of each family and hold it against eager attention weights.

    Returns
    -------
    list of dict
        ``model_type``, ``status`` (``"equal"``; ``"refused"``: capture says it can't; or
        ``"untested"``: no verdict, or one that needs a bug report) and ``why``.

    Notes
    -----
    Takes a few seconds; needs no network and no weights.
    """
    with _quiet_transformers():
        return [_check(family) for family in FAMILIES]


def compare_with_eager(model: torch.nn.Module, inputs: list[Any], rows: ModelRows) -> float:
    """Return the largest gap between captured weights and ``output_attentions`` of eager attention.

    `model` must be loaded with eager attention; it is run on each document alone.
    """
    largest = 0.0
    for block in rows.blocks():
        reference = _eager_weights(model, inputs[block.document])
        weights = _softmax(np.where(block.support, block.log_weights, -np.inf))
        reference = reference[:, block.queries]
        gap = np.abs(weights[..., : reference.shape[-1]] - reference)
        largest = max(largest, float(gap.max(initial=0.0)))
    return largest


def _check(family: Family) -> dict[str, Any]:
    entry = {"model_type": family.model_type, "status": "untested"}
    try:
        model = tiny_model(family)
        inputs = tiny_inputs(family)
    except Exception as error:  # whatever stops a model from being built here is the answer
        return entry | {"why": f"no tiny model could be built: {type(error).__name__}: {error}"}
    try:
        rows = ModelRows(model, None, inputs, queries="all")
        gap = compare_with_eager(tiny_model(family, implementation="eager"), inputs, rows)
    except CaptureError as error:
        return entry | {"status": "refused", "why": str(error)}
    except (SinkwiseError, RuntimeError, ValueError, KeyError, AttributeError) as error:
        return entry | {"why": f"{type(error).__name__}: {error}"}
    loaded = rows.card()["attention_implementation"]
    if gap <= _TOLERANCE:
        why = f"{family.shows}; {loaded} rows within {gap:.1e} of eager attention weights"
        return entry | {"status": "equal", "why": why}
    return entry | {"why": f"{loaded} rows differ from eager attention weights by {gap:.1e}"}


def _eager_weights(model: torch.nn.Module, document: Any) -> np.ndarray:
    """``(heads, queries, keys)`` in layer-major order."""
    import torch

    value = torch.as_tensor(document)[None]
    with torch.no_grad():
        attentions = model(**{model.main_input_name: value}, output_attentions=True).attentions
    return torch.cat([layer[0].float() for layer in attentions]).numpy()


def _softmax(logits: np.ndarray) -> np.ndarray:
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


@contextlib.contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Tiny configs draw warnings that would read like findings."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
