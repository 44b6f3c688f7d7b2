"""Per-head sums of everything that one row says alone: masses, balances, entropies.

Sums come straight from log-weights: the content is normalised by its own sum, so a sink of mass
``1 - 1e-12`` still has its content, its entropy and its dispersion to full precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock

__all__ = ["PROFILE_COUNT_OF", "SHARE_THRESHOLDS", "ProfileSums", "profile_sums"]

SHARE_THRESHOLDS = (0.3, 0.8)
"""Sink masses above which rows are counted, as ``over_0.3`` and ``over_0.8``."""

PROFILE_COUNT_OF: Mapping[str, str] = {
    "sink_mass": "rows",
    "virtual_sink_mass": "rows",
    "entropy": "rows",
    "entropy_sink": "rows",
    "entropy_content": "rows",
    "entropy_within_sink": "rows",
    "content_entropy": "content_rows",
    "content_dispersion": "content_rows",
    "content_dispersion_per_part": "content_rows",
    "sink_balance": "balance_rows",
} | {f"over_{eps}": "rows" for eps in SHARE_THRESHOLDS}
"""Which count divides which sum.

``rows`` counts the usable rows of a head.  ``content_rows`` leaves out rows with fewer than two
content parts above zero, ``balance_rows`` also rows whose sink is zero; without rounding zeros
the three are equal.
"""

_COUNTS = ("rows", "content_rows", "balance_rows")
_TILE_ELEMENTS = 1 << 17  # a MiB of float64: the passes over a tile stay in cache


@dataclass(frozen=True)
class ProfileSums:
    """Sums over rows for every head, and how many rows each holds.

    Attributes
    ----------
    n_heads
        Number of heads.
    sums
        float64 ``(heads,)`` by name (:data:`PROFILE_COUNT_OF`); entropies in nats.
    counts
        float64 ``(heads,)`` by name: ``rows``, ``content_rows``, ``balance_rows``.
    """

    n_heads: int
    sums: Mapping[str, np.ndarray]
    counts: Mapping[str, np.ndarray]

    @classmethod
    def zero(cls, n_heads: int) -> ProfileSums:
        """Return the sums of no rows, the neutral element of :meth:`merge`."""
        return cls(
            n_heads,
            {name: np.zeros(n_heads) for name in PROFILE_COUNT_OF},
            {name: np.zeros(n_heads) for name in _COUNTS},
        )

    def merge(self, other: ProfileSums) -> ProfileSums:
        """Return the sums over the rows of both.

        Raises
        ------
        RowError
            If the two hold different numbers of heads.
        """
        if self.n_heads != other.n_heads:
            raise RowError(
                f"profile sums of {self.n_heads} heads met profile sums of {other.n_heads}: "
                "merge only sums of one model and one choice of heads"
            )
        return ProfileSums(
            self.n_heads,
            {name: self.sums[name] + other.sums[name] for name in self.sums},
            {name: self.counts[name] + other.counts[name] for name in self.counts},
        )

    def means(self) -> dict[str, np.ndarray]:
        """Return the mean over rows of every quantity, NaN for a head without rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return {n: v / self.counts[PROFILE_COUNT_OF[n]] for n, v in self.sums.items()}


def profile_sums(block: RowBlock) -> ProfileSums:
    """Sum every per-row quantity of a block over its usable rows, head by head.

    With ``S`` the sink set (r parts), ``C`` the content (n parts), ``s`` the sink mass and ``pi``
    the re-closed content: ``sink_mass`` s; ``sink_balance`` sqrt(rn/(r+n)) (mean log S - mean log
    C); ``content_dispersion`` the norm of clr(pi), ``_per_part`` divided by sqrt(n); ``entropy``
    in nats, exactly the sum of ``entropy_sink`` H_b(s), ``entropy_content`` (1-s) H(pi) and
    ``entropy_within_sink`` s H(p_S/s); ``content_entropy`` H(pi); ``over_0.3`` and ``over_0.8``
    the number of rows whose sink mass is larger.

    Parameters
    ----------
    block
        Rows of one document.  A log-weight of ``-inf`` inside the support is a rounding zero: it
        adds nothing to an entropy, and balance and dispersion are those of the parts above zero.

    Returns
    -------
    ProfileSums
        float64 sums and counts per head.  Rows that are not valid for a head
        (:attr:`~sinkwise.rowdata.block.RowBlock.valid`) are not counted for it.

    Notes
    -----
    O(heads x rows x keys) time in float64 whatever the block's dtype, with working memory of a
    few tiles of a MiB (or of a few rows, where one row is larger).

    Examples
    --------
    >>> import numpy as np
    >>> from sinkwise.rowdata import HeadId, make_block
    >>> p = np.array([[[0.8, 0.1, 0.06, 0.04]]])
    >>> block = make_block(document=0, log_weights=np.log(p), support=np.ones((1, 4), bool),
    ...                    sink=np.array([True, False, False, False]), queries=np.array([3]),
    ...                    heads=[HeadId(0, 0)])
    >>> sums = profile_sums(block)
    >>> float(sums.sums["sink_mass"][0].round(6)), float(sums.sums["entropy"][0].round(6))
    (0.8, 0.706333)
    """
    sums = {name: np.zeros(block.n_heads) for name in PROFILE_COUNT_OF}
    counts = {name: np.zeros(block.n_heads) for name in _COUNTS}
    if block.n_rows == 0 or block.n_heads == 0:
        return ProfileSums(block.n_heads, sums, counts)
    valid = block.valid
    sink_keys = _sink_positions(block.sink)
    for heads, rows in _tiles(block):
        for name, (values, counted) in _tile_values(block, heads, rows, sink_keys).items():
            counted = counted & valid[heads, rows]
            into = counts if values is None else sums
            into[name][heads] += (
                counted.sum(1) if values is None else np.where(counted, values, 0.0).sum(1)
            )
    return ProfileSums(block.n_heads, sums, counts)


