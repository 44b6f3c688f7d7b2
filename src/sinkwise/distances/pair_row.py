"""One row of several heads with one support: every quantity that the pair measures share."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.special import expit

from sinkwise.distances.pair_kernels import kernels

__all__ = ["UNIFORM_ULPS", "SharedRow", "flat_norm"]

UNIFORM_ULPS = 4
"""A clr vector of at most this many ulp per part (root mean square) has no direction."""


def flat_norm(n_parts: int, dtype: np.dtype) -> float:
    """Norm up to which a clr vector counts as that of a uniform content."""
    # a content this flat lies within 1 of its maximum: the ulp is that of 1
    return UNIFORM_ULPS * float(np.finfo(dtype).eps) * float(np.sqrt(n_parts))


class SharedRow:
    """The same row seen by several heads: content and sink parts, dense and of one support.

    Everything ``(heads, parts)`` has the dtype of the log-weights; everything ``(heads,)`` is
    float64, for it is cheap and decides how many digits the pairs keep.

    Parameters
    ----------
    content
        ``(heads, n)`` log-weights of the content parts, n >= 2.
    sinks
        ``(heads, r)`` log-weights of the sink parts, r >= 1.
    """

    def __init__(self, content: np.ndarray, sinks: np.ndarray) -> None:
        self.content = content
        self.sinks = sinks

    @property
    def n_sinks(self) -> int:
        """Number of sink parts r."""
        return self.sinks.shape[1]

    def exact(self, heads: np.ndarray) -> SharedRow:
        """The same row of some heads in float64, for the few pairs that need more digits."""
        return SharedRow(
            self.content[heads].astype(np.float64), self.sinks[heads].astype(np.float64)
        )

    # ---- log-ratios --------------------------------------------------------------------------

    @cached_property
    def _top(self) -> np.ndarray:
        return self.content.max(axis=1, keepdims=True)

    @cached_property
    def _below_top(self) -> np.ndarray:
        # the maximum goes first: equal parts give an exact 0 whatever the logits' offset
        return self.content - self._top

    @cached_property
    def _mean_below_top(self) -> np.ndarray:
        return self._below_top.mean(axis=1, keepdims=True)

    @property
    def _flat(self) -> float:
        return flat_norm(self.content.shape[1], self.content.dtype)

    @cached_property
    def _directions(self) -> tuple[np.ndarray, np.ndarray]:
        return kernels().directions(self.content, self._top[:, 0], self._flat)

    @property
    def dispersion(self) -> np.ndarray:
        """``(heads,)`` norm of the content's clr."""
        return self._directions[0]

    @cached_property
    def uniform(self) -> np.ndarray:
        """bool ``(heads,)``: content that is uniform to rounding, hence without direction."""
        return self.dispersion <= self._flat

    @property
    def unit(self) -> np.ndarray:
        """``(heads, n)`` directions of the contents' clr, moved to a mean of 0."""
        return self._directions[1]

    @cached_property
    def balance(self) -> np.ndarray:
        """``(heads,)`` sink balance."""
        n, r = self.content.shape[1], self.n_sinks
        sinks = self.sinks.astype(np.float64) - self._top
        return np.sqrt(r * n / (r + n)) * (sinks.mean(axis=1) - self._mean_below_top[:, 0])

    @cached_property
    def sink_clr(self) -> np.ndarray:
        """``(heads, r)`` float64 clr of the sink set alone."""
        x = self.sinks.astype(np.float64)
        x = x - x.max(axis=1, keepdims=True)
        return x - x.mean(axis=1, keepdims=True)

    # ---- shares ------------------------------------------------------------------------------

    @cached_property
    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        return kernels().shares(self.content, self._top[:, 0])

    @cached_property
    def shares(self) -> np.ndarray:
        """``(heads, n)`` content composition."""
        return self._shares[0]

    @cached_property
    def _sink_log_total(self) -> tuple[np.ndarray, np.ndarray]:
        x = self.sinks.astype(np.float64)
        top = x.max(axis=1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)  # a sink that is all rounding zeros
        weights = np.exp(x - top)
        return weights, top[:, 0]

    @cached_property
    def _sink_logit(self) -> np.ndarray:
        weights, top = self._sink_log_total
        with np.errstate(divide="ignore"):
            sink = np.log(weights.sum(axis=1)) + top
        return sink - (np.log(self._shares[1].astype(np.float64)) + self._top[:, 0])

    @cached_property
    def sink_mass(self) -> np.ndarray:
        """``(heads,)`` total share of the sink set."""
        return expit(self._sink_logit)

    @cached_property
    def content_mass(self) -> np.ndarray:
        """``(heads,)`` total share of the content, with its digits at any sink mass."""
        return expit(-self._sink_logit)

    @cached_property
    def sink_shares(self) -> np.ndarray:
        """``(heads, r)`` float64 composition of the sink set (uniform if it is all zero)."""
        weights = self._sink_log_total[0]
        total = weights.sum(axis=1, keepdims=True)
        return np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / self.n_sinks)
