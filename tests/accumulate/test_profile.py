"""Profile sums against a plain one-row-at-a-time reference in float64."""

import numpy as np
import pytest
from scipy.special import logsumexp

from sinkwise.accumulate import profile
from sinkwise.accumulate.profile import PROFILE_COUNT_OF, ProfileSums, profile_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import RowBlock


def row_values(z, support, sink):
    """One row's quantities, written as the definitions read."""
    zero = np.isneginf(z)
    c = z[support & ~sink & ~zero].astype(np.float64)
    s = z[support & sink & ~zero].astype(np.float64)
    log_total = logsumexp(np.concatenate([c, s]))
    n, r = len(c), len(s)
    p_c, p_s = np.exp(c - log_total), np.exp(s - log_total)
    sink_mass, rest = p_s.sum(), p_c.sum()

    def entropy(p):
        p = p[p > 0]
        return float(-(p * np.log(p)).sum())

    pi = np.exp(c - logsumexp(c))
    out = {
        "sink_mass": sink_mass,
        "entropy_sink": entropy(np.array([sink_mass, rest])),
        "entropy_content": rest * entropy(pi),
        "entropy_within_sink": sink_mass * entropy(np.exp(s - logsumexp(s))) if r else 0.0,
        "over_0.3": float(sink_mass > 0.3),
        "over_0.8": float(sink_mass > 0.8),
        "content_entropy": entropy(pi),
        "content_dispersion": np.linalg.norm(c - c.mean()),
    }
    out["entropy"] = entropy(np.concatenate([p_c, p_s]))
    out["content_dispersion_per_part"] = out["content_dispersion"] / np.sqrt(n)
    if r:
        out["sink_balance"] = np.sqrt(r * n / (r + n)) * (s.mean() - c.mean())
    return out


def random_block(rng, *, heads=5, rows=7, keys=19, sinks=1, zeros=0.0, per_head=False, scale=3.0):
    z = rng.normal(size=(heads, rows, keys)) * scale
    shape = (heads, rows, keys) if per_head else (rows, keys)
    support = rng.random(shape) < 0.8
    sink = np.zeros((rows, keys), dtype=bool)
    for q in range(rows):
        sink[q, rng.choice(keys, sinks, replace=False)] = True
    support |= sink
    if zeros:
        z[rng.random(z.shape) < zeros] = -np.inf
    z[np.broadcast_to(~support, z.shape)] = np.nan  # never to be read
    return RowBlock(0, z, support, sink, np.arange(rows))


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"sinks": 3},
        {"per_head": True},
        {"zeros": 0.2},
        {"sinks": 2, "zeros": 0.3, "per_head": True},
    ],
)
@pytest.mark.parametrize("tile", [30, 1 << 17])
def test_sums_equal_row_by_row_definitions(kind, tile, monkeypatch):
    monkeypatch.setattr(profile, "_TILE_ELEMENTS", tile)
    block = random_block(np.random.default_rng(3), **kind)
    got = profile_sums(block)
    want = ProfileSums.zero(block.n_heads)
    for h in range(block.n_heads):
        for q in range(block.n_rows):
            support = block.support[h, q] if block.support.ndim == 3 else block.support[q]
            finite = ~np.isneginf(block.log_weights[h, q])
            n = (support & ~block.sink[q] & finite).sum()
            r = (support & block.sink[q] & finite).sum()
            assert n >= 2
            want.counts["rows"][h] += 1
            want.counts["content_rows"][h] += 1
            want.counts["balance_rows"][h] += r > 0
            for name, value in row_values(block.log_weights[h, q], support, block.sink[q]).items():
                want.sums[name][h] += value
    assert set(got.sums) == set(PROFILE_COUNT_OF)
    for name in got.counts:
        np.testing.assert_array_equal(got.counts[name], want.counts[name])
    for name in got.sums:
        # sums of 7 rows of values up to ~30, each a sum of 19 terms: well under 1e4 eps
        np.testing.assert_allclose(got.sums[name], want.sums[name], rtol=1e-12, atol=1e-12)


