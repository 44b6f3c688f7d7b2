"""Load a model that heads were removed from, as ``save_pretrained`` saved it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sinkwise.capture.load import located, not_loaded, on_device, torch_dtype, unreadable
from sinkwise.capture.pruned.rebuild import RECORD, read_record, rebuilt
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["load_pruned"]


def load_pruned(
    name: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    device: str = "cpu",
    revision: str | None = None,
) -> torch.nn.Module:
    """Load a model saved after :func:`~sinkwise.remove_heads`, equal to it bit for bit.

    Weights are read as safetensors alone; nothing is unpickled, and no code of the checkpoint
    runs.  :func:`~sinkwise.load_model` loads such a folder too, with its tokenizer, in float32.

    Parameters
    ----------
    name
        The folder that ``save_pretrained`` wrote, or a hub id.
    dtype
        ``"auto"`` for the dtype it was saved in, ``"float32"``, ``"bfloat16"`` or ``"float16"``.
    device
        Where to put it: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, or ``"auto"`` to spread
        it over all accelerators.
    revision
        Hub revision: a branch, tag or commit.

    Returns
    -------
    torch.nn.Module
        A model of the class that was saved, in evaluation mode.

    Raises
    ------
    CaptureError
        If there is no such model, no heads were removed from it, its weights aren't safetensors,
        or they aren't those that its config describes.
    MissingExtraError
        If torch or transformers is not installed.

    Examples
    --------
    >>> import tempfile, torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from sinkwise import remove_heads
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11)).eval()
    >>> smaller = remove_heads(model, [(0, 1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     smaller.save_pretrained(folder)
    ...     again = load_pruned(folder)
    >>> ids = torch.tensor([[1, 2, 3]])
    >>> bool(torch.equal(again(ids).logits, smaller(ids).logits))
    True
    """
    from transformers import AutoConfig

    name, where, options = located(name, revision)
    try:
        config = AutoConfig.from_pretrained(where, **options)
        if read_record(config) is None:
            raise CaptureError(
                f"no heads were removed from {name!r} (its config.json has no {RECORD}), so it "
                f'loads like any model: type sinkwise.load_model("{name}")'
            )
        if device == "auto":
            options["device_map"] = "auto"
        model = rebuilt(_saved_class(config), where, config, dtype=torch_dtype(dtype), **options)
    except unreadable() as error:
        raise not_loaded(name, where, error) from error
    return on_device(model, device).eval()


def _saved_class(config: Any) -> Any:
    import transformers

    names = getattr(config, "architectures", None) or ()
    found = getattr(transformers, names[0], None) if names else None
    if found is None:
        raise CaptureError(
            f"config.json names the class {', '.join(names) or 'of no model'} (architectures), "
            "expected one of transformers' own: a model that brings its own code can't be rebuilt "
            "without its heads"
        )
    return found
