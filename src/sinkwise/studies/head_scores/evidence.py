"""What scores read: what heads write, what they attend to, how far apart their patterns are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sinkwise.accumulate.head_outputs import GateGradients, HeadOutputs
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId

if TYPE_CHECKING:
    from sinkwise.studies.audit_base import AuditSums

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """Measurements of one model's heads on calibration documents; H heads, layer-major.

    Attributes
    ----------
    heads
        The heads.
    outputs
        What they write into the residual stream, and the gradients to gates on them.
    profile
        ``(H,)`` by name: ``"sink_mass"``, ``"content_dispersion"`` and whatever else an audit's
        profile holds.
    distances
        ``(H, H)`` by name: ``"content"``, ``"js_divergence/kept"``, ...; NaN where two heads
        share no row.

    Raises
    ------
    RowError
        If `outputs` is of other heads, or an array has another shape.
    """

    heads: tuple[HeadId, ...]
    outputs: HeadOutputs
    profile: Mapping[str, np.ndarray] = field(default_factory=dict)
    distances: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.heads)
        if tuple(self.outputs.heads) != tuple(self.heads):
            raise RowError(
                f"the outputs are of {len(self.outputs.heads)} heads and the rows of {n}, or in "
                "another order: calibrate and audit the same model, all of its layers"
            )
        for what, arrays, shape in (
            ("profile", self.profile, (n,)),
            ("distance", self.distances, (n, n)),
        ):
            for name, array in arrays.items():
                if np.shape(array) != shape:
                    raise RowError(
                        f"{what} {name!r} has shape {np.shape(array)}, expected {shape} for "
                        f"{n} heads"
                    )

    @classmethod
    def of_audit(
        cls,
        audit: AuditSums,
        outputs: HeadOutputs,
        distances: Mapping[str, np.ndarray] | None = None,
    ) -> Evidence:
        """Return the evidence of an audit and a calibration of one model.

        Parameters
        ----------
        audit
            Of the calibration documents.
        outputs
            Of the same documents.
        distances
            Further ``(H, H)`` matrices by name, those an audit doesn't keep.
        """
        profile = {
            str(name): values.to_numpy()
            for name, values in audit.profile.items()
            if values.dims == ("head",)
        }
        found: dict[str, np.ndarray] = {}
        for name, values in audit.distances.items():
            if "convention" in values.dims:
                for convention in values["convention"].to_numpy():
                    found[f"{name}/{convention}"] = values.sel(convention=convention).to_numpy()
            else:
                found[str(name)] = values.to_numpy()
        return cls(tuple(audit.heads), outputs, profile, found | dict(distances or {}))

    @cached_property
    def layers(self) -> np.ndarray:
        """int ``(H,)``: each head's layer."""
        return np.array([head.layer for head in self.heads], dtype=int)

    def distance(self, name: str) -> np.ndarray:
        """Return the distances of a name, ``(H, H)``.

        Raises
        ------
        RowError
            If they were not measured.
        """
        if name not in self.distances:
            raise RowError(
                f"no distance {name!r} was measured; there are "
                f"{', '.join(sorted(self.distances)) or 'none'}"
            )
        return np.asarray(self.distances[name], dtype=np.float64)

    def of_profile(self, name: str) -> np.ndarray:
        """Return a per-head quantity of the audit, ``(H,)``.

        Raises
        ------
        RowError
            If it was not measured.
        """
        if name not in self.profile:
            raise RowError(
                f"no {name!r} was measured; there are {', '.join(sorted(self.profile)) or 'none'}"
            )
        return np.asarray(self.profile[name], dtype=np.float64)

    @property
    def gradients(self) -> Mapping[str, GateGradients]:
        """Gradients to gates on the heads, by label, at least one.

        Raises
        ------
        RowError
            If none were computed.
        """
        if not self.outputs.gradients:
            raise RowError(
                "this calibration holds no gradients to gates on the heads: calibrate with "
                "gradients=True, or choose scores that need none (joint_output, "
                "relative_output_norm)"
            )
        return self.outputs.gradients

    @property
    def leave_one_out(self) -> np.ndarray:
        """``(H,)``: rise of the loss with the head alone switched off.

        Raises
        ------
        RowError
            If it was not measured.
        """
        if self.outputs.leave_one_out is None:
            raise RowError(
                "the loss with each head alone switched off was not measured: run leave_one_out "
                "on the calibration documents first, or leave this score out"
            )
        return np.asarray(self.outputs.leave_one_out, dtype=np.float64)
