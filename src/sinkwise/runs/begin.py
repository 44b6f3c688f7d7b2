"""How a run begins in a folder, or goes on with the one that is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from sinkwise.errors import RunError

__all__ = ["begins", "only_begun", "refuse_other_settings"]

_DIGESTS = ("inputs_sha256", "documents_sha256")


class _Folder(Protocol):
    path: Path

    @property
    def manifest(self) -> Mapping[str, Any]: ...


def only_begun(path: Path) -> bool:
    """Return whether a run was begun in a folder and no document kept: it may be begun anew."""
    manifest = path / "manifest.json"
    if not manifest.is_file() or next(path.rglob("document-*.npz"), None) is not None:
        return False
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("complete") is False


def begins(folder: _Folder, kind: str, *, resume: bool) -> bool:
    """Return whether a run begins in a folder; False where the one that is there goes on.

    Raises
    ------
    RunError
        If the folder holds something else, or a run and `resume` is off.
    """
    path = folder.path
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; name a folder")
    if only_begun(path):
        return bool(folder.manifest)  # which raises where it is of another kind of run
    if not (path / "manifest.json").exists():
        if path.exists() and any(path.iterdir()):
            raise RunError(
                f"{path} is not empty and holds no {kind}; name a new folder: nothing in it was "
                "touched"
            )
        return True
    if not resume:
        raise RunError(
            f"{path} already holds a run; go on with it by resume=True (--resume), or name another "
            "folder"
        )
    return False


def refuse_other_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], *, begun: str, others: str, why: str
) -> None:
    """Refuse to go on with settings other than those before.

    Parameters
    ----------
    begun
        How the message starts: what was done with the settings before.
    others
        What it calls other documents.
    why
        Why the two don't belong together.

    Raises
    ------
    RunError
        Naming the first setting that differs.
    """
    for key, value in now.items():
        if before.get(key) == value:
            continue
        if key in _DIGESTS:
            raise RunError(
                f"{begun} {others} than those given now: {why}. Give the same documents in the "
                "same order, or another folder (--out)"
            )
        raise RunError(
            f"{begun} with {key}={_short(before.get(key))}, now it is {_short(value)}: {why}. Use "
            "the same setting or another folder"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else text[:76] + " ..."
