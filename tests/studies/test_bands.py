"""The collapse bands hold for every row pair, and only row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import softmax

from sinkwise.errors import RowError
from sinkwise.studies import bands as bands_module
from sinkwise.studies.bands import (
    BAND_METRICS,
    BAND_RANKING_COLUMNS,
    band_ranking,
    bands,
    pair_bounds,
)


def classical(p, q):
    m = (p + q) / 2

    def kl(x):
        return np.where(x > 0, x * np.log(np.where(x > 0, x, 1) / np.where(m > 0, m, 1)), 0).sum(-1)

    norms = np.linalg.norm(p, axis=-1) * np.linalg.norm(q, axis=-1)
    return {
        "cosine": 1 - (p * q).sum(-1) / norms,
        "euclidean": np.linalg.norm(p - q, axis=-1),
        "js_divergence": (kl(p) + kl(q)) / 2,
    }


def condensed_means(p):
    """Means over rows for every pair of heads of `p`, ``(heads, rows, keys)``, sink first."""
    first, second = np.triu_indices(len(p), 1)
    a, b = p[first], p[second]
    mass = 1 - np.minimum(a[..., 0], b[..., 0])
    means = {f"{k}/kept": v.mean(-1) for k, v in classical(a, b).items()}
    m = 1 - mass
    means["cosine_ceiling"] = (1 - m**2 / (m**2 + mass**2)).mean(-1)
    means["larger_content_mass"] = mass.mean(-1)
    return means


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    sink=st.floats(-5, 15),
    scale=st.floats(0.1, 20),
    keys=st.integers(3, 12),
)
def test_no_row_pair_leaves_its_band(seed, sink, scale, keys):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(2, 200, keys)) * scale
    z[..., 0] += sink
    p, q = softmax(z, axis=-1)
    bounds = pair_bounds(np.clip(np.minimum(p[:, 0], q[:, 0]), 0, 1))
    for metric, value in classical(p, q).items():
        assert (value <= bounds[metric] + 1e-12).all(), metric


def test_bounds_are_attained():
    # all content on different keys, equal sink masses for cosine; the other row all content there
    s = 0.8
    p, q = np.array([s, 1 - s, 0.0]), np.array([s, 0.0, 1 - s])
    bounds, values = pair_bounds(s), classical(p, q)
    for metric in BAND_METRICS:
        assert values[metric] == pytest.approx(float(bounds[metric]), rel=1e-12)
    assert float(1 - bounds["cosine"]) == pytest.approx(0.9412, abs=5e-5)


def test_means_stay_within_the_mean_bound():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(7, 30, 11)) * 3
    z[..., 0] += rng.normal(size=(7, 1)) * 4
    found = bands(condensed_means(softmax(z, axis=-1)), 7)
    assert (found.value <= found.bound + 1e-12).all()
    assert (found.share_within == 1).all()
    assert found.sizes == {"metric": 3, "pair": 21}
    assert (int(found.first[-1]), int(found.second[-1])) == (5, 6)


def test_the_bound_at_the_mean_sink_mass_is_false():
    # two rows; each head has all its mass on the sink in one row and none in the other
    p = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]])
    at_mean = pair_bounds(p[..., 0].mean(-1).min())  # 0.5 for both heads
    means = condensed_means(p)
    found = bands(means, 2)
    for metric in BAND_METRICS:
        value = means[f"{metric}/kept"][0]
        assert value > float(at_mean[metric]) + 0.1
        assert value <= found.bound.sel(metric=metric, pair=0) + 1e-12


def test_values_beyond_the_bound_are_reported_as_such():
    means = {k: np.array([0.1, 0.1, 0.1]) for k in condensed_means(np.full((2, 1, 3), 1 / 3))}
    means["js_divergence/kept"] = np.array([0.05, 0.2, np.nan])
    found = bands(means, 3)
    assert float(found.share_within.sel(metric="js_divergence")) == 0.5
    assert float(found.share_within.sel(metric="cosine")) == 1.0


def test_pairs_without_rows_leave_no_warning(recwarn):
    means = {k: np.full(1, np.nan) for k in condensed_means(np.full((2, 1, 3), 1 / 3))}
    assert np.isnan(bands(means, 2).share_within).all()
    assert not recwarn.list


def test_sinks_of_several_keys_are_refused():
    with pytest.raises(RowError, match=r"larger_content_mass.*single sink key"):
        bands({"cosine/kept": np.zeros(1)}, 2)


def test_wrong_sizes_are_named():
    means = condensed_means(np.full((2, 1, 3), 1 / 3))
    with pytest.raises(RowError, match=r"expected \(3,\)"):
        bands(means, 3)


def test_sink_masses_outside_0_1_are_refused():
    with pytest.raises(RowError, match="outside"):
        pair_bounds(np.array([0.5, 1.5]))


def with_dropped(p):
    content = p[..., 1:] / p[..., 1:].sum(-1, keepdims=True)
    first, second = np.triu_indices(len(p), 1)
    dropped = classical(content[first], content[second])
    return condensed_means(p) | {f"{k}/dropped": v.mean(-1) for k, v in dropped.items()}


def heads_with_sinks(n_heads=12, seed=1):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_heads, 20, 9)) * 2
    z[..., 0] += np.linspace(-2, 8, n_heads)[:, None]
    return with_dropped(softmax(z, axis=-1))


def test_ranking_within_thresholds_pair_by_pair():
    means = heads_with_sinks()
    found = band_ranking(means, 12, thresholds=(0.0, 0.2, 0.4))
    assert tuple(found.columns) == BAND_RANKING_COLUMNS
    assert found.metric.tolist() == [m for m in BAND_METRICS for _ in range(3)]
    whole = bands(means, 12)
    for row in found.itertuples():
        inside = 1 - means["larger_content_mass"] >= row.threshold
        value = means[f"{row.metric}/kept"][inside]
        bound = whole.bound.sel(metric=row.metric).to_numpy()[inside]
        assert row.pairs == inside.sum() and row.share == pytest.approx(inside.mean())
        assert row.ceiling == pytest.approx(np.median(bound))
        assert row.ceiling_used == pytest.approx(np.median(value / bound))
        assert (row.value_low, row.value_high) == pytest.approx(
            tuple(np.quantile(value, [0.05, 0.95]))
        )
        for name, other in (
            ("ceiling", bound),
            ("dropped", means[f"{row.metric}/dropped"][inside]),
        ):
            spearman, kendall = stats.spearmanr(value, other), stats.kendalltau(value, other)
            assert getattr(row, f"spearman_{name}") == pytest.approx(spearman.statistic)
            assert getattr(row, f"kendall_{name}") == pytest.approx(kendall.statistic)
    assert found.share.iloc[0] == 1.0 and 0 < found.share.iloc[2] < found.share.iloc[1] < 1


def test_kendall_of_a_sample_is_near_all(monkeypatch):
    means = heads_with_sinks(40)
    whole = band_ranking(means, 40, thresholds=(0.0,))
    monkeypatch.setattr(bands_module, "_KENDALL_PAIRS", 400)
    some = band_ranking(means, 40, thresholds=(0.0,))
    assert (some.kendall_ceiling != whole.kendall_ceiling).all()
    np.testing.assert_allclose(some.kendall_ceiling, whole.kendall_ceiling, atol=0.1)
    assert some.spearman_ceiling.tolist() == whole.spearman_ceiling.tolist()


def test_too_few_or_constant_pairs_have_no_correlation(recwarn):
    means = heads_with_sinks(5)
    found = band_ranking(means, 5, thresholds=(0.0, 1.0))
    assert found[found.threshold == 1.0].pairs.tolist() == [0, 0, 0]
    assert (
        found[found.threshold == 1.0]
        .drop(columns=["metric", "threshold", "pairs", "share"])
        .isna()
        .all(axis=None)
    )
    assert found[found.threshold == 0.0].notna().all(axis=None)
    for pairs, n_heads in ((1, 2), (6, 4)):
        few = band_ranking({k: v[:pairs] for k, v in means.items()}, n_heads, thresholds=(0.0,))
        assert few.kendall_ceiling.isna().all() and few.ceiling_used.notna().all()
    constant = means | {"cosine/dropped": np.full(10, 0.5)}
    found = band_ranking(constant, 5, thresholds=(0.0,))
    assert np.isnan(found.kendall_dropped[0]) and np.isfinite(found.kendall_dropped[1])
    nowhere = {k: np.full(10, np.nan) for k in means}
    assert band_ranking(nowhere, 5).share.isna().all()
    assert not recwarn.list


def test_pairs_without_a_distance_count_nowhere():
    means = heads_with_sinks(6)
    means["js_divergence/kept"][4] = np.nan
    found = band_ranking(means, 6, thresholds=(0.0,)).set_index("metric")
    assert found.pairs.to_dict() == {"cosine": 15, "euclidean": 15, "js_divergence": 14}
    assert found.share["js_divergence"] == 1.0


def test_refused_rankings():
    means = heads_with_sinks(3)
    with pytest.raises(RowError, match=r"a threshold of 1.5 lies outside"):
        band_ranking(means, 3, thresholds=(1.5,))
    del means["cosine/dropped"]
    with pytest.raises(RowError, match="needs the mean 'cosine/dropped'"):
        band_ranking(means, 3)
