"""Versions of everything that a result may hang on."""

from __future__ import annotations

import platform
import sys

__all__ = ["versions"]


def versions() -> dict[str, str]:
    """Return the versions of sinkwise, Python and the libraries that are loaded."""
    import sinkwise

    found = {"sinkwise": sinkwise.__version__, "python": platform.python_version()}
    for name in ("numpy", "torch", "transformers"):
        module = sys.modules.get(name)
        if module is not None:
            found[name] = str(getattr(module, "__version__", ""))
    return found
