"""Several finished audits by name, given as they are or as the folders they are kept in."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sinkwise.errors import InputTypeError, RunError
from sinkwise.studies.audit import Audit

__all__ = ["model_keys", "open_run", "open_runs"]


def open_run(run: Audit | str | Path) -> Audit:
    """Return an audit, opened from its folder where it is given as one.

    Raises
    ------
    InputTypeError
        If `run` is neither an audit nor a path.
    RunError
        If the folder holds no finished run.
    """
    if isinstance(run, Audit):
        return run
    if not isinstance(run, str | Path):
        raise InputTypeError(
            f"a run of class {type(run).__name__} arrived, expected an Audit or the folder of a "
            'finished one, such as "runs/smol"'
        )
    # runs stand above the studies; they are looked up by name, never imported from here
    opened: Audit = importlib.import_module("sinkwise.runs.audit").open_audit(run)
    return opened


def open_runs(runs: Iterable[Audit | str | Path]) -> dict[str, Audit]:
    """Return audits by name: the folder as it was typed, or the model and a number.

    Raises
    ------
    RunError
        If a folder is given twice, or holds no finished run.
    """
    if isinstance(runs, str | Path | Audit):
        raise InputTypeError(f"one run arrived, expected several: [{str(runs)!r}, ...]")
    found: dict[str, Audit] = {}
    places: set[Path] = set()
    for number, run in enumerate(runs, start=1):
        audit = open_run(run)
        if isinstance(run, Audit):
            name = f"{audit.card().get('model') or 'arrays'} ({number})"
        else:
            name, place = str(run), Path(run).resolve()
            if place in places:
                raise RunError(f"{run} is given twice: each run counts once")
            places.add(place)
        found[name] = audit
    return found


def model_keys(
    cards: Mapping[str, Mapping[str, Any]], models: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return which model each run is of; a run of arrays is a model of its own unless told.

    Parameters
    ----------
    cards
        Convention cards by run.
    models
        The model of runs whose card doesn't say, or says it wrongly.

    Notes
    -----
    Runs are of one model where their cards name the same one, or hold the same fingerprint of
    its weights under two names.
    """
    given = dict(models or {})
    unknown = sorted(set(given) - set(cards))
    if unknown:
        raise RunError(f"models names {unknown[0]!r}, which is no run; there are {list(cards)}")
    keys: dict[str, str] = {}
    of_weights: dict[str, str] = {}
    for run, card in cards.items():
        if run in given:
            keys[run] = given[run]
            continue
        key = str(card.get("model") or run)
        weights = card.get("weights_fingerprint")
        keys[run] = of_weights.setdefault(str(weights), key) if weights else key
    return keys
