"""Weighted, floored, whole-row and zeroed distances against plain formulas in high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import squareform
from scipy.special import softmax, xlogy

from sinkwise.distances.all_pairs import COUNT_OF, METRICS, PairSums, count_of, pair_sums
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId, make_block

GEOMETRIC = ("content/geometric_weights", "aitchison/geometric_weights")
FLOORS = ("content/floor=0.001", "content/floor=0.05")
NAMES = (*GEOMETRIC, *FLOORS, "aitchison_angle", "euclidean/zeroed", "js_divergence/zeroed")


def _geometric(x, y):
    """The formula of the specification in 60 digits; zeros (-inf) have weight 0."""
    with mpmath.workdps(60):
        seen = [k for k in range(len(x)) if np.isfinite(x[k]) and np.isfinite(y[k])]
        x, y = ([mpmath.mpf(float(z[k])) for k in seen] for z in (x, y))
        root = [mpmath.exp((a + b) / 2) for a, b in zip(x, y, strict=True)]
        total = mpmath.fsum(root)
        gap = [a - b for a, b in zip(x, y, strict=True)]
        mean = mpmath.fsum(w * g for w, g in zip(root, gap, strict=True)) / total
        square = mpmath.fsum(w * (g - mean) ** 2 for w, g in zip(root, gap, strict=True)) / total
        return float(mpmath.sqrt(square))


def _floored(x, y, floor):
    def clr(z):
        p = np.exp(z - z.max())
        p = np.maximum(p / p.sum(), floor)
        log = np.log(p / p.sum())
        return log - log.mean()

    return float(np.linalg.norm(clr(x) - clr(y)))


def _angle(x, y):
    u, v = x - x.mean(), y - y.mean()
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return float(2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)))


def _expected(block, name):
    """Sum and count of every pair by loops, in the order of the pairs."""
    sums, counts = [], []
    support = np.broadcast_to(block.support, block.log_weights.shape)
    for i in range(block.n_heads):
        for j in range(i + 1, block.n_heads):
            total, count = 0.0, 0
            for row in range(block.n_rows):
                valid = block.valid[i, row] and block.valid[j, row]
                if not valid or (support[i, row] != support[j, row]).any():
                    continue
                x, y = (block.log_weights[h, row].astype(np.float64) for h in (i, j))
                seen = support[i, row]
                value = _of_row(x, y, seen & ~block.sink[row], seen & block.sink[row], name)
                if value is not None:
                    total, count = total + value, count + 1
            sums.append(total)
            counts.append(count)
    return np.array(sums), np.array(counts)


def _of_row(x, y, content, sink, name):
    both = np.isfinite(x) & np.isfinite(y)
    if not (np.isfinite(x[content]).any() and np.isfinite(y[content]).any()):
        return None
    if name.startswith("content/floor"):
        return _floored(x[content], y[content], float(name.partition("=")[2]))
    if name.endswith("/zeroed"):
        p, q = (softmax(z[content | sink])[content[content | sink]] for z in (x, y))
        if name.startswith("euclidean"):
            return float(np.linalg.norm(p - q))
        m = np.maximum((p + q) / 2, 1e-300)
        return float((xlogy(p, p / m) + xlogy(q, q / m)).sum() / 2)
    if (both & content).sum() < 2:
        return None
    if name == "content/geometric_weights":
        return _geometric(x[content], y[content])
    if not (both & sink).any():
        return None
    if name == "aitchison/geometric_weights":
        return _geometric(x[content | sink], y[content | sink])
    a, b = x[both & (content | sink)], y[both & (content | sink)]
    if np.ptp(a) < 1e-6 or np.ptp(b) < 1e-6:
        return None
    return _angle(a, b)


def _twins(x):
    x[1] = x[0]
    x[3] = x[2] + 3.0


def _near_twins(x):
    x[1] = x[0] * 1.001
    x[3] = x[2] + 1e-3 * np.sin(np.arange(x.shape[-1]))


def _uniform_rows(x):
    x[1] = 2.0


def _opposite(x):
    x[1] = -x[0]


RECIPES = {
    "plain": {},
    "two heads": {"heads": 2},
    "causal": {"causal": True, "rows": 9},
    "two content parts": {"causal": True, "rows": 17},
    "several sinks": {"sinks": (0, 5, 18)},
    "sink 0.99999": {"sink_mass": 0.99999, "causal": True},
    "mixed supports": {"windows": (4, 40), "causal": True},
    "window of one key": {"windows": (1, 3, 3), "causal": True},
    "identical heads": {"touch": _twins},
    "near twins": {"touch": _near_twins, "scale": 3.0},
    "opposite": {"touch": _opposite},
    "opposite and sharp": {"touch": _opposite, "scale": 30.0},
    "uniform rows": {"touch": _uniform_rows},
    "nearly flat": {"scale": 0.02},
    "very sharp": {"scale": 30.0},
    "logits of thousands": {"scale": 3000.0},
    "zeros": {"zeros": 0.2},
    "mostly zeros": {"zeros": 0.75, "keys": 8},
    "zeros in several sinks": {"zeros": 0.4, "sinks": (0, 1, 2), "causal": True},
    "zeros and twins": {"zeros": 0.2, "touch": _twins},
}

# Angles and zeroed rows are computed in the block's dtype (float32: log-weights near 50 carry
# 2e-6), the others in float64, where a share of 1e-5 of the terms keeps 1e-9 of itself.
RTOL = {"aitchison_angle": 1e-4, "euclidean/zeroed": 1e-4, "js_divergence/zeroed": 1e-4}
ATOL = {"aitchison_angle": 1e-5, "euclidean/zeroed": 1e-12, "js_divergence/zeroed": 1e-12}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda name: name.replace(" ", "_"))
def test_sums_equal_the_plain_formulas(recipe, dtype, block_of):
    block = block_of(3, dtype=dtype, **RECIPES[recipe])
    found = pair_sums(block, metrics=NAMES)
    for name in NAMES:
        sums, counts = _expected(block, name)
        np.testing.assert_array_equal(found.counts[count_of(name)], counts, name)
        rtol, atol = RTOL.get(name, 1e-8), ATOL.get(name, 1e-11)
        np.testing.assert_allclose(found.sums[name], sums, rtol=rtol, atol=atol, err_msg=name)


def _two_rows(x, y, sink=0):
    x, y = np.asarray(x, float), np.asarray(y, float)
    return make_block(
        document=0,
        log_weights=np.stack([x, y])[:, None],
        support=np.ones((1, len(x)), bool),
        sink=np.arange(len(x)) == sink,
        queries=np.array([len(x) - 1]),
        heads=[HeadId(0, 0), HeadId(0, 1)],
    )


def _distance(name, x, y):
    return float(pair_sums(_two_rows(x, y), metrics=(name,)).mean(name)[0])


def test_geometric_weights_by_hand():
    # content (1/2, 1/2) and (1/5, 4/5): weights sqrt(1/10) : sqrt(4/10) = 1/3 : 2/3, gaps of the
    # log-ratios log(5/2) and log(5/8), which differ by log 4: d^2 = (1/3)(2/3) log(4)^2
    x, y = np.log([0.5, 0.25, 0.25]), np.log([0.5, 0.1, 0.4])
    expected = np.sqrt(2) / 3 * np.log(4)
    assert _distance("content/geometric_weights", x, y) == pytest.approx(expected, rel=1e-14)


def test_a_floor_by_hand():
    # content (0.9, 0.1, 0) floored at 0.1 is (9, 1, 1) / 11, and (1, 1, 1) is flat
    x, y = np.log([0.5, 0.45, 0.05, 0.0 + 1e-300]), np.log([0.25] * 4)
    expected = np.sqrt(2 / 3) * np.log(9)
    assert _distance("content/floor=0.1", x, y) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("name", (*GEOMETRIC, *FLOORS, "aitchison_angle"))
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.01, 1.0, 30.0, 5000.0]))
def test_symmetric_and_zero_for_equal_rows(name, seed, scale):
    x, y = np.random.default_rng(seed).normal(size=(2, 12)) * scale
    assert _distance(name, x, y) == pytest.approx(_distance(name, y, x), rel=1e-9, abs=1e-12)
    assert _distance(name, x, x) == 0
    assert np.isfinite(_distance(name, x, y))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_nearly_flat_rows_have_equal_weights(seed):
    """The unweighted limit: the Aitchison distance over the root of the number of parts."""
    x, y = np.random.default_rng(seed).normal(size=(2, 12)) * 1e-5
    for weighted, plain, parts in zip(GEOMETRIC, ("content", "aitchison"), (11, 12), strict=True):
        expected = _distance(plain, x, y) / np.sqrt(parts)
        assert _distance(weighted, x, y) == pytest.approx(expected, rel=1e-4)


def test_a_floor_below_every_share_is_the_content_distance():
    x, y = np.random.default_rng(0).normal(size=(2, 12))
    assert _distance("content/floor=1e-06", x, y) == pytest.approx(_distance("content", x, y))


def test_the_whole_rows_angle_sees_the_sink():
    x, y = np.random.default_rng(0).normal(size=(2, 12))
    raised = y + 5.0 * (np.arange(12) == 0)
    assert _distance("content_angle", x, y) == pytest.approx(_distance("content_angle", x, raised))
    assert abs(_distance("aitchison_angle", x, y) - _distance("aitchison_angle", x, raised)) > 0.05


@pytest.mark.parametrize("size", [1e3, 1e4])
def test_rows_without_overlap_keep_their_digits(size):
    """Each head on a key of its own: shares underflow, weights lie on both keys or between."""
    x = np.array([0.0, size, 0.0, size / 3, 1.0])
    y = np.array([0.0, 0.0, size, size / 3, 2.0])
    for name, of in (("content/geometric_weights", slice(1, None)), (GEOMETRIC[1], slice(None))):
        expected = _geometric(x[of], y[of])
        assert _distance(name, x, y) == pytest.approx(expected, rel=1e-12)


def test_a_share_that_goes_to_zero_is_a_zero():
    x, y = np.random.default_rng(0).normal(size=(2, 9))
    for name in (*GEOMETRIC, *FLOORS):
        faint, none = x.copy(), x.copy()
        faint[4], none[4] = -700.0, -np.inf
        assert _distance(name, faint, y) == pytest.approx(_distance(name, none, y), rel=1e-9)


def test_rows_and_documents_merge(block_of):
    first, second = block_of(1), block_of(2, zeros=0.2)
    parts = [pair_sums(b, metrics=NAMES) for b in (first, second)]
    merged = PairSums.zero(6, NAMES).merge(parts[1]).merge(parts[0])
    for name in NAMES:
        both = parts[0].sums[name] + parts[1].sums[name]
        np.testing.assert_allclose(merged.sums[name], both, rtol=1e-15)
        rows = sum(p.counts[count_of(name)] for p in parts)
        np.testing.assert_allclose(merged.mean(name), both / rows, rtol=1e-14)


def test_with_the_usual_metrics_they_are_what_they_are_alone(block_of):
    block = block_of(4, sinks=(0, 3), dtype=np.float64)
    together = pair_sums(block, metrics=(*METRICS, *NAMES))
    for name in NAMES:
        alone = pair_sums(block, metrics=(name,))
        assert set(alone.sums) == {name}
        np.testing.assert_allclose(alone.sums[name], together.sums[name], rtol=1e-9)
    for name in METRICS:
        alone = pair_sums(block, metrics=(name,)).sums[name]
        np.testing.assert_allclose(alone, together.sums[name], rtol=1e-9)


def test_zeroed_cosine_is_dropped_cosine_and_zeroed_euclid_lacks_the_sink(block_of):
    block = block_of(5, rows=1, dtype=np.float64)
    p = np.exp(block.log_weights[:, 0] - block.log_weights[:, 0].max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    found = squareform(pair_sums(block, metrics=("euclidean/zeroed",)).sums["euclidean/zeroed"])
    expected = np.linalg.norm(p[:, None, 1:] - p[None, :, 1:], axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    "name", ["content/floor=2", "content/floor=x", "cosine/floor=0.1", "conten"]
)
def test_an_unknown_name_is_told_what_there_is(name, block_of):
    with pytest.raises(RowError, match=r"content/floor=0\.001"):
        pair_sums(block_of(0), metrics=(name,))


def test_audits_take_none_of_them_by_themselves():
    assert not set(NAMES) & set(METRICS)
    assert set(METRICS) < set(COUNT_OF)
