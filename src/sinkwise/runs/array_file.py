"""Named arrays as a file: written whole, read without pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sinkwise.errors import RunError
from sinkwise.runs.files import write_whole

__all__ = ["read_arrays", "write_arrays"]


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, whole or not at all."""
    whole = dict(arrays)
    write_whole(path, lambda file: np.savez_compressed(file, allow_pickle=False, **whole))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what :func:`write_arrays` wrote.

    Raises
    ------
    RunError
        If the file is damaged; the message says that it is measured anew once it is gone.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(
            f"{path} is damaged ({error}): remove it and go on with resume=True (--resume); it is "
            "measured anew"
        ) from error
