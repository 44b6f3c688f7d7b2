# ruff: noqa: F401 - the imports under TYPE_CHECKING are for readers and type checkers
"""sinkwise: attention rows as compositional data.

Importing this package loads nothing heavy and changes nothing: names are looked up when they
are first used.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

logging.getLogger("sinkwise").addHandler(logging.NullHandler())

_HOME = {
    "errors": (
        "CaptureError",
        "InputTypeError",
        "MemoryBudgetError",
        "MissingExtraError",
        "RowError",
        "RunError",
        "SinkwiseError",
    ),
    "geometry.simplex": (
        "balance_basis",
        "closure",
        "clr",
        "compositional_mean",
        "ilr",
        "perturb",
        "power",
        "replace_zeros",
    ),
    "channels.mass": ("sink_balance", "sink_mass"),
    "channels.content": ("content", "content_dispersion"),
    "channels.entropy": (
        "EntropyChange",
        "EntropySplit",
        "entropy",
        "entropy_change",
        "entropy_split",
    ),
    "channels.entropy_floor": ("content_entropy_floor",),
    "training.alarms": ("Alarms",),
    "training.content_entropy": ("ContentEntropyFloor",),
    "training.monitor": ("Monitor",),
    "distances.logratio": (
        "DistanceSplit",
        "aitchison_distance",
        "content_angle",
        "content_distance",
        "distance_split",
    ),
    "distances.classical": (
        "cosine_distance",
        "euclidean_distance",
        "js_distance",
        "js_divergence",
        "kl_divergence",
    ),
    "rowdata.block": ("HeadId", "RowBlock", "RowSource"),
    "rowdata.arrays": ("Rows", "rows"),
    "studies.collapse": ("CollapseStudy",),
    "studies.compare": ("Comparison", "compare"),
    "studies.distance_matrix": ("head_distances",),
    "studies.head_clustering": ("HeadClustering",),
    "studies.interchange": ("InterchangeStudy",),
    "studies.regime": ("regime_outcome",),
    "studies.regime_fit": ("RegimeFit", "fit_regime"),
    "studies.reversal": ("reversal_rate", "sampled_reversal_rate"),
    "studies.reversal_forms": ("margin_weighted_rate", "nearest_changed", "neighbour_overlap"),
    "studies.scaling": ("Scaling", "scaling"),
    "runs.audit": ("audit", "open_audit"),
    "runs.collapse": ("collapse_study", "open_collapse"),
    "runs.interchange": ("interchange_study", "open_interchange"),
    "studies.audit": ("Audit",),
    "capture.load": ("LoadedModel", "load_model"),
    "capture.pruned.load": ("load_pruned",),
    "capture.source": ("ModelRows",),
    "surgery.interchange": ("exchange_patterns",),
    "surgery.removal": ("remove_heads",),
    "surgery.removal_cost": ("RemovalCost", "removal_cost"),
    "surgery.switch": ("switch_off",),
    "surgery.head_outputs": ("head_outputs",),
    "runs.prune": ("prune_study",),
    "studies.prune_study": ("PruneStudy",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_MODULES = {"theory": "studies.theory"}
"""Modules that are reached by a short name, such as ``sinkwise.theory``."""

__all__ = ["__version__", *sorted({*_MODULE_OF, *_MODULES})]

if TYPE_CHECKING:
    from sinkwise.capture.load import LoadedModel, load_model
    from sinkwise.capture.pruned.load import load_pruned
    from sinkwise.capture.source import ModelRows
    from sinkwise.channels.content import content, content_dispersion
    from sinkwise.channels.entropy import (
        EntropyChange,
        EntropySplit,
        entropy,
        entropy_change,
        entropy_split,
    )
    from sinkwise.channels.entropy_floor import content_entropy_floor
    from sinkwise.channels.mass import sink_balance, sink_mass
    from sinkwise.distances.classical import (
        cosine_distance,
        euclidean_distance,
        js_distance,
        js_divergence,
        kl_divergence,
    )
    from sinkwise.distances.logratio import (
        DistanceSplit,
        aitchison_distance,
        content_angle,
        content_distance,
        distance_split,
    )
    from sinkwise.errors import (
        CaptureError,
        InputTypeError,
        MemoryBudgetError,
        MissingExtraError,
        RowError,
        RunError,
        SinkwiseError,
    )
    from sinkwise.geometry.simplex import (
        balance_basis,
        closure,
        clr,
        compositional_mean,
        ilr,
        perturb,
        power,
        replace_zeros,
    )
    from sinkwise.rowdata.arrays import Rows, rows
    from sinkwise.rowdata.block import HeadId, RowBlock, RowSource
    from sinkwise.runs.audit import audit, open_audit
    from sinkwise.runs.collapse import collapse_study, open_collapse
    from sinkwise.runs.interchange import interchange_study, open_interchange
    from sinkwise.runs.prune import prune_study
    from sinkwise.studies import theory
    from sinkwise.studies.audit import Audit
    from sinkwise.studies.collapse import CollapseStudy
    from sinkwise.studies.compare import Comparison, compare
    from sinkwise.studies.distance_matrix import head_distances
    from sinkwise.studies.head_clustering import HeadClustering
    from sinkwise.studies.interchange import InterchangeStudy
    from sinkwise.studies.prune_study import PruneStudy
    from sinkwise.studies.regime import regime_outcome
    from sinkwise.studies.regime_fit import RegimeFit, fit_regime
    from sinkwise.studies.reversal import reversal_rate, sampled_reversal_rate
    from sinkwise.studies.reversal_forms import (
        margin_weighted_rate,
        nearest_changed,
        neighbour_overlap,
    )
    from sinkwise.studies.scaling import Scaling, scaling
    from sinkwise.surgery.head_outputs import head_outputs
    from sinkwise.surgery.interchange import exchange_patterns
    from sinkwise.surgery.removal import remove_heads
    from sinkwise.surgery.removal_cost import RemovalCost, removal_cost
    from sinkwise.surgery.switch import switch_off
    from sinkwise.training.alarms import Alarms
    from sinkwise.training.content_entropy import ContentEntropyFloor
    from sinkwise.training.monitor import Monitor


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = importlib.import_module(f"sinkwise.{_MODULES[name]}")
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(f"sinkwise.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'sinkwise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
