"""Verdicts and clusters by each channel alone, and which of them a measure follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.channels import CHANNELS
from sinkwise.studies.document_halves import DocumentPairs, HalvesInterval, checked_pairs
from sinkwise.studies.half_clusterings import HalfClusterings
from sinkwise.studies.reversal_table import REVERSAL_NAMES
from sinkwise.studies.verdict_rates import VerdictRates

__all__ = ["CHANNEL_VERDICT_COLUMNS", "channel_verdicts", "channels_alone"]

CHANNEL_VERDICT_COLUMNS = (
    "measure",
    "channel",
    "rate",
    "low",
    "high",
    "bias",
    "note",
    "follows",
    "follows_note",
    "ari",
    "ceiling",
    "sizes_measure",
    "sizes_channel",
    "degenerate",
)
"""Columns of the table, there also when it is empty."""


def channels_alone(documents: Mapping[str, DocumentPairs]) -> tuple[str, ...]:
    """Return the channels among `documents` in which some two heads differ.

    With a single sink key nothing differs within the sink, and that channel has no verdicts.
    """
    return tuple(name for name in CHANNELS if name in documents and documents[name].sums.any())


def channel_verdicts(
    documents: Mapping[str, DocumentPairs],
    n_heads: int,
    *,
    names: Sequence[str] | None = None,
    k: int | Literal["silhouette"] | None = None,
    method: str = "k-medoids",
    halves: int = 100,
    seed: int = 0,
    level: float = 0.95,
    heads: Sequence[HeadId] | None = None,
    clusterings: HalfClusterings | None = None,
) -> pd.DataFrame:
    """Compare every measure with each channel alone: its verdicts and its clusters of heads.

    A channel alone is a distance too: the mean over rows of the absolute gap in sink balance, of
    the absolute gap in content dispersion, or of the direction part.

    Parameters
    ----------
    documents
        Per-document sums and counts of measures and channels, all over the same documents and
        pairs; channels by the names in :data:`~sinkwise.studies.channels.CHANNELS`.
    n_heads
        Number of heads, at least 3.
    names
        Measures to compare; :data:`~sinkwise.studies.reversal_table.REVERSAL_NAMES` where present
        by default.
    k, method
        Of the clusters, as in :func:`~sinkwise.studies.taxonomy.taxonomy`.  k-medoids by default:
        average linkage chains on log-ratio distances.
    halves
        Random halves of the documents behind bias and interval; at most 25 partings are clustered.
    seed
        Of the halves and of the triples they are judged on.
    level
        Two-sided level of the intervals.
    heads
        Names for messages.
    clusterings
        Of the same measures and channels, where another study has made them: `k` is then theirs.

    Returns
    -------
    pandas.DataFrame
        One row per measure and channel: ``measure``, ``channel``; ``rate`` (exact reversal rate
        between the two, over all triples), ``low``, ``high``, ``bias``, ``note`` (as in
        :func:`~sinkwise.studies.reversal_table.reversal_table`); ``follows`` (whether the channel
        is the one with the measure's smallest rate) with ``follows_note`` on that row (empty, or
        which runner-up is within noise); ``ari`` of the clusters, ``ceiling`` (the lower of the
        two), ``sizes_measure``, ``sizes_channel`` and ``degenerate``.

    Raises
    ------
    RowError
        If fewer than two channels are there, or as
        :func:`~sinkwise.studies.reversal_table.reversal_table` raises.

    Notes
    -----
    A runner-up is within noise unless the difference of the two rates, corrected for its bias,
    has an interval above 0 (the same halves, the same triples).  The smallest rate says which
    channel orders the heads most like the measure; it does not say that the others are without
    effect.  O(measures · channels · H^2 log H) for the rates, O(names · halves · triples) for the
    intervals.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.random((2, 45))
    >>> noise = rng.normal(0, 0.01, (8, 45))
    >>> sums = {"balance": first, "direction": second, "js_divergence/kept": first + 0.1 * second}
    >>> pairs = {name: DocumentPairs(s + noise, np.ones((8, 1))) for name, s in sums.items()}
    >>> table = channel_verdicts(pairs, 10, k=3)
    >>> table[table.follows][["measure", "channel", "follows_note"]].values.tolist()
    [['js_divergence/kept', 'balance', '']]
    """
    channels = channels_alone(documents)
    if len(channels) < 2:
        raise RowError(
            f"the channels in which heads differ are {list(channels)}, expected two or more of "
            f"{', '.join(CHANNELS)}: with one there is nothing to choose between"
        )
    if names is None:
        names = [name for name in REVERSAL_NAMES if name in documents]
    if not names:
        raise RowError(f"no measure to compare with the channels; there are {sorted(documents)}")
    together = (*names, *channels)
    chosen, matrices = checked_pairs(documents, n_heads, together, heads, default=())
    rates = VerdictRates(chosen, matrices, halves=halves, seed=seed, level=level)
    if clusterings is None:
        clusterings = HalfClusterings(
            chosen, n_heads, names=together, k=k, halves=min(halves, 25), seed=seed, heads=heads
        )
    found: list[dict[str, Any]] = []
    for name in names:
        values = [rates.exact(name, channel) for channel in channels]
        best, runner_up = np.argsort(values, kind="stable")[:2]
        for i, channel in enumerate(channels):
            agreement = clusterings.agreement((name, method), (channel, method))
            found.append(
                {
                    "measure": name,
                    "channel": channel,
                    "rate": values[i],
                    **_ends(rates.interval(name, channel)),
                    "follows": i == best,
                    "follows_note": rates.doubt(name, channels[best], channels[runner_up])
                    if i == best
                    else "",
                    "ari": agreement.ari,
                    "ceiling": float(np.min(agreement.ceilings)),
                    "sizes_measure": agreement.sizes[0],
                    "sizes_channel": agreement.sizes[1],
                    "degenerate": agreement.degenerate,
                }
            )
    return pd.DataFrame(found, columns=CHANNEL_VERDICT_COLUMNS)


def _ends(found: HalvesInterval) -> dict[str, float | str]:
    return {"low": found.low, "high": found.high, "bias": found.bias, "note": found.note}
