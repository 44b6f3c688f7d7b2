"""A checkpoint that is one safetensors file beside its config: a folder is made for it to load."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["folder_of_weights", "require_all_weights"]

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".safetensors.index.json")
_SHARD = re.compile(r"-\d+-of-\d+$")
_IN_A_LAYER = re.compile(r"\.\d+\.")


@contextmanager
def folder_of_weights(file: Path) -> Iterator[Path]:
    """Give a folder in the transformers layout that holds `file` and what lies beside it.

    The folder is temporary and links to the files; weights other than `file` are left out.

    Raises
    ------
    CaptureError
        If there is no such file, no ``config.json`` beside it, or it is one of several shards.
    """
    if not file.is_file():
        raise CaptureError(
            f"there is no file {file}: give a .safetensors file that exists, a folder, or a hub id"
        )
    if not (file.parent / "config.json").is_file():
        raise CaptureError(
            f"{file} has no config.json beside it, which says what model it is: copy it there "
            "from the folder that model.save_pretrained(...) wrote"
        )
    if _SHARD.search(file.stem):
        raise CaptureError(
            f"{file} is one of several shards of a model: give the folder, {file.parent}"
        )
    with TemporaryDirectory(prefix="sinkwise-") as made:
        folder = Path(made)
        for other in file.parent.iterdir():
            if other.is_file() and not other.name.endswith(_WEIGHTS):
                _link(other, folder / other.name)
        _link(file, folder / "model.safetensors")
        yield folder


def require_all_weights(model: torch.nn.Module, file: Path) -> None:
    """Refuse a file that leaves weights of the model's layers at random values.

    Raises
    ------
    CaptureError
        Naming the first weight that the file lacks.
    """
    from safetensors import safe_open

    with safe_open(str(file), framework="pt") as opened:
        names = set(opened.keys())
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    bare = {name.removeprefix(prefix) for name in names}
    lost = [
        name
        for name, _ in model.named_parameters()
        # the weights of experts are stored in other shapes than they are run in
        if _IN_A_LAYER.search(name)
        and "experts" not in name
        and name.removeprefix(prefix) not in bare
    ]
    if lost:
        raise CaptureError(
            f"{file} lacks {len(lost)} of the weights of {type(model).__name__}, the first of "
            f"them {lost[0]}; its own names begin with {min(names, default='nothing')}. Save it "
            "with model.save_pretrained(...): a wrapper's state_dict puts 'module.' or "
            "'_orig_mod.' before every name"
        )


def _link(source: Path, target: Path) -> None:
    try:
        target.symlink_to(source.resolve())
    except OSError:  # a file system or a user without links
        shutil.copyfile(source, target)
