"""The collapse bands hold for every row pair, and only row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from sinkwise.errors import RowError
from sinkwise.studies.bands import BAND_METRICS, bands, pair_bounds


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
