"""Load a model with heads taken out: transformers' own loader over the class without the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from sinkwise.capture.pruned.heads_kept import HeadsKept
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["RECORD", "read_record", "rebuilt", "record"]

RECORD = "sinkwise_removed"
"""The key of ``config.json`` that says which heads were removed."""
_VERSION = 1


def record(layers: Sequence[HeadsKept]) -> dict[str, Any]:
    """Return what a config holds: the layers that the rest of it doesn't describe."""
    return {"version": _VERSION, "layers": [layer.to_json() for layer in layers]}


def read_record(config: Any) -> tuple[HeadsKept, ...] | None:
    """Return the layers that a config says heads were removed from.

    Returns
    -------
    tuple or None
        Empty where the rest of the config says it all; ``None`` where nothing was removed.

    Raises
    ------
    CaptureError
        If the record is of a kind this version doesn't know.
    """
    held = getattr(config, RECORD, None)
    if held is None:
        return None
    if not isinstance(held, Mapping) or held.get("version") != _VERSION:
        version = held.get("version") if isinstance(held, Mapping) else held
        raise CaptureError(
            f"config.json holds {RECORD} of version {version}, this sinkwise reads version "
            f"{_VERSION}: install the version that saved the model"
        )
    return tuple(HeadsKept.from_json(layer) for layer in held["layers"])


def rebuilt(model_class: Any, where: str, config: Any, **options: Any) -> torch.nn.Module:
    """Load `where` as a `model_class` with heads removed as `config` says, strictly.

    Parameters
    ----------
    model_class
        A transformers model class.
    where
        Folder or hub id.
    options
        Of ``from_pretrained``: dtype, revision, device_map ...

    Raises
    ------
    CaptureError
        If a weight is missing, left over or of another shape; where `model_class` is only a part
        of the class that was saved, a weight of the layers that heads were removed from.
    OSError
        If there are no safetensors weights.
    """
    layers = read_record(config) or ()
    with_heads_out = _without_heads(model_class, layers)
    options |= {"config": config, "use_safetensors": True, "output_loading_info": True}
    try:
        model, info = with_heads_out.from_pretrained(where, **options)
    except RuntimeError as error:
        raise CaptureError(
            f"the weights in {where} aren't those of the {model_class.__name__} with heads removed "
            f"that its config.json describes ({str(error).splitlines()[0]}): keep the config.json "
            "and the weights of one save_pretrained together"
        ) from error
    # a part of what was saved (AutoModel of a model with a head) may lack keys, not these layers
    whole = model_class.__name__ in (getattr(config, "architectures", None) or ())
    parts = [name for layer in layers for name in (layer.attention, layer.output)]
    wrong = {
        name: sorted(
            str(key)
            for key in info.get(name) or ()
            if whole or any(f"{part}." in str(key) for part in parts)
        )
        for name in ("missing_keys", "unexpected_keys", "mismatched_keys")
    }
    if any(wrong.values()):
        listed = "; ".join(f"{name}: {', '.join(keys[:4])}" for name, keys in wrong.items() if keys)
        raise CaptureError(
            f"the weights in {where} aren't those that its config.json describes ({listed}): keep "
            "the config.json and the weights of one save_pretrained together"
        )
    model.__class__ = model_class
    return model


def _without_heads(model_class: Any, layers: Sequence[HeadsKept]) -> Any:
    """A class whose instances are built with the heads out, to be loaded and then renamed."""
    from sinkwise.capture.pruned.take_out import take_out

    class WithoutHeads(model_class):  # type: ignore[misc]
        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            for layer in layers:
                take_out(self, layer, ExitStack())

    WithoutHeads.__name__ = model_class.__name__
    WithoutHeads.__qualname__ = model_class.__qualname__
    WithoutHeads.__module__ = model_class.__module__
    return WithoutHeads
