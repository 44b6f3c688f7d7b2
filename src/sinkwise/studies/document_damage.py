"""What held-out documents say of a changed model: its value, and its damage paired with the dense.

The interval is over documents.  Damage is the rise in log-perplexity for language models, and the
mean of 1 - cosine, or of the divergence, to the dense model's output for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.errors import RowError

__all__ = ["damage_sums", "document_outcome"]

Documents = Sequence[Mapping[str, Any]]
"""One mapping a document: ``tokens``, with ``loss`` (summed, nats) or ``damage`` (mean)."""


def document_outcome(
    documents: Documents, dense: Documents, metric: str, *, level: float = 0.95
) -> dict[str, Any]:
    """Return what the documents say, as ``interchange.json`` keeps it.

    Parameters
    ----------
    documents
        Results of the changed model.
    dense
        Results of the dense model on the same documents.
    metric
        ``"perplexity"``, or another name for a mean damage.
    level
        Two-sided level of the intervals.

    Returns
    -------
    dict
        ``value``, ``low``, ``high`` (perplexity, or the damage itself) and ``damage`` with the
        same three keys: rise in log-perplexity over the dense model in nats, or the mean damage.
        Tokens are pooled; intervals are delete-one-document jackknives
        (:func:`~sinkwise.accumulate.intervals.jackknife_mean`), NaN for a single document.

    Raises
    ------
    RowError
        If the two were not measured on the same documents.

    Examples
    --------
    >>> dense = [{"loss": 30.0, "tokens": 10}, {"loss": 28.0, "tokens": 10}]
    >>> now = [{"loss": 32.0, "tokens": 10}, {"loss": 31.0, "tokens": 10}]
    >>> found = document_outcome(now, dense, "perplexity")
    >>> round(found["value"], 2), round(found["damage"]["value"], 3)
    (23.34, 0.25)
    """
    sums, tokens = damage_sums(documents, dense, metric)
    damage = _three(jackknife_mean(sums, tokens, level))
    if metric != "perplexity":
        return {**damage, "damage": damage}
    losses = np.array([document["loss"] for document in documents], dtype=np.float64)
    loss = _three(jackknife_mean(losses, tokens, level))
    with np.errstate(over="ignore"):  # a ruined model's upper end may pass what a float holds
        value = {key: float(np.exp(number)) for key, number in loss.items()}
    return {**value, "damage": damage}


def damage_sums(
    documents: Documents, dense: Documents, metric: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return summed damage and tokens of each document, ``(documents,)`` each.

    Raises
    ------
    RowError
        If the two were not measured on the same documents.
    """
    tokens = np.array([document["tokens"] for document in documents], dtype=np.float64)
    before = np.array([document["tokens"] for document in dense], dtype=np.float64)
    if tokens.shape != before.shape or not (tokens == before).all():
        raise RowError(
            f"results on documents of {tokens.astype(int).tolist()} tokens arrived with a dense "
            f"model's on {before.astype(int).tolist()}: damage is paired, so evaluate both on the "
            "same documents"
        )
    key = "loss" if metric == "perplexity" else "damage"
    now = np.array([document[key] for document in documents], dtype=np.float64)
    if key == "damage":
        return now * tokens, tokens
    return now - np.array([document[key] for document in dense], dtype=np.float64), tokens


def _three(interval: Any) -> dict[str, float]:
    return {k: float(v) for k, v in zip(("value", "low", "high"), interval, strict=True)}