def _tiles(block: RowBlock) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and rows that cover the block, each of about a tile's elements."""
    rows = max(1, min(block.n_rows, _TILE_ELEMENTS // max(1, block.n_keys)))
    heads = max(1, _TILE_ELEMENTS // (rows * max(1, block.n_keys)))
    for h in range(0, block.n_heads, heads):
        for q in range(0, block.n_rows, rows):
            yield slice(h, h + heads), slice(q, q + rows)


def _sink_positions(sink: np.ndarray) -> np.ndarray:
    """Columns of each row's sink parts, int ``(rows, r)``, filled up with other columns."""
    r = max(1, int(sink.sum(-1).max()))
    return np.argsort(~sink, axis=-1, kind="stable")[:, :r]


def _tile_values(
    block: RowBlock, heads: slice, rows: slice, sink_keys: np.ndarray
) -> dict[str, tuple[np.ndarray | None, np.ndarray]]:
    """Every quantity of a tile with the rows that count for it; a count has no values."""
    z = block.log_weights[heads, rows]
    per_head = block.support.ndim == 3
    support = block.support[heads, rows] if per_head else block.support[None, rows]
    is_sink = block.sink[rows]
    keys = np.broadcast_to(sink_keys[rows], (z.shape[0], *sink_keys[rows].shape))
    support_keys = keys if per_head else keys[:1]
    in_sink = np.take_along_axis(support, support_keys, -1)
    in_sink = in_sink & np.take_along_axis(is_sink, sink_keys[rows], -1)

    content = _part_values(z, support & ~is_sink)
    within = _part_values(np.take_along_axis(z, keys, -1), in_sink)
    with np.errstate(invalid="ignore", divide="ignore"):
        logit = within.log_total - content.log_total  # of the sink mass
        s, rest = expit(logit), expit(-logit)
        # H_b(s) = -s log s - (1-s) log(1-s), from the logit: nothing cancels at s -> 1
        binary = s * np.logaddexp(0.0, -logit) + rest * np.logaddexp(0.0, logit)
        binary = np.where(np.isfinite(logit), binary, 0.0)
        from_content = rest * content.entropy
        from_within = s * within.entropy
        balance = np.sqrt(within.parts * content.parts / (within.parts + content.parts))
        balance = balance * (within.mean - content.mean)
        per_part = content.dispersion / np.sqrt(content.parts)
    # with neither a sink nor a content part above zero there is no row
    any_mass = (content.parts + within.parts) > 0
    has_content = content.parts >= 2
    has_balance = has_content & (within.parts >= 1)
    values: dict[str, tuple[np.ndarray | None, np.ndarray]] = {
        "rows": (None, any_mass),
        "content_rows": (None, has_content),
        "balance_rows": (None, has_balance),
        "sink_mass": (s, any_mass),
        "virtual_sink_mass": (_virtual_share(block, z, s, within), any_mass),
        "entropy": (binary + from_content + from_within, any_mass),
        "entropy_sink": (binary, any_mass),
        "entropy_content": (from_content, any_mass),
        "entropy_within_sink": (from_within, any_mass),
        "content_entropy": (content.entropy, has_content),
        "content_dispersion": (content.dispersion, has_content),
        "content_dispersion_per_part": (per_part, has_content),
        "sink_balance": (balance, has_balance),
    }
    for eps in SHARE_THRESHOLDS:
        values[f"over_{eps}"] = (s > eps, any_mass)
    return values


def _virtual_share(block: RowBlock, z: np.ndarray, s: np.ndarray, within: _Parts) -> np.ndarray:
    """Share of the row on the virtual sink's column, 0 without one."""
    if not block.virtual:
        return np.zeros_like(s)
    with np.errstate(invalid="ignore"):
        share = s * np.exp(z[..., -1].astype(np.float64) - within.log_total)
    return np.where(s > 0, share, 0.0)


@dataclass(frozen=True)
class _Parts:
    """What a group of parts (the sink, or the content) says by itself, each ``(heads, rows)``."""

    parts: np.ndarray  # how many are above zero
    mean: np.ndarray  # mean log-weight
    log_total: np.ndarray  # logsumexp; -inf when there is no part
    entropy: np.ndarray  # of the re-closed group; 0 when there is no part
    dispersion: np.ndarray  # norm of the clr


def _part_values(z: np.ndarray, mask: np.ndarray) -> _Parts:
    """Evaluate one group of parts; what `mask` leaves out of `z` is never used."""
    if z.size and not z.min() > -np.inf:  # a rounding zero, or anything outside the support
        mask = mask & (z > -np.inf)
    parts = np.broadcast_to(mask.sum(-1), z.shape[:2]).astype(np.float64)
    x = np.where(mask, z, 0.0).astype(np.float64, copy=False)
    present = np.maximum(parts, 1.0)
    mean = x.sum(-1) / present
    x -= mean[..., None]
    x *= mask  # the clr inside the group and 0 outside
    dispersion = np.sqrt(np.einsum("hqk,hqk->hq", x, x))
    # a clr has a part >= 0, so the zeros outside the group can't be a larger maximum
    top = x.max(-1)
    x -= top[..., None]
    e = np.exp(x)
    e *= mask
    total = e.sum(-1)
    total = np.where(parts > 0, total, 1.0)
    log_e = np.log(total)
    entropy = np.maximum(log_e - np.einsum("hqk,hqk->hq", e, x) / total, 0.0)
    log_total = np.where(parts > 0, mean + top + log_e, -np.inf)
    return _Parts(parts, mean, log_total, entropy, dispersion)
