"""What a command on a model is given: the model, its documents, and a folder it may write to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sinkwise.cli.documents import DocumentFile, demo_texts
from sinkwise.errors import MissingExtraError, RowError, RunError
from sinkwise.runs.begin import only_begun

__all__ = ["check_folder", "load", "read_documents"]


def check_folder(folder: Path, *, resume: bool, again: str) -> None:
    """Refuse a folder that holds something else, or a run where nothing was said of resuming.

    A folder in which a run was begun and no document kept is no run yet.

    Parameters
    ----------
    folder
        Where the command is to write; need not exist.
    resume
        Whether ``--resume`` was typed.
    again
        The command line that goes on with the run.

    Raises
    ------
    RunError
        If `folder` can't be written to; nothing in it was touched.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder} is a file; give a folder: --out DIR")
    if (folder / "manifest.json").is_file():
        if not resume and not only_begun(folder):
            raise RunError(
                f"{folder} already holds a run. To go on with it:\n  {again}\n"
                "To start anew, remove it or choose another folder: --out DIR"
            )
    elif any(folder.iterdir()):
        raise RunError(
            f"{folder} holds files that are not a run of sinkwise; nothing there was touched. "
            "Choose another folder: --out DIR"
        )


def load(model: str, dtype: str, device: str, revision: str | None, trust_remote_code: bool) -> Any:
    """Load a model: a :class:`~sinkwise.capture.load.LoadedModel`.

    Raises
    ------
    MissingExtraError
        If torch or another library of the extra `hf` is absent.
    """
    try:
        from sinkwise.capture.load import load_model

        return load_model(
            model,
            dtype=dtype,
            device=device,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sinkwise"):
            raise
        raise MissingExtraError(
            f'running a model needs {error.name}: pip install "sinkwise[hf]"'
        ) from None


def read_documents(
    source: DocumentFile | None, limit: int | None, *, kind: str, model: str, flag: str = "--texts"
) -> list[Any]:
    """Read the documents a model of `kind` takes; the demo's own where there is no `source`.

    Parameters
    ----------
    source
        From :func:`~sinkwise.cli.documents.locate_documents`.
    limit
        Take so many; all where None.
    kind
        ``LoadedModel.kind``.
    model, flag
        The model and the flag as they were typed, for errors.

    Raises
    ------
    RowError
        If the model reads images and texts came, or the other way round.
    """
    if source is None:
        return demo_texts(limit)
    needed = "images" if kind == "vision" else "texts"
    if source.kind != needed:
        raise RowError(
            f"{model} is a vision model and reads images; {flag} {source.path} is a text file. "
            "Give a folder of images."
            if needed == "images"
            else f"{model} reads text; {flag} {source.path} is a folder of images. "
            "Give a .txt or .jsonl file."
        )
    return source.read(limit)
