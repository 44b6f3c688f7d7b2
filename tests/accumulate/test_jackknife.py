"""The jackknife by hand, its gaps, and its coverage."""

import numpy as np
import pytest
from scipy import stats

from sinkwise.accumulate.intervals import jackknife_deviations, jackknife_mean
from sinkwise.errors import RowError


def test_equal_documents_give_the_t_interval():
    # with equal counts the jackknife of a mean is the textbook standard error, exactly
    means = np.random.default_rng(0).normal(size=9)
    got = jackknife_mean(means * 4, np.full(9, 4.0))
    low, high = stats.t.interval(0.95, 8, means.mean(), stats.sem(means))
    assert got.value == pytest.approx(means.mean(), rel=1e-12)
    assert (got.low, got.high) == (pytest.approx(low), pytest.approx(high))


def test_value_pools_rows_and_deletes_documents():
    sums, counts = np.array([1.0, 6.0, 2.0]), np.array([1.0, 4.0, 2.0])
    got = jackknife_mean(sums, counts)
    out = np.array([8 / 6, 3 / 3, 7 / 5])
    error = np.sqrt(2 / 3 * ((out - out.mean()) ** 2).sum())
    assert got.value == pytest.approx(9 / 7)
    assert got.high - got.value == pytest.approx(stats.t.ppf(0.975, 2) * error)


def test_deviations_give_covariances_of_pooled_means():
    x = np.random.default_rng(1).normal(size=(6, 2))
    d = jackknife_deviations(x, np.ones((6, 2)))
    np.testing.assert_allclose(d.T @ d, np.cov(x.T) / 6, rtol=1e-12)


def test_a_document_without_rows_does_not_count():
    got = jackknife_mean(np.array([1.0, 0.0, 3.0]), np.array([1.0, 0.0, 1.0]))
    want = jackknife_mean(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(got, want, rtol=1e-14)


@pytest.mark.parametrize("counts", [[5.0], [5.0, 0.0]])
def test_fewer_than_two_documents_have_no_interval(counts):
    got = jackknife_mean(np.where(np.array(counts) > 0, 2.0, 0.0), np.array(counts))
    assert got.value == pytest.approx(0.4)
    assert np.isnan(got.low) and np.isnan(got.high)


def test_no_rows_have_no_value():
    got = jackknife_mean(np.zeros((3, 2)), np.zeros((3, 2)))
    assert np.isnan(got.value).all() and np.isnan(got.low).all()


def test_counts_per_document_are_shared_by_all_values():
    sums = np.arange(9.0).reshape(3, 3)
    got = jackknife_mean(sums, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(got.value, sums.sum(0) / 6)


@pytest.mark.parametrize(
    ("sums", "counts", "message"),
    [
        (np.zeros((0, 2)), np.zeros((0, 2)), "at least one document"),
        (np.zeros((3, 2)), np.zeros((4, 2)), "do not fit"),
    ],
)
def test_wrong_shapes_are_named(sums, counts, message):
    with pytest.raises(RowError, match=message):
        jackknife_mean(sums, counts)


def test_level_outside_0_1_is_refused():
    with pytest.raises(RowError, match="level is 95"):
        jackknife_mean(np.ones(3), np.ones(3), level=95)


def coverage(documents, studies, seed):
    """Share of simulated studies whose interval holds the true mean of rows in (0, 1)."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(20, 40, size=(documents, studies)).astype(float)
    centre = 1 / (1 + np.exp(-rng.normal(0.5, 1.0, size=(documents, studies))))
    sums = rows * centre + rng.normal(0, 0.1, size=rows.shape) * np.sqrt(rows)
    truth = (1 / (1 + np.exp(-rng.normal(0.5, 1.0, size=2_000_000)))).mean()
    got = jackknife_mean(sums, rows)
    return ((got.low <= truth) & (truth <= got.high)).mean()


def test_coverage_at_8_documents():
    # 4,000 studies: the share's own standard error is 0.0035
    assert 0.92 <= coverage(8, 4_000, seed=5) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("documents", [4, 8, 16, 32])
def test_coverage_by_number_of_documents(documents):
    assert 0.92 <= coverage(documents, 100_000, seed=documents) <= 0.98
