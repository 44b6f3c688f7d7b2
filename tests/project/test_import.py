"""Importing sinkwise loads nothing heavy and changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest


def run(code: str) -> object:
    """Run `code` in a fresh interpreter; what it prints last is JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_heavy_is_loaded():
    loaded = run("""
        import json, sys
        import sinkwise
        print(json.dumps(sorted(
            {"accelerate", "jax", "numba", "plotly", "sklearn", "torch", "transformers", "typer"}
            & set(sys.modules)
        )))
    """)
    assert loaded == []


def test_the_numerical_core_on_numpy_loads_no_other_array_library():
    loaded = run("""
        import json, sys
        import numpy as np
        import sinkwise as sw
        p = np.array([0.5, 0.3, 0.2])
        sw.content_distance(p, p[::-1], sink=0)
        sw.js_divergence(p, p[::-1], sink=0, convention="kept")
        sw.entropy_split(p, sink=0)
        print(json.dumps(sorted(
            {"jax", "numba", "plotly", "sklearn", "torch", "transformers"} & set(sys.modules)
        )))
    """)
    assert loaded == []


STATE = """
    import json, logging, os, signal, sys, threading, warnings
    import numpy as np
    import pandas as pd
    import xarray as xr

    def state():
        found = {
            "filters": [repr(entry) for entry in warnings.filters],
            "handlers": [repr(handler) for handler in logging.getLogger().handlers],
            "levels": [logging.getLogger().level, logging.getLogger("sinkwise").level],
            "hooks": [repr(sys.excepthook), repr(sys.displayhook), repr(sys.meta_path)],
            "path": list(sys.path),
            "environment": dict(os.environ),
            "signals": [repr(signal.getsignal(signal.SIGINT))],
            "threads": threading.active_count(),
            "numpy": [np.geterr(), repr(np.get_printoptions())],
            "pandas": sorted(pd.api.extensions.__all__),
            "accessors": sorted(name for name in dir(xr.Dataset) if not name.startswith("_")),
        }
        more(found)
        return json.dumps(found, default=str, sort_keys=True)
"""

COMPARE = """
    before = state()
    import sinkwise
    for name in sinkwise.__all__:
        try:
            getattr(sinkwise, name)
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("sinkwise"):
                raise
    after = state()
    print(json.dumps([before, after]))
"""


def test_nothing_is_changed():
    before, after = run(
        STATE
        + "\n    def more(found): pass\n"
        + COMPARE.split("for name")[0]
        + ("after = state()\n    print(json.dumps([before, after]))\n")
    )
    assert after == before


def test_every_public_name_leaves_pytorch_and_transformers_as_they_were():
    pytest.importorskip("transformers")
    more = """
    import sklearn  # sets KMP_* variables of OpenMP itself, as it is imported
    import torch
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def more(found):
        found["attention"] = sorted(ALL_ATTENTION_FUNCTIONS.valid_keys())
        found["masks"] = sorted(ALL_MASK_ATTENTION_FUNCTIONS.valid_keys())
        found["hooks of modules"] = [
            len(torch.nn.modules.module._global_forward_hooks),
            len(torch.nn.modules.module._global_forward_pre_hooks),
        ]
        found["torch"] = [
            torch.is_grad_enabled(),
            str(torch.get_default_dtype()),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            repr(torch.nn.functional.scaled_dot_product_attention),
        ]
    """
    before, after = run(STATE + more + COMPARE)
    assert after == before


def test_every_public_name_is_there_and_documented():
    missing = run("""
        import json
        import sinkwise
        print(json.dumps([
            name for name in sinkwise.__all__
            if name != "__version__" and not (getattr(sinkwise, name).__doc__ or "").strip()
        ]))
    """)
    assert missing == []
