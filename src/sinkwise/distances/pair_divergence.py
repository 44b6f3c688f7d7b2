r"""Jensen-Shannon divergence of all pairs of heads on one row, kept, dropped and zeroed.

Both conventions come from one form.  For compositions p, q with masses a, b put w = a/(a+b),
m = w p + (1-w) q and

    D(p, q; a, b) = (a+b)/2 * [w KL(p|m) + (1-w) KL(q|m)].

The dropped divergence is D of the contents at masses 1, 1.  The kept one splits by the chain
rule into D of the contents at their content masses, D of the sink sets at their sink masses,
and the divergence of the two masses alone; so its digits do not depend on the sink mass.  The
zeroed one is the same without the terms of the sink.

Each D costs one logarithm per pair and key.  With g the mean composition of the heads,

    w KL(p|m) + (1-w) KL(q|m) = w KL(p|g) + (1-w) KL(q|g) - KL(m|g),

the entropy form moved to the mean of the heads, as a matrix product of centred vectors is:
whatever the heads share cancels before it is rounded.  Pairs that are near each other even
against that are computed from ``psi(t) = (1+t) log1p(t) - t >= 0``, term by term in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sinkwise.distances.pair_gram import in_chunks
from sinkwise.distances.pair_index import HeadGroup
from sinkwise.distances.pair_kernels import kernels, psi
from sinkwise.distances.pair_row import SharedRow

__all__ = ["DIVERGENCES", "ZEROED_DIVERGENCES", "divergences_of"]

DIVERGENCES = ("js_divergence/kept", "js_divergence/dropped")

ZEROED_DIVERGENCES = ("js_divergence/zeroed",)
"""Not taken unless asked for."""

NEAR = 1e-2
"""Below this share of the divergences from the mean, their rounding (1e-7 of them) is too much."""

PADDED_TO = 8
"""Keys are padded to whole vector registers, with weight g = 0."""


def divergences_of(
    row: SharedRow, group: HeadGroup, wanted: frozenset[str]
) -> Mapping[str, np.ndarray]:
    """Return the Jensen-Shannon divergences in `wanted`, each float64 ``(n_pairs,)`` in nats.

    Notes
    -----
    O(pairs * keys) time, O(pairs + heads * keys) memory.  The compiled kernel (Numba) and the
    NumPy one agree to the tolerance of float32 logarithms: 1e-6 absolute, 1e-4 relative.
    """
    out: dict[str, np.ndarray] = {}
    if not wanted.intersection(DIVERGENCES + ZEROED_DIVERGENCES):
        return out
    content = relative_to_mean(row.shares)
    exact = lambda heads: row.exact(heads).shares  # noqa: E731
    ones = np.ones(group.n_heads)
    if "js_divergence/dropped" in wanted:
        out["js_divergence/dropped"] = _divergence(content, ones, group, exact)
    if not wanted & {"js_divergence/kept", "js_divergence/zeroed"}:
        return out
    inside = _divergence(content, row.content_mass, group, exact)
    if "js_divergence/zeroed" in wanted:
        out["js_divergence/zeroed"] = inside + _of_masses(row.content_mass, group)
    if "js_divergence/kept" in wanted:
        if row.n_sinks > 1:
            sigma = row.sink_shares
            among_sinks = relative_to_mean(sigma)
            inside += _divergence(among_sinks, row.sink_mass, group, lambda heads: sigma[heads])
        kernels().add_mass_divergences(row.content_mass, row.sink_mass, inside)
        out["js_divergence/kept"] = inside
    return out


def relative_to_mean(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(x, g)``: the shares over their mean over heads, and that mean, float32, padded."""
    heads, n = shares.shape
    mean = shares.mean(axis=0)
    width = -(-n // PADDED_TO) * PADDED_TO
    x = np.ones((heads, width), dtype=np.float32)
    g = np.zeros(width, dtype=np.float32)
    tiny = np.finfo(np.float32).tiny
    seen = mean > tiny  # below, the key adds less than 1e-35 to any divergence
    np.multiply(shares, np.where(seen, 1 / np.where(seen, mean, 1), 0), out=x[:, :n])
    g[:n] = np.where(seen, mean, 0)
    return x, g


def _divergence(
    relative: tuple[np.ndarray, np.ndarray],
    mass: np.ndarray,
    group: HeadGroup,
    exact: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """D of all pairs; `exact` gives the shares of some heads in float64."""
    x, g = relative
    out = np.empty(len(group.first))
    kernels().divergences(x, g, mass, NEAR, out)
    near = np.flatnonzero(np.isnan(out))
    if near.size:
        heads, first, second = group.among(near)
        p, mass = exact(heads), mass[heads]
        out[near] = in_chunks(
            lambda i, j: direct_divergence(p[i], p[j], mass[i], mass[j]),
            first,
            second,
            p.shape[1],
        )
    return out


def _of_masses(mass: np.ndarray, group: HeadGroup) -> np.ndarray:
    """The divergence of one part with these shares ``(heads,)``, the other part left out."""
    first, second = mass[group.first], mass[group.second]
    total, gap = first + second, first - second
    x = np.divide(gap, total, out=np.zeros_like(gap), where=total > 0)
    return total / 4 * (psi(x) + psi(-x))


def direct_divergence(p: np.ndarray, q: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """D of pairs ``(n_pairs, keys)`` with masses ``(n_pairs,)``, every term >= 0."""
    out = np.zeros(len(p))
    differ = (p != q).any(axis=1)
    if not differ.all():
        if differ.any():
            out[differ] = direct_divergence(p[differ], q[differ], a[differ], b[differ])
        return out
    total = a + b
    w = np.divide(a, total, out=np.full_like(total, 0.5), where=total > 0)[:, None]
    m = q + w * (p - q)
    z = np.divide(p - q, m, out=np.zeros_like(m), where=m > 0)
    return total / 2 * (m * (w * psi((1 - w) * z) + (1 - w) * psi(-w * z))).sum(axis=1)
