"""Sums of all pairs against the float64 oracle, over every kind of block."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.spatial.distance import squareform

from sinkwise.distances import all_pairs, pair_kernels
from sinkwise.distances.all_pairs import COUNT_OF, METRICS, PairSums, pair_sums
from sinkwise.errors import MemoryBudgetError, RowError
from sinkwise.rowdata import HeadId, make_block


def _twins(x):
    x[1] = x[0]
    x[3] = x[2] + 3.0  # the same composition: log-weights are known up to a constant


def _near_twins(x):
    x[1] = x[0] * 1.001
    x[3] = x[2] + 1e-3 * np.sin(np.arange(x.shape[-1]))


def _uniform_content(x):
    x[1, :, 1:] = x[1, :, 1:2]
    x[2, 0, 1:] = 0.0


def _opposite(x):
    x[1] = -x[0]


RECIPES = {
    "plain": {},
    "one row": {"rows": 1},
    "two heads": {"heads": 2},
    "one head": {"heads": 1},
    "causal": {"causal": True, "rows": 9},
    "two content parts": {"causal": True, "rows": 17},
    "sink in the middle": {"sinks": (7,)},
    "virtual sink in the last column": {"sinks": (18,), "causal": True},
    "several sinks": {"sinks": (0, 5, 18)},
    "sink 0.99999": {"sink_mass": 0.99999, "causal": True},
    "sinks far apart": {"sink_mass": 0.99999, "masses_apart": True},
    "several sinks 0.999999": {"sinks": (0, 9), "sink_mass": 0.999999},
    "mixed supports": {"windows": (4, 40), "causal": True},
    "window of one key": {"windows": (1, 3, 3), "causal": True},
    "identical heads": {"touch": _twins},
    "identical heads at sink 0.9999": {"touch": _twins, "sink_mass": 0.9999},
    "near twins": {"touch": _near_twins, "scale": 3.0},
    "opposite": {"touch": _opposite},
    "uniform content": {"touch": _uniform_content},
    "nearly flat": {"scale": 0.02},
    "very sharp": {"scale": 30.0},
    "zeros": {"zeros": 0.2},
    "mostly zeros": {"zeros": 0.75, "keys": 8},
    "zeros in several sinks": {"zeros": 0.4, "sinks": (0, 1, 2), "causal": True},
    "zeros and twins": {"zeros": 0.2, "touch": _twins},
}

# float32 rows: a log-weight near 50 is rounded by 2e-6 when the maximum is taken off, an
# exponential by as much in relative terms, and products of some 20 to 1,000 terms add 1e-6.
# Angles near 0 and distances of near twins carry that error relative to the vectors: 3e-6.
# float64 rows: the same with 2e-16, save divergences, which have float32 logarithms.
RTOL = {np.float32: 1e-4, np.float64: 1e-9}
ATOL = {np.float32: 1e-5, np.float64: 1e-11}


def _close(name, value, expected, dtype):
    rtol, atol = RTOL[dtype], ATOL[dtype]
    if name.startswith("js_divergence"):
        rtol, atol = 1e-4, 1e-12
    elif name == "content_angle":
        atol = max(atol, 1e-7)  # next to pi on common supports: the root of a rounding
    elif "/" in name or name in all_pairs.BANDS:
        atol = 1e-12  # content masses of 1e-6 and their squares are values, not noise
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda name: name.replace(" ", "_"))
def test_sums_equal_the_float64_oracle(recipe, dtype, oracle, block_of):
    block = block_of(3, dtype=dtype, **RECIPES[recipe])
    found = pair_sums(block)
    sums, counts = oracle(block)
    for name, count in found.counts.items():
        np.testing.assert_array_equal(count, counts.get(name, np.zeros_like(count)), name)
    assert set(found.sums) == set(METRICS)
    for name, value in found.sums.items():
        _close(name, value, sums.get(name, np.zeros_like(value)), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda name: name.replace(" ", "_"))
def test_content_alone_equals_the_float64_oracle(recipe, dtype, oracle, block_of):
    block = block_of(3, dtype=dtype, **RECIPES[recipe])
    found = pair_sums(block, metrics=("content_sq", "content"))
    sums, counts = oracle(block)
    for name, value in found.sums.items():
        zero = np.zeros_like(value)
        _close(name, value, sums.get(name, zero), dtype)
        np.testing.assert_array_equal(
            found.counts["content_rows"], counts.get("content_rows", zero)
        )


@pytest.fixture
def without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "sinkwise.distances.pair_kernels_compiled", None)
    pair_kernels.kernels.cache_clear()
    yield
    pair_kernels.kernels.cache_clear()


@pytest.mark.usefixtures("without_numba")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda name: name.replace(" ", "_"))
def test_numpy_kernels_meet_the_oracle_too(recipe, dtype, oracle, block_of):
    assert isinstance(pair_kernels.kernels(), pair_kernels.NumpyKernels)
    test_sums_equal_the_float64_oracle(recipe, dtype, oracle, block_of)


def test_compiled_kernels_are_the_ones_in_use_where_numba_is():
    pytest.importorskip("numba")
    assert not isinstance(pair_kernels.kernels(), pair_kernels.NumpyKernels)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recipe", ["identical heads", "identical heads at sink 0.9999"])
def test_identical_heads_are_at_zero(recipe, dtype, block_of):
    found = pair_sums(block_of(1, dtype=dtype, **RECIPES[recipe]))
    alone = pair_sums(block_of(1, dtype=dtype, **RECIPES[recipe]), metrics=("content",))
    assert squareform(alone.sums["content"])[0, 1] == 0
    for name, value in found.sums.items():
        if name not in all_pairs.BANDS:
            assert squareform(value)[0, 1] == 0, name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_of_near_twins_keep_their_digits(dtype, block_of, oracle):
    """Relative, with no absolute slack: what a plain Gram product loses first."""
    block = block_of(1, dtype=dtype, touch=_near_twins, scale=3.0, sink_mass=0.999)
    found, (sums, _) = pair_sums(block), oracle(block)
    for name in ("content", "content_angle", "direction", "cosine/kept", "euclidean/kept"):
        # the rows differ by 1e-3 of themselves; directly and in float64 that leaves 1e-7
        value, expected = (squareform(s[name]) for s in (found.sums, sums))
        for i, j in ((0, 1), (2, 3)):
            if expected[i, j] > 1e-6:
                np.testing.assert_allclose(value[i, j], expected[i, j], rtol=2e-6, err_msg=name)


def test_exact_splits_hold_for_sums_of_squares(block_of):
    found = pair_sums(block_of(2, sinks=(0, 4), rows=7)).sums
    parts = found["content_sq"] + found["balance_sq"] + found["within_sink_sq"]
    np.testing.assert_allclose(found["aitchison_sq"], parts, rtol=1e-12)
    parts = found["dispersion_sq"] + found["direction_sq"]
    np.testing.assert_allclose(found["content_sq"], parts, rtol=1e-6)  # float32 additions


@pytest.mark.parametrize(
    "metric", ["cosine/kept", "euclidean/kept", "js_divergence/kept", "content"]
)
@pytest.mark.parametrize("sink_mass", [0.999, 0.9999])
def test_float32_verdicts_are_those_of_float64(metric, sink_mass, block_of):
    """Which of two heads is nearer: every flip is a near-tie of the float64 distances."""
    block = block_of(11, heads=40, rows=6, keys=64, sink_mass=sink_mass, causal=True)
    exact = block_of(11, heads=40, rows=6, keys=64, sink_mass=sink_mass, causal=True)
    exact = make_block(
        document=0,
        log_weights=block.log_weights.astype(np.float64),
        support=exact.support,
        sink=exact.sink,
        queries=exact.queries,
        heads=[HeadId(0, h) for h in range(40)],
    )
    d32, d64 = (squareform(pair_sums(b, metrics=(metric,)).mean(metric)) for b in (block, exact))
    a, b, c = (v.ravel() for v in np.mgrid[:40, :40, :40])
    triples = (a != b) & (a != c) & (b < c)
    a, b, c = a[triples], b[triples], c[triples]
    flipped = np.sign(d32[a, b] - d32[a, c]) != np.sign(d64[a, b] - d64[a, c])
    margin = np.abs(d64[a, b] - d64[a, c]) / np.maximum(d64[a, b], d64[a, c])
    # float32 keeps 1e-5 of each distance here, so a verdict decided by more can't flip
    assert margin[flipped].max(initial=0) < 1e-5
    assert flipped.mean() < 1e-3


def test_rows_that_are_not_valid_for_a_head_count_for_none_of_its_pairs(block_of, oracle):
    block = block_of(4, heads=4, rows=4, keys=8)
    support = np.broadcast_to(block.support, block.log_weights.shape).copy()
    support[1, 2, :] = False  # head 1 sees nothing of row 2
    support[2, 3, 0] = False  # head 2 doesn't see the sink of row 3
    block = make_block(
        document=0,
        log_weights=block.log_weights,
        support=support,
        sink=block.sink,
        queries=block.queries,
        heads=[HeadId(0, h) for h in range(4)],
    )
    found, (_, counts) = pair_sums(block), oracle(block)
    np.testing.assert_array_equal(found.counts["rows"], counts["rows"])
    assert squareform(found.counts["rows"])[1].tolist() == [3, 0, 2, 3]


def test_pairs_that_share_no_row_have_no_distance(block_of):
    found = pair_sums(block_of(6, heads=4, windows=(2, 30), rows=3))
    assert np.isnan(squareform(found.mean("content"), checks=False)[0, 1])
    assert np.isfinite(squareform(found.mean("content"), checks=False)[0, 2])


def test_what_is_outside_the_support_is_never_read(block_of):
    block = block_of(7, causal=True, rows=9)
    spoiled = block.log_weights.copy()
    spoiled[:, ~block.support] = np.nan
    other = make_block(
        document=0,
        log_weights=spoiled,
        support=block.support,
        sink=block.sink,
        queries=block.queries,
        heads=[HeadId(0, h) for h in range(block.n_heads)],
    )
    first, second = pair_sums(block), pair_sums(other)
    for name, value in first.sums.items():
        np.testing.assert_array_equal(value, second.sums[name], name)


def test_threads_change_nothing_but_rounding(block_of, monkeypatch):
    block = block_of(9, heads=12, rows=13, keys=90, causal=True, windows=(20, 200))
    one = pair_sums(block)
    monkeypatch.setattr(all_pairs, "SMALL", 0)
    monkeypatch.setattr(all_pairs.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    many = pair_sums(block)
    for name, value in one.sums.items():
        np.testing.assert_allclose(many.sums[name], value, rtol=1e-5, err_msg=name)
    for name, value in one.counts.items():
        np.testing.assert_array_equal(many.counts[name], value)


def test_a_choice_of_metrics_gives_the_same_sums_alone(block_of):
    block = block_of(10, sinks=(0, 3))
    everything = pair_sums(block)
    for name in METRICS:
        alone = pair_sums(block, metrics=(name,))
        assert set(alone.sums) == {name}
        assert set(alone.counts) == {COUNT_OF[name]}
        # content distances alone have loops of their own: float32 digits in another order
        np.testing.assert_allclose(alone.sums[name], everything.sums[name], 2e-6, err_msg=name)


def test_unknown_metric_is_refused(block_of):
    with pytest.raises(RowError, match=r"no metric named 'cosine'.*cosine/kept"):
        pair_sums(block_of(), metrics=("cosine",))


def test_sums_of_different_metrics_do_not_merge():
    with pytest.raises(RowError, match="same heads and metrics"):
        PairSums.zero(3, ("content",)).merge(PairSums.zero(3, ("aitchison",)))


def test_G7_all_pairs_of_1e5_heads_are_refused_with_the_estimate():
    x = np.zeros((100_000, 1, 4), dtype=np.float32)
    block = make_block(
        document=0,
        log_weights=x,
        support=np.ones((1, 4), bool),
        sink=np.arange(4) == 0,
        queries=np.array([3]),
        heads=[HeadId(0, h) for h in range(100_000)],
    )
    with pytest.raises(MemoryBudgetError, match=r"100,000 heads.*74\.5 GiB"):
        pair_sums(block, metrics=("content",))


def test_divergence_of_masses_alone_keeps_its_digits():
    """Compiled series and logarithms against float64 logarithms, from 1e-12 to 1."""
    pytest.importorskip("numba")
    content = np.concatenate([10.0 ** -np.arange(0.0, 13.0), 0.3 * 1.05 ** np.arange(20)])
    content = content.clip(max=1.0)
    compiled, plain = np.zeros((2, len(content) * (len(content) - 1) // 2))
    pair_kernels.kernels().add_mass_divergences(content, 1 - content, compiled)
    pair_kernels.NumpyKernels().add_mass_divergences(content, 1 - content, plain)
    # float32 logarithms of 1 +- x from x = 1/8 on: 6e-8 of 1 against phi = 0.016
    np.testing.assert_allclose(compiled, plain, rtol=8e-6)


def test_compiled_shares_keep_their_digits_down_to_where_floats_end():
    compiled = pytest.importorskip("sinkwise.distances.pair_kernels_compiled").CompiledKernels()
    below = -np.linspace(0, 86, 20_001, dtype=np.float32)
    rows = np.stack([np.zeros_like(below), below], axis=1)
    shares, total = compiled.shares(rows, rows.max(axis=1))
    exact = 1 / (1 + np.exp(-below.astype(np.float64)))
    # exp to 2 ulp, one division, one product: 4 · 2⁻²⁴
    np.testing.assert_allclose(shares[:, 1], exact, rtol=2.4e-7)
    np.testing.assert_allclose(total, 1 + np.exp(below.astype(np.float64)), rtol=2.4e-7)
    plain, _ = pair_kernels.NumpyKernels().shares(rows, rows.max(axis=1))
    np.testing.assert_allclose(shares, plain, rtol=4.8e-7)
