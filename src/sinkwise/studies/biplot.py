"""A biplot of heads as compositions: what they share out, and along which parts they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from sinkwise.accumulate.placement import OFFSET_EDGES
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.audit_tables import head_coords
from sinkwise.studies.document_store import DocumentStore

__all__ = ["attention_parts", "biplot"]


def biplot(
    parts: np.ndarray,
    names: Sequence[str],
    heads: Sequence[HeadId],
    *,
    scaling: Literal["form", "covariance"] = "form",
    dimensions: int = 2,
) -> xr.Dataset:
    """Draw heads as points and parts as arrows, from the principal axes of their log-ratios.

    Parameters
    ----------
    parts
        ``(heads, parts)`` positive shares; rows need not be closed.
    names
        One name per part.
    heads
        The heads.
    scaling
        ``"form"``: distances between points approximate Aitchison distances between heads;
        ``"covariance"``: the length of the link between two arrow tips approximates the standard
        deviation over heads of the parts' log-ratio.
    dimensions
        Axes to keep, at most as many as there are.

    Returns
    -------
    xarray.Dataset
        ``points`` over (``head``, ``axis``), ``arrows`` over (``part``, ``axis``) and
        ``explained`` over ``axis``, each axis's share of the total variance of the centred
        log-ratios (NaN where all heads are the same composition).  ``points @ arrows.T`` is the
        best approximation of that rank to the double-centred log-ratios.

    Raises
    ------
    RowError
        On shares that are not positive (naming head and part), fewer than 2 heads or 2 parts.

    Notes
    -----
    Deterministic: each axis is turned so that its longest arrow points to its positive side.
    O(heads · parts²).

    References
    ----------
    Aitchison and Greenacre (2002), Biplots of compositional data.

    Examples
    --------
    >>> shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    >>> found = biplot(shares, ["sink", "near", "far"], [HeadId(0, h) for h in range(3)])
    >>> round(float(found.explained.sum()), 12)  # three parts span a plane
    1.0
    """
    values = np.asarray(parts, dtype=np.float64)
    if values.shape != (len(heads), len(names)) or min(values.shape) < 2:
        raise RowError(
            f"parts have shape {values.shape} for {len(heads)} heads and {len(names)} parts, "
            "expected at least 2 of each; a part that some head has nothing of was left out"
        )
    if not (np.isfinite(values) & (values > 0)).all():
        head, part = (int(i) for i in np.argwhere(~(np.isfinite(values) & (values > 0)))[0])
        raise RowError(
            f"head {heads[head].label} has {values[head, part]} of part {names[part]!r}, expected "
            "a positive share: leave the part out, or amalgamate it with its neighbour"
        )
    logs = np.log(values)
    logs -= logs.mean(1, keepdims=True)
    logs -= logs.mean(0)
    left, size, right = np.linalg.svd(logs, full_matrices=False)
    kept = min(dimensions, len(size))
    turn = np.sign(right[np.arange(len(size)), np.abs(right).argmax(1)])
    left, right = left * turn, right * turn[:, None]
    root = np.sqrt(len(heads) - 1)
    if scaling == "form":
        points, arrows = left * size, right.T
    elif scaling == "covariance":
        points, arrows = left * root, right.T * size / root
    else:
        raise RowError(f"scaling is {scaling!r}, expected 'form' or 'covariance'")
    total = float((size**2).sum())
    explained = size**2 / total if total > 0 else np.full(len(size), np.nan)
    return xr.Dataset(
        {
            "points": (("head", "axis"), points[:, :kept]),
            "arrows": (("part", "axis"), arrows[:, :kept]),
            "explained": ("axis", explained[:kept]),
        },
        head_coords(heads, "head") | {"part": list(names), "axis": np.arange(1, kept + 1)},
        {"scaling": scaling},
    )


def attention_parts(store: DocumentStore) -> tuple[np.ndarray, list[str]]:
    """Return every head's mean shares: the sink, and content by its offset from the query.

    Returns
    -------
    parts
        ``(heads, parts)`` means over rows; each head's sum to 1 before a part is left out.
    names
        ``"sink"``, then ``"0"`` (the query's own key), ``"1"``, ``"2–3"``, ``"4–7"``, ... keys
        behind the query, and ``"ahead 1"``, ... where rows see them.  A part that some head has
        nothing of (outside its window, or never in sight) is left out.
    """
    sums, counts = store.profile("sink_mass")
    mass = sum(store.placement(d).offset_mass for d in store.documents)
    rows = sum(store.placement(d).rows for d in store.documents)
    octave = np.concatenate([[0], 1 + np.log2(np.array(OFFSET_EDGES[1:])).astype(int)])
    labels, columns = ["sink"], [sums.sum(0) / counts.sum(0)]
    half = len(OFFSET_EDGES)
    for side, prefix in ((np.asarray(mass)[:, :half], ""), (np.asarray(mass)[:, half:], "ahead ")):
        for number in range(int(octave.max()) + 1):
            low = 0 if number == 0 else 2 ** (number - 1)
            high = 0 if number == 0 else 2**number - 1
            labels.append(f"{prefix}{low}" if low == high else f"{prefix}{low}–{high}")
            columns.append(side[:, octave == number].sum(1) / rows)
    found = np.stack(columns, axis=1)
    kept = np.asarray((found > 0).all(0))
    return found[:, kept], [label for label, keep in zip(labels, kept, strict=True) if keep]
