"""Array libraries: which namespace, which dtype, and whether values can be looked at.

The only module that knows one array library from another.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from sinkwise.errors import InputTypeError

__all__ = ["Array", "as_arrays", "as_mask", "epsilon", "is_concrete", "to_numpy"]

_NUMPY = (np.ndarray, np.generic)

Array = Any
"""An array of NumPy, PyTorch, JAX or CuPy; plain sequences are taken as NumPy."""


def as_arrays(*values: Any) -> tuple[Any, list[Array]]:
    """Return the array namespace that `values` share and the values as its floating arrays.

    Half precision rises to float32 and integers to float64: sums of attention weights lose
    digits in half precision, and a replaced zero must not be rounded away by an integer dtype.
    """
    arrays = [v if _is_array(v) else _from_python(v) for v in values]
    library = next((a for a in arrays if not isinstance(a, _NUMPY)), arrays[0])
    xp = _namespace(library)
    mixed = {_library_name(a) for a in arrays if not isinstance(a, _NUMPY)}
    if len(mixed) > 1:
        raise InputTypeError(
            f"arrays of {' and '.join(sorted(mixed))} in one call: pass all of one library"
        )
    if not isinstance(library, _NUMPY):
        device = getattr(library, "device", None)
        arrays = [_move(xp, a, device) if isinstance(a, _NUMPY) else a for a in arrays]
    return xp, [_floating(xp, a) for a in arrays]


def as_mask(xp: Any, value: Any, like: Array) -> Array:
    """Return `value` as a boolean array of `like`'s library and device."""
    array = value if _is_array(value) else np.asarray(value)
    if isinstance(array, np.ndarray) and not isinstance(like, _NUMPY):
        array = _move(xp, array, getattr(like, "device", None))
    if not _is_bool(array):
        raise InputTypeError(
            f"a mask must be boolean, got dtype {array.dtype}; pass for example `mask != 0`"
        )
    return array


def epsilon(xp: Any, x: Array) -> float:
    """Distance from 1 to the next number of `x`'s dtype."""
    return float(xp.finfo(x.dtype).eps)


def is_concrete(*arrays: Array) -> bool:
    """Whether values can be looked at: false under ``jit``, ``vmap`` and ``torch.compile``."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return False
    jax = sys.modules.get("jax")
    for a in arrays:
        if torch is not None and isinstance(a, torch.Tensor):
            if torch._C._functorch.is_functorch_wrapped_tensor(a):
                return False
        elif jax is not None and isinstance(a, jax.core.Tracer):
            return False
    return True


def to_numpy(value: Any) -> np.ndarray:
    """Return any array as NumPy: detached, on the host, half precision raised to float32."""
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        return value.cpu().numpy()
    if hasattr(value, "get") and type(value).__module__.startswith("cupy"):
        value = value.get()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _from_python(value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputTypeError(
            f"cannot read a {type(value).__name__} as an array of attention weights: {error}"
        ) from error
    if array.dtype.kind not in "biuf":
        raise InputTypeError(
            f"cannot read a {type(value).__name__} as an array of attention weights; expected "
            "an array of NumPy, PyTorch, JAX or CuPy with the keys on its last axis"
        )
    return array


def _library_name(array: Array) -> str:
    name = type(array).__module__.split(".")[0]
    return "jax" if name.startswith("jax") else name  # its tracers and arrays live apart


def _namespace(array: Array) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        from array_api_compat import torch as namespace  # looked up once, the tracer can't

        return namespace
    return array_namespace(array)


def _move(xp: Any, array: Any, device: Any) -> Array:
    return xp.asarray(array, device=device) if device is not None else xp.asarray(array)


def _is_bool(array: Array) -> bool:
    return str(array.dtype).rsplit(".", maxsplit=1)[-1] == "bool"


def _floating(xp: Any, array: Array) -> Array:
    name = str(array.dtype).rsplit(".", maxsplit=1)[-1]
    if name in ("float64", "float32"):
        return array
    if name in ("bfloat16", "float16"):
        return xp.astype(array, xp.float32)
    if "complex" in name:
        raise InputTypeError(f"attention weights are real numbers, got dtype {array.dtype}")
    # JAX without x64 has no float64: its default is the widest it has
    return xp.astype(array, xp.asarray(0.0).dtype if "jax" in xp.__name__ else xp.float64)
