"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from sinkwise.errors import RunError

__all__ = ["read_json", "write_json", "write_whole"]


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write `path` through a temporary file beside it: readers see the old file or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, NaN refused: it is no JSON."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> Any:
    """Read a JSON file of a run.

    Raises
    ------
    RunError
        If it is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing: {path.parent} holds no run of sinkwise") from None
    except NotADirectoryError:
        raise RunError(f"{path.parent} is a file; name the folder of a run") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(
            f"{path} is damaged ({error}): restore it, or audit the documents again into a new "
            "folder"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
