"""Each channel alone against each measure: exact rates, who is followed, and when that is told."""

import numpy as np
import pytest
from scipy.spatial.distance import squareform

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies import half_verdicts
from sinkwise.studies.channel_verdicts import (
    CHANNEL_VERDICT_COLUMNS,
    channel_verdicts,
    channels_alone,
)
from sinkwise.studies.clustering import adjusted_rand_index, cluster_heads
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.reversal import reversal_rate
from sinkwise.studies.reversal_table import reversal_table


def invented(seed, *, heads=12, documents=8, noise=0.02, mix=None):
    """Three channels, and a measure that mixes them."""
    rng = np.random.default_rng(seed)
    pairs = heads * (heads - 1) // 2
    mix = {"balance": 0.7, "dispersion": 0.2, "direction": 0.1} if mix is None else mix
    truth = {name: rng.random(pairs) for name in mix}
    truth["js_divergence/kept"] = sum(w * truth[name] for name, w in mix.items())
    return {
        name: DocumentPairs(
            (t + noise * rng.normal(size=(documents, pairs))) * 4, np.full((documents, 1), 4.0)
        )
        for name, t in truth.items()
    }


def test_rates_and_clusters_by_hand():
    documents = invented(0)
    table = channel_verdicts(documents, 12, k=3)
    assert tuple(table.columns) == CHANNEL_VERDICT_COLUMNS
    assert table.channel.tolist() == ["balance", "dispersion", "direction"]
    measure = squareform(documents["js_divergence/kept"].distances())
    for row in table.itertuples():
        channel = squareform(documents[row.channel].distances())
        assert row.rate == pytest.approx(reversal_rate(measure, channel), abs=1e-15)
        labels = [cluster_heads(d, k=3, method="k-medoids") for d in (measure, channel)]
        assert row.ari == adjusted_rand_index(*labels)
        assert row.sizes_channel == tuple(sorted(np.bincount(labels[1]), reverse=True))
    assert table.channel[table.follows].tolist() == ["balance"]
    assert table.rate[table.follows].item() == table.rate.min()
    assert table.follows_note.tolist() == ["", "", ""]


def test_intervals_are_those_of_the_reversal_table(monkeypatch):
    monkeypatch.setattr(half_verdicts, "_HALF_TRIPLES", 300)  # of 660: the baseline is a sample's
    documents = invented(1)
    mine = channel_verdicts(documents, 12, k=3, halves=40, seed=5).set_index("channel")
    theirs = reversal_table(
        documents, 12, names=("js_divergence/kept", "balance"), halves=40, seed=5
    ).iloc[0]
    for name in ("rate", "low", "high", "bias"):
        assert mine[name]["balance"] == pytest.approx(theirs[name], abs=1e-12)


def test_a_channel_that_is_the_measure_has_no_reversal():
    documents = invented(2, mix={"balance": 1.0, "direction": 0.0}, noise=0.0)
    table = channel_verdicts(documents, 12, k=3)
    row = table[table.channel == "balance"].iloc[0]
    assert row.rate == row.low == row.high == 0 and row.follows and row.ari == 1


def test_channels_that_mean_the_same_are_not_told_apart():
    documents = invented(3, mix={"balance": 0.5, "direction": 0.5}, noise=0.1)
    table = channel_verdicts(documents, 12, k=3)
    best = table[table.follows].iloc[0]
    other = "direction" if best.channel == "balance" else "balance"
    assert best.follows_note == f"{other} is within noise"
    few = channel_verdicts(invented(3, documents=3), 12, k=3)
    assert few.follows_note[0] == "too few documents to tell it from dispersion"
    assert few.low.isna().all() and (few.note == "too few documents").all()
    one = channel_verdicts(invented(3, documents=1), 12, k=3)
    assert one.low.isna().all() and one.ceiling.isna().all() and one.rate.notna().all()


def test_a_channel_in_which_nothing_differs_is_left_out():
    documents = invented(4)
    still = DocumentPairs(0 * documents["balance"].sums, documents["balance"].counts)
    documents["within_sink"] = still
    assert channels_alone(documents) == ("balance", "dispersion", "direction")
    assert "within_sink" not in set(channel_verdicts(documents, 12, k=3).channel)
    only = {"balance": documents["balance"], "direction": still, "content": documents["direction"]}
    with pytest.raises(RowError, match="expected two or more"):
        channel_verdicts(only, 12)
    with pytest.raises(RowError, match="no measure to compare"):
        channel_verdicts({n: documents[n] for n in ("balance", "direction")}, 12)


def test_three_heads_are_enough_and_missing_distances_name_their_heads():
    assert len(channel_verdicts(invented(5, heads=3), 3, k=2)) == 3
    documents = invented(6, heads=4)
    counts = np.full((8, 6), 4.0)
    counts[:, 0] = 0
    documents["content"] = DocumentPairs(documents["balance"].sums * (counts > 0), counts)
    heads = [HeadId(2, i) for i in range(4)]
    with pytest.raises(
        RowError, match="content is nan between layer 2, head 0 and layer 2, head 1"
    ):
        channel_verdicts(documents, 4, names=("content",), heads=heads)


def told_apart(studies, *, gap, noise, documents=8):
    """Share of studies that call one of two channels the one that is followed."""
    told = []
    for seed in range(studies):
        mix = {"balance": 0.5 + gap / 2, "direction": 0.5 - gap / 2}
        table = channel_verdicts(
            invented([91, seed], heads=16, documents=documents, noise=noise, mix=mix), 16, k=3
        )
        told.append(table[table.follows].follows_note.item() == "")
    return np.mean(told)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_a_channel_is_called_followed_by_chance_no_more_than_the_level_says(noise):
    # equal mixing, but each draw of 120 pairs has its own true difference: what must be rare is a
    # call against the truth
    wrong = []
    for seed in range(60):
        truth = invented([92, seed], heads=16, noise=0.0, mix={"balance": 0.5, "direction": 0.5})
        rates = channel_verdicts(truth, 16, k=3).set_index("channel").rate
        seen = channel_verdicts(
            invented([92, seed], heads=16, noise=noise, mix={"balance": 0.5, "direction": 0.5}),
            16,
            k=3,
        )
        best = seen[seen.follows].iloc[0]
        wrong.append(best.follows_note == "" and rates[best.channel] > rates.min())
    assert np.mean(wrong) <= 0.1


def test_a_clear_difference_is_told():
    assert told_apart(3, gap=0.5, noise=0.05) == 1.0
