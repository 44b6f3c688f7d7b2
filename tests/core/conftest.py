"""Array libraries the numerical core promises, declared once and used to parametrise its tests."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

LIBRARIES = ("numpy", "torch", "jax")


class Library:
    """One array library: make an array of it, and read one back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = importlib.import_module("jax.numpy" if name == "jax" else name)
        if name == "jax":
            importlib.import_module("jax").config.update("jax_enable_x64", True)

    def array(self, value, dtype="float64"):
        value = np.asarray(value)
        if value.dtype == bool:
            return self.module.asarray(value)
        return self.module.asarray(value, dtype=getattr(self.module, dtype))

    @staticmethod
    def numpy(value):
        if hasattr(value, "detach"):
            value = value.detach()
        return np.asarray(value)


@pytest.fixture(params=LIBRARIES)
def library(request) -> Library:
    return Library(request.param)


def random_rows(rng, *shape, spread=2.0):
    """Random compositions, float64, no zeros."""
    z = rng.normal(size=shape) * spread
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)
