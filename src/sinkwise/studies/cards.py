"""Convention cards side by side: what differs, and whether it changes what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

__all__ = ["DIFFERENCE_COLUMNS", "MEASURE_KEYS", "card_differences", "differing"]

MEASURE_KEYS = (
    "source",
    "sink",
    "virtual_sink",
    "zeros",
    "causal",
    "begins_with",
    "query_rule",
    "queries",
    "max_length",
    "logits_dtype",
    "conventions",
    "averaging",
)
"""Entries that change what a number means: two cards that differ in one measure two things."""

_MODEL_KEYS = (
    *("model", "model_class", "model_type", "revision", "weights_fingerprint", "n_parameters"),
    *("n_layers", "attention_layers", "skipped_layers", "heads", "heads_by_layer"),
    "kv_heads_by_layer",
)
_DOCUMENT_KEYS = (
    *("documents", "lengths", "tokens", "truncated", "skipped_documents", "skipped_texts"),
    *("rows", "rows_excluded", "steps", "special_tokens", "tokenizer", "padding_side"),
)
_COMPUTATION_KEYS = (
    *("dtype", "quantization", "attention_implementation", "configured_implementations"),
    *("torch", "transformers", "versions", "library", "form", "seed", "level"),
)
_KINDS = (
    ("measure", MEASURE_KEYS),
    ("model", _MODEL_KEYS),
    ("documents", _DOCUMENT_KEYS),
    ("computation", _COMPUTATION_KEYS),
)

DIFFERENCE_COLUMNS = ("kind", "entry", "first", "second")
"""Columns of :func:`card_differences`."""


def differing(
    cards: Mapping[str, Mapping[str, Any]], keys: tuple[str, ...] = MEASURE_KEYS
) -> dict[str, dict[str, Any]]:
    """Return the entries among `keys` on which cards differ, each as its value by card.

    An entry that a card lacks counts as None.

    Examples
    --------
    >>> differing({"a": {"sink": "first", "queries": 64}, "b": {"sink": [0], "queries": 64}})
    {'sink': {'a': 'first', 'b': [0]}}
    """
    found = {}
    for key in keys:
        values = {name: card.get(key) for name, card in cards.items()}
        seen = list(values.values())
        if any(value != seen[0] for value in seen[1:]):
            found[key] = values
    return found


def card_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> pd.DataFrame:
    """Return every entry in which two cards differ, those that change the measure first.

    Returns
    -------
    pandas.DataFrame
        `kind`: ``"measure"`` (what a number means), ``"model"``, ``"documents"``,
        ``"computation"`` (how digits come about) or ``"other"``; `entry`, with the name inside
        where the entry is a mapping (``versions.torch``); `first` and `second`, None where a
        card lacks it.

    Examples
    --------
    >>> card_differences({"sink": "first", "seed": 0}, {"sink": "first", "seed": 1})
              kind entry first second
    0  computation  seed     0      1
    """
    named = [key for _, keys in _KINDS for key in keys]
    every = [*named, *sorted((set(first) | set(second)) - set(named))]
    kind_of = {key: kind for kind, keys in _KINDS for key in keys}
    rows = []
    for key in every:
        one, other = first.get(key), second.get(key)
        if one == other:
            continue
        kind = kind_of.get(key, "other")
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            rows += [
                (kind, f"{key}.{part}", one.get(part), other.get(part))
                for part in sorted(set(one) | set(other))
                if one.get(part) != other.get(part)
            ]
        else:
            rows.append((kind, key, one, other))
    return pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS, dtype=object)
