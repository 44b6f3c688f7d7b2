"""Shares of the channels: they add up, they agree with brute force, their intervals cover."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkwise as sw
from sinkwise.accumulate.documents import document_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.channels import (
    CHANNEL_COLUMNS,
    CHANNEL_SUMS,
    CHANNELS_BY_LAYER_COLUMNS,
    channel_share_matrices,
    channel_shares,
    channel_shares_by_layer,
    channel_table,
    channel_table_by_layer,
)
from sinkwise.studies.document_halves import DocumentPairs, document_pairs

NAMES = tuple(CHANNEL_SUMS)


def invented(rng, *, documents=5, pairs=10, rows=None, channels=NAMES[:3]):
    """Squares of every channel, with their row counts."""
    counts = rng.integers(3, 9, (documents, pairs)).astype(float) if rows is None else rows
    return {
        name: DocumentPairs(rng.gamma(2.0, 1.0 + i, (documents, pairs)) * counts, counts)
        for i, name in enumerate(channels)
    }


def attention(rng, *, heads=4, queries=5, keys=7):
    z = rng.normal(size=(heads, queries, keys)) * rng.gamma(2.0, 1.0, (heads, 1, 1))
    z[:, :, 0] += 2 * rng.normal(size=(heads, 1))
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), sinks=st.sampled_from([(0,), (0, 2)]))
def test_squares_of_the_channels_add_up_to_the_aitchison_square(seed, sinks):
    p = attention(np.random.default_rng(seed))
    sums = document_sums(sw.rows(p, sink=sinks, causal=False).blocks())
    found = document_pairs(sums, (*CHANNEL_SUMS.values(), "aitchison_sq"))
    whole = found.pop("aitchison_sq").distances()
    parts = np.stack([found[name].distances() for name in CHANNEL_SUMS.values()])
    # float64 sums of some dozen squares up to ~500
    np.testing.assert_allclose(parts.sum(0), whole, rtol=1e-11, atol=1e-11)
    squares = {name: found[key] for name, key in CHANNEL_SUMS.items()}
    table = channel_table(squares)
    assert table.share.sum() == pytest.approx(1, abs=1e-12)
    assert table.share.to_numpy() == pytest.approx(parts.sum(1) / whole.sum(), rel=1e-9)
    within = table.set_index("channel").share["within_sink"]
    assert (within == 0) == (len(sinks) == 1)


def test_shares_of_two_rows_are_those_of_their_distance_split():
    p = attention(np.random.default_rng(1), heads=2, queries=1)
    sums = document_sums(sw.rows(p, sink=0, causal=False).blocks())
    found = document_pairs(sums, tuple(CHANNEL_SUMS.values()))
    shares = channel_share_matrices(
        {n: found[k] for n, k in CHANNEL_SUMS.items()}, [HeadId(0, 0), HeadId(0, 1)]
    )
    split = sw.distance_split(p[0, 0], p[1, 0], sink=0)
    for name in NAMES:
        want = getattr(split, name) ** 2 / split.total**2
        assert float(shares.sel(channel=name)[0, 1]) == pytest.approx(want, rel=1e-9, abs=1e-12)
    assert np.isnan(shares[:, 0, 0]).all()
    assert shares.other_label.to_numpy().tolist() == ["L0H0", "L0H1"]


def test_the_interval_is_the_jackknife_of_log_odds_by_hand():
    squares = invented(np.random.default_rng(2), documents=4)

    def odds(keep):
        means = [squares[n].sums[keep].sum(0) / squares[n].counts[keep].sum(0) for n in squares]
        share = np.mean(means, axis=1) / np.mean(means, axis=1).sum()
        return np.log(share / (1 - share))

    without = np.array([odds([j for j in range(4) if j != i]) for i in range(4)])
    error = np.sqrt(3 / 4 * ((without - without.mean(0)) ** 2).sum(0))
    t = 3.182446305284263  # two-sided 95 %, 3 degrees of freedom (tables)
    table = channel_table(squares)
    assert tuple(table.columns) == CHANNEL_COLUMNS
    for sign, column in ((-1, "low"), (1, "high")):
        want = 1 / (1 + np.exp(-(odds([0, 1, 2, 3]) + sign * t * error)))
        assert table[column].to_numpy() == pytest.approx(want, rel=1e-9)


def test_layers_are_their_heads_against_all_others():
    rng = np.random.default_rng(3)
    heads = [HeadId(0, 0), HeadId(0, 1), HeadId(2, 0), HeadId(2, 1), HeadId(2, 2)]
    squares = invented(rng, documents=3, pairs=10)
    table = channel_table_by_layer(squares, heads)
    assert tuple(table.columns) == CHANNELS_BY_LAYER_COLUMNS
    first, second = np.triu_indices(5, 1)
    for layer, mine in ((0, {0, 1}), (2, {2, 3, 4})):
        weight = np.array([(i in mine) + (j in mine) for i, j in zip(first, second, strict=True)])
        means = {n: squares[n].distances() @ weight / weight.sum() for n in squares}
        rows = table[table.layer == layer].set_index("channel")
        assert rows.mean_square.iloc[0] == pytest.approx(sum(means.values()))
        for name, mean in means.items():
            assert rows.share[name] == pytest.approx(mean / sum(means.values()))
    assert (table.low < table.share).all() and (table.share < table.high).all()
    # a model of one layer: the table by layer is that of the model
    one = channel_table_by_layer(squares, [HeadId(0, i) for i in range(5)])
    whole = channel_table(squares)
    np.testing.assert_allclose(one[["share", "low", "high"]], whole[["share", "low", "high"]])


def test_an_audits_distances_give_the_same_shares():
    p = attention(np.random.default_rng(4), heads=6, queries=8)
    audit = sw.audit(sw.rows(p, sink=0, causal=False))
    found = document_pairs(
        document_sums(sw.rows(p, sink=0, causal=False).blocks()), tuple(CHANNEL_SUMS.values())
    )
    squares = {n: found[k] for n, k in CHANNEL_SUMS.items()}
    whole = dict(zip(NAMES, channel_table(squares).share, strict=True))
    assert channel_shares(audit.distances) == pytest.approx(whole)
    layers = channel_shares_by_layer(audit.distances)
    table = channel_table_by_layer(squares, audit.heads)
    assert [e["balance"] for e in layers] == pytest.approx(
        table[table.channel == "balance"].share.tolist()
    )


def test_one_document_has_shares_and_no_interval():
    table = channel_table(invented(np.random.default_rng(5), documents=1))
    assert table.share.sum() == pytest.approx(1)
    assert table.low.isna().all() and table.high.isna().all()


def test_a_document_without_rows_changes_nothing():
    squares = invented(np.random.default_rng(6), documents=4)
    empty = {
        n: DocumentPairs(
            np.vstack([d.sums, 0 * d.sums[:1]]), np.vstack([d.counts, 0 * d.counts[:1]])
        )
        for n, d in squares.items()
    }
    np.testing.assert_allclose(
        channel_table(empty)[["share", "low", "high"]],
        channel_table(squares)[["share", "low", "high"]],
        rtol=1e-12,
    )


def test_pairs_without_rows_are_left_out_and_equal_heads_have_no_share():
    counts = np.ones((3, 3))
    counts[:, 1] = 0
    sums = np.array([[1.0, 0, 0], [2, 0, 0], [1, 0, 0]])
    squares = {n: DocumentPairs(sums * (i + 1), counts) for i, n in enumerate(NAMES[:2])}
    assert channel_table(squares).share.to_numpy() == pytest.approx([1 / 3, 2 / 3])
    shares = channel_share_matrices(squares, [HeadId(0, i) for i in range(3)])
    assert float(shares[0, 0, 1]) == pytest.approx(1 / 3)
    assert np.isnan(shares[:, 0, 2]).all()  # no row
    assert np.isnan(shares[:, 1, 2]).all()  # no difference
    alike = {n: DocumentPairs(0 * sums, np.ones((3, 1))) for n in NAMES[:2]}
    assert channel_table(alike).share.isna().all()


def test_a_channel_that_is_nothing_is_surely_so():
    squares = invented(np.random.default_rng(7), channels=NAMES[:2])
    squares["within_sink"] = DocumentPairs(0 * squares["balance"].sums, squares["balance"].counts)
    row = channel_table(squares).set_index("channel").loc["within_sink"]
    assert row.share == row.low == row.high == 0


def test_sums_that_do_not_fit_are_refused():
    squares = invented(np.random.default_rng(8))
    with pytest.raises(RowError, match="expected sums of two channels or more"):
        channel_table({"balance": squares["balance"]})
    with pytest.raises(RowError, match="sum all channels on the same rows"):
        channel_table(squares | {"direction": DocumentPairs(np.ones((2, 10)), np.ones((2, 1)))})
    with pytest.raises(RowError, match="hold 10 pairs, but the heads named make 6"):
        channel_share_matrices(squares, [HeadId(0, i) for i in range(4)])
    with pytest.raises(RowError, match="between 0 and 1"):
        channel_table(squares, level=95)


def share_coverage(studies, *, documents, noise):
    """How often the interval holds the share at endlessly many documents."""
    rng = np.random.default_rng([29, documents])
    truth = {n: rng.gamma(1.5, w, 66) for n, w in zip(NAMES, (0.3, 2.0, 4.0), strict=False)}
    share = np.array([t.sum() for t in truth.values()])
    share = share / share.sum()
    hits = []
    for _ in range(studies):
        counts = rng.integers(8, 64, (documents, 1)).astype(float)
        common = np.exp(noise * rng.normal(size=(documents, 1)))
        squares = {}
        for name, t in truth.items():
            # lognormal factors have one mean for all channels, so the true shares stand
            factor = common * np.exp(noise * rng.normal(size=(documents, 1)))
            factor = factor * np.exp(noise * rng.normal(size=(documents, t.size)))
            squares[name] = DocumentPairs(t * factor * counts, counts)
        table = channel_table(squares)
        hits.append((table.low.to_numpy() <= share) & (share <= table.high.to_numpy()))
    return float(np.mean(hits))


def test_intervals_of_shares_cover():
    # 100 studies of 3 channels that hang together: standard error about 0.02
    assert share_coverage(100, documents=8, noise=0.3) >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("documents", [4, 8, 16])
@pytest.mark.parametrize(("noise", "least"), [(0.1, 0.92), (0.4, 0.90), (0.8, 0.87)])
def test_intervals_of_shares_cover_by_noise(documents, noise, least):
    assert share_coverage(600, documents=documents, noise=noise) >= least
