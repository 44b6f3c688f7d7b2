"""Shares of the squared Aitchison distance that the three channels take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkwise.report.snapshot import condensed, matrix_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["CHANNELS", "channel_shares", "channel_shares_by_layer"]

CHANNELS = {
    "balance": "how much to the sink",
    "dispersion": "how sharply on content",
    "direction": "which content",
    "within_sink": "within the sink set",
}


def channel_shares(distances: xr.Dataset) -> dict[str, float]:
    """Return each channel's share of the squared Aitchison distance, over all pairs of heads.

    Mean squares over rows add up exactly, so the shares sum to 1.  Pairs without a distance
    are left out; every share is NaN where no pair has one, or where all distances are 0.
    """
    return _shares({name: condensed(square) for name, square in _squares(distances).items()})


def channel_shares_by_layer(distances: xr.Dataset) -> list[dict[str, float]]:
    """Return ``layer``, a share per channel, and ``total``: the layer's heads against all others.

    ``total`` is the mean over pairs of the mean squared distance.
    """
    layer = distances["layer"].to_numpy()
    squares = _squares(distances)
    other = ~np.eye(layer.size, dtype=bool)
    shares = []
    for number in np.unique(layer).tolist():
        rows = layer == number
        parts = {name: square[rows][other[rows]] for name, square in squares.items()}
        whole = sum(parts.values())
        finite = whole[np.isfinite(whole)]
        mean = float(finite.mean()) if finite.size else np.nan
        shares.append({"layer": number, **_shares(parts), "total": mean})
    return shares


def _squares(distances: xr.Dataset) -> dict[str, np.ndarray]:
    return {
        name: matrix_of(distances, f"{name}_rms") ** 2
        for name in CHANNELS
        if f"{name}_rms" in distances
    }


def _shares(parts: dict[str, np.ndarray]) -> dict[str, float]:
    if not parts:
        return {}
    finite = np.isfinite(np.stack(list(parts.values()))).all(0)
    sums = {name: float(part[finite].sum()) for name, part in parts.items()}
    total = sum(sums.values())
    return {name: value / total if total > 0 else np.nan for name, value in sums.items()}