def test_entropy_is_exactly_its_parts():
    sums = profile_sums(random_block(np.random.default_rng(0), sinks=2)).sums
    parts = sums["entropy_sink"] + sums["entropy_content"] + sums["entropy_within_sink"]
    np.testing.assert_allclose(sums["entropy"], parts, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sink_at_one_minus_1e_12_keeps_its_content(dtype):
    content = np.array([2.0, 1.0, 0.0, -1.0], dtype=dtype)
    sink = dtype(logsumexp(content.astype(float)) + np.log(1e12))
    z = np.concatenate([[sink], content])[None, None].astype(dtype)
    is_sink = np.arange(5)[None] == 0
    block = RowBlock(0, z, np.ones((1, 5), bool), is_sink, np.array([4]))
    sums = profile_sums(block).sums
    pi = np.exp(content - logsumexp(content.astype(float)), dtype=np.float64)
    pi /= pi.sum()
    entropy = -(pi * np.log(pi)).sum()
    assert sums["content_entropy"][0] == pytest.approx(entropy, rel=1e-12)
    assert sums["content_dispersion"][0] == pytest.approx(np.sqrt(5.0), rel=1e-12)
    # the float32 sink logit itself is known to 1.9e-6, and 1-s moves with it in proportion
    rel = 1e-11 if dtype is np.float64 else 4e-6
    assert sums["entropy_content"][0] == pytest.approx(1e-12 * entropy, rel=rel, abs=0)
    assert sums["entropy_sink"][0] == pytest.approx(1e-12 * (1 + np.log(1e12)), rel=rel, abs=0)
    mean_gap = float(sink) - content.mean()
    assert sums["sink_balance"][0] == pytest.approx(np.sqrt(4 / 5) * mean_gap, rel=1e-12)


def test_rows_without_content_above_zero_are_counted_apart():
    z = np.array([[[0.0, -np.inf, -np.inf, -np.inf], [0.0, 1.0, 2.0, -np.inf]]])
    sink = np.arange(4) == np.zeros((2, 1))
    sums = profile_sums(RowBlock(0, z, np.ones((2, 4), bool), sink, np.arange(2)))
    assert sums.counts["rows"][0] == 2
    assert sums.counts["content_rows"][0] == sums.counts["balance_rows"][0] == 1
    total = np.exp([0.0, 1.0, 2.0]).sum()
    assert sums.sums["sink_mass"][0] == pytest.approx(1 + 1 / total, rel=1e-14)
    assert all(np.isfinite(v).all() for v in sums.means().values())


def test_heads_that_cannot_use_a_row_do_not_count_it():
    block = random_block(np.random.default_rng(1), heads=2, per_head=True)
    support = block.support.copy()
    support[1, 2] &= ~block.sink[2]  # head 1 can't see the sink of row 2
    hidden = RowBlock(0, block.log_weights, support, block.sink, block.queries)
    counts = profile_sums(hidden).counts["rows"]
    assert counts.tolist() == [7, 6]


def test_uniform_content_has_no_dispersion_and_full_entropy():
    z = np.full((1, 1, 11), 0.1, dtype=np.float32)
    sink = np.arange(11)[None] == 0
    sums = profile_sums(RowBlock(0, z, np.ones((1, 11), bool), sink, np.array([10]))).sums
    assert sums["content_dispersion"][0] <= 1e-15
    assert sums["content_entropy"][0] == pytest.approx(np.log(10), rel=1e-15)


def test_empty_block_sums_to_zero():
    block = RowBlock(0, np.zeros((3, 0, 4)), np.ones((0, 4), bool), np.ones((0, 4), bool), [])
    sums = profile_sums(block)
    assert sums.n_heads == 3
    assert all((v == 0).all() for v in (*sums.sums.values(), *sums.counts.values()))


def test_merging_different_heads_is_refused():
    with pytest.raises(RowError, match="3 heads met profile sums of 2"):
        ProfileSums.zero(3).merge(ProfileSums.zero(2))
