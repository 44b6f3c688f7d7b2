"""Which checkpoints a study is asked for: folders, files or hub revisions, in order of training."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sinkwise.errors import RowError, RunError

__all__ = [
    "CheckpointSource",
    "files_fingerprint",
    "locate_checkpoint",
    "locate_checkpoints",
    "step_of_name",
]

_STEP = re.compile(r"(?:^|[^a-z])(?:checkpoint|ckpt|step|steps|iter|global_step)[-_]?(\d+)", re.I)
_WEIGHTS = (".safetensors", ".bin", ".gguf")
_READS, _READ_BYTES = 16, 4096


@dataclass(frozen=True)
class CheckpointSource:
    """Where a checkpoint is loaded from.

    Attributes
    ----------
    name
        Short and unique: of its folder or file, or the revision.
    where
        What :func:`~sinkwise.capture.load.load_model` is given.
    step
        Training step, from ``trainer_state.json`` or the name; None where neither says.
    revision
        Of a hub model.
    fingerprint
        Of the files, where they lie here; None for the hub.
    """

    name: str
    where: str
    step: int | None = None
    revision: str | None = None
    fingerprint: str | None = None


def locate_checkpoints(
    names: Sequence[str | os.PathLike[str]], revisions: Sequence[str] = (), *, fewest: int = 2
) -> tuple[CheckpointSource, ...]:
    """Find the checkpoints that were asked for, without loading any.

    Parameters
    ----------
    names
        Folders in the transformers layout, ``.safetensors`` or ``.gguf`` files; or one folder that
        holds folders such as ``checkpoint-500`` or ``step500``; or, with `revisions`, one hub id.
    revisions
        Of the hub model, in order of training.
    fewest
        How many are needed: one is enough beside those that a study holds already.

    Returns
    -------
    tuple of CheckpointSource
        In the order of their steps where each has a step of its own, else as given.

    Raises
    ------
    RowError
        If fewer are found; the message says what was looked for.
    RunError
        If a path does not exist, or a ``trainer_state.json`` can't be read.

    Examples
    --------
    >>> found = locate_checkpoints(["owner/model"], ["step1000", "step0", "main"])
    >>> [(source.name, source.step) for source in found]
    [('step1000', 1000), ('step0', 0), ('main', None)]
    """
    if isinstance(names, str | os.PathLike):
        names = [names]
    if revisions:
        found = _of_hub(names, revisions)
    else:
        paths = [Path(name).expanduser() for name in names]
        if len(paths) == 1 and paths[0].is_dir():
            paths = _inside(paths[0])
        found = tuple(_of_path(path, name) for path, name in zip(paths, _short(paths), strict=True))
    if len(found) < fewest:
        raise RowError(
            f"{len(found)} checkpoint{'' if len(found) == 1 else 's'} arrived, and a change is "
            "between two: name two folders, a folder that holds folders such as checkpoint-500 "
            "and checkpoint-1000, or a hub id with revisions (--revisions step0,step1000)"
        )
    steps = [source.step for source in found]
    if None not in steps and len(set(steps)) == len(steps):
        return tuple(sorted(found, key=lambda source: source.step or 0))
    return found


def locate_checkpoint(where: str | os.PathLike[str], name: str) -> CheckpointSource:
    """Find one checkpoint, here or else on the hub, and call it `name`."""
    path = Path(where).expanduser()
    if path.exists() or isinstance(where, os.PathLike):
        source = _of_path(path, name)
        step = step_of_name(name) if source.step is None else source.step
        return replace(source, step=step)
    return CheckpointSource(name, str(where), step_of_name(name))


def files_fingerprint(path: Path) -> str:
    """Return what tells a checkpoint from another of the same name, without reading all of it.

    Of its config and its weights: names, sizes and some of the bytes.
    """
    if path.is_file():
        files = [path, path.parent / "config.json"]
    else:
        inside = sorted(path.iterdir())
        files = [f for f in inside if f.suffix in _WEIGHTS or f.name == "config.json"]
    digest = hashlib.sha256()
    for file in files:
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as opened:
            for i in range(_READS):
                opened.seek(max(0, size - _READ_BYTES) * i // (_READS - 1))
                digest.update(opened.read(_READ_BYTES))
    return digest.hexdigest()[:16]


def step_of_name(name: str) -> int | None:
    """Return the training step that a name holds: ``checkpoint-500``, ``step500`` or ``500``.

    Examples
    --------
    >>> [step_of_name(name) for name in ("checkpoint-500", "global_step7", "250", "llama-2-7b")]
    [500, 7, 250, None]
    """
    found = _STEP.search(name)
    if found:
        return int(found[1])
    return int(name) if name.isdigit() else None


def _of_hub(
    names: Sequence[str | os.PathLike[str]], revisions: Sequence[str]
) -> tuple[CheckpointSource, ...]:
    if len(names) != 1 or Path(names[0]).expanduser().exists():
        raise RowError(
            f"revisions belong to one hub id, and {', '.join(map(str, names))} arrived: name the "
            "hub model alone, or leave the revisions out for folders"
        )
    if len(set(revisions)) < len(revisions):
        raise RowError(f"a revision stands twice in {', '.join(revisions)}")
    where = os.fspath(names[0])
    return tuple(CheckpointSource(name, where, step_of_name(name), name) for name in revisions)


def _inside(folder: Path) -> list[Path]:
    """The checkpoints that lie in a folder, or the folder itself."""
    found = [
        p
        for p in folder.iterdir()
        if (p / "config.json").is_file() and step_of_name(p.name) is not None
    ]
    return sorted(found, key=lambda path: (step_of_name(path.name) or 0, path.name)) or [folder]


def _of_path(path: Path, name: str) -> CheckpointSource:
    if not path.exists():
        raise RunError(
            f"there is no checkpoint {path}: give folders with a config.json, .safetensors files, "
            "or one hub id with its revisions (--revisions step0,step1000)"
        )
    if path.is_dir() and not (path / "config.json").is_file():
        raise RunError(
            f"the folder {path} holds no config.json, and no folders such as checkpoint-500 that "
            "do: give the folders that model.save_pretrained(...) wrote"
        )
    return CheckpointSource(name, str(path), _step(path), None, files_fingerprint(path))


def _step(path: Path) -> int | None:
    """The training step of a folder, or of a file: by its own name first, then its folder's."""
    step = step_of_name(path.stem) if path.is_file() else _trainer_step(path)
    if step is not None:
        return step
    return _step(path.parent) if path.is_file() else step_of_name(path.name)


def _short(paths: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    whole = [path.resolve().parts for path in paths]
    if len(set(whole)) < len(whole):
        twice = next(path for path in whole if whole.count(path) > 1)
        raise RowError(f"the checkpoint {'/'.join(twice[-2:])} was named twice")
    for depth in range(1, max((len(parts) for parts in whole), default=0) + 1):
        names = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return []


def _trainer_step(folder: Path) -> int | None:
    path = folder / "trainer_state.json"
    if not path.is_file():
        return None
    try:
        step = json.loads(path.read_text(encoding="utf-8"))["global_step"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} can't be read for its global_step ({error}): remove it, and the step is read "
            "from the folder's name"
        ) from error
    return int(step)
