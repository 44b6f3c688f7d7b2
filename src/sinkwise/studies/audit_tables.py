"""What an audit shows of its sums: profiles and distances as labelled datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkwise.accumulate.intervals import jackknife_mean
from sinkwise.accumulate.profile import SHARE_THRESHOLDS
from sinkwise.rowdata import HeadId
from sinkwise.studies.document_store import DocumentStore
from sinkwise.studies.head_matrix import square

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["CLASSICAL", "CONVENTIONS", "distance_dataset", "head_coords", "profile_dataset"]

PROFILE = (
    "sink_mass",
    "virtual_sink_mass",
    "sink_balance",
    "content_dispersion",
    "content_dispersion_per_part",
    "entropy",
    "entropy_sink",
    "entropy_content",
    "entropy_within_sink",
    "content_entropy",
)
MEANS = (
    "content",
    "content_angle",
    "aitchison",
    "dispersion",
    "direction",
    "balance",
    "within_sink",
    "larger_content_mass",
    "cosine_ceiling",
)
SQUARES = ("content", "aitchison", "dispersion", "direction", "balance", "within_sink")
CLASSICAL = ("cosine", "js_divergence", "euclidean")
CONVENTIONS = ("kept", "dropped")

_UNITS = {
    "sink_mass": "share",
    "virtual_sink_mass": "share",
    "content_angle": "rad",
    "cosine": "1",
    "euclidean": "share",
    "larger_content_mass": "share",
    "cosine_ceiling": "1",
}


def profile_dataset(store: DocumentStore, heads: Sequence[HeadId], level: float) -> xr.Dataset:
    """Return every per-head quantity with its interval, over ``head`` (and ``eps``)."""
    import xarray as xr

    variables: dict[str, Any] = {}
    for name in PROFILE:
        unit = {"units": _UNITS.get(name, "nat")}
        interval = jackknife_mean(*store.profile(name), level=level)
        for suffix, value in zip(("", "_low", "_high"), interval, strict=True):
            variables[name + suffix] = (("head",), value, unit)
    over = [jackknife_mean(*store.profile(f"over_{eps}"), level=level) for eps in SHARE_THRESHOLDS]
    for i, suffix in enumerate(("", "_low", "_high")):
        value = np.stack([interval[i] for interval in over], axis=-1)
        variables["share_over" + suffix] = (("head", "eps"), value, {"units": "share of rows"})
    weighted = jackknife_mean(*_value_weighted(store), level=level)
    for suffix, value in zip(("", "_low", "_high"), weighted, strict=True):
        unit = {"units": "share"}
        variables["value_weighted_sink_mass" + suffix] = (("head",), value, unit)
    variables["rows"] = (("head",), store.profile("sink_mass")[1].sum(0))
    coords = head_coords(heads, "head") | {"eps": list(SHARE_THRESHOLDS)}
    return xr.Dataset(variables, coords, {"level": level})


def _value_weighted(store: DocumentStore) -> tuple[np.ndarray, np.ndarray]:
    found = [store.placement(d) for d in store.documents]
    return np.stack([p.value_sink_mass for p in found]), np.stack([p.value_rows for p in found])


def distance_dataset(store: DocumentStore, heads: Sequence[HeadId]) -> xr.Dataset:
    """Return every mean distance between heads, over ``head`` and ``other``."""
    import xarray as xr

    def matrix(name: str) -> np.ndarray:
        return square(store.pairs(name).distances(), len(heads))

    def variable(name: str, values: np.ndarray) -> tuple[tuple[str, str], np.ndarray, dict]:
        return ("head", "other"), values, {"units": _UNITS.get(name, "nat")}

    names = store.pair_names
    variables: dict[str, Any] = {}
    for name in (n for n in MEANS if n in names):
        variables[name] = variable(name, matrix(name))
    for name in (n for n in SQUARES if f"{n}_sq" in names):
        variables[f"{name}_rms"] = variable(name, np.sqrt(matrix(f"{name}_sq")))
    for name in CLASSICAL:
        found = [matrix(f"{name}/{c}") for c in CONVENTIONS]
        unit = {"units": _UNITS.get(name, "nat")}
        variables[name] = (("convention", "head", "other"), np.stack(found), unit)
    coords = head_coords(heads, "head") | head_coords(heads, "other", "other_")
    return xr.Dataset(variables, coords | {"convention": list(CONVENTIONS)})


def head_coords(heads: Sequence[HeadId], dim: str, prefix: str = "") -> dict[str, Any]:
    """Return the coordinates of a head dimension: number, layer, index and label."""
    return {
        dim: np.arange(len(heads)),
        f"{prefix}layer": (dim, [h.layer for h in heads]),
        f"{prefix}index": (dim, [h.index for h in heads]),
        f"{prefix}label": (dim, [h.label for h in heads]),
    }
