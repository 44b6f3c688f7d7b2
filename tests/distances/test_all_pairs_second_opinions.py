"""All pairs against SciPy and scikit-bio, who know nothing of this package."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.special import softmax

from sinkwise.distances.all_pairs import pair_sums


@pytest.fixture(scope="module")
def block(block_of):
    return block_of(21, heads=14, rows=6, keys=33, dtype=np.float64)


def _mean_over_rows(block, measure, *, kept):
    p = softmax(block.log_weights, axis=-1)
    if not kept:
        p = softmax(block.log_weights[..., 1:], axis=-1)
    return np.mean([measure(p[:, row]) for row in range(block.n_rows)], axis=0)


SCIPY = {
    "cosine": lambda p: pdist(p, "cosine"),
    "euclidean": lambda p: pdist(p, "euclidean"),
    "js_divergence": lambda p: pdist(p, "jensenshannon") ** 2,
}


@pytest.mark.parametrize("convention", ["kept", "dropped"])
@pytest.mark.parametrize("metric", SCIPY)
def test_scipy(metric, convention, block):
    name = f"{metric}/{convention}"
    expected = _mean_over_rows(block, SCIPY[metric], kept=convention == "kept")
    # SciPy's 1 - cos loses digits to some 1e-15 here; our divergence has float32 logarithms
    rtol = 1e-4 if metric == "js_divergence" else 1e-9
    np.testing.assert_allclose(pair_sums(block).mean(name), expected, rtol=rtol)


def test_scipy_band_bounds_hold_row_by_row(block_of):
    block = block_of(22, heads=10, rows=1, keys=25, sink_mass=0.9, masses_apart=True)
    found = pair_sums(block)
    larger = found.mean("larger_content_mass")
    assert (found.mean("cosine/kept") <= found.mean("cosine_ceiling") * (1 + 1e-6)).all()
    assert (found.mean("euclidean/kept") <= np.sqrt(2) * larger * (1 + 1e-6)).all()
    assert (found.mean("js_divergence/kept") <= np.log(2) * larger * (1 + 1e-6)).all()


def test_scikit_bio(block):
    composition = pytest.importorskip("skbio.stats.composition")
    found = pair_sums(block)
    content = _mean_over_rows(block, lambda p: pdist(composition.clr(p)), kept=False)
    np.testing.assert_allclose(found.mean("content"), content, rtol=1e-9)
    whole = _mean_over_rows(block, lambda p: pdist(composition.clr(p)), kept=True)
    np.testing.assert_allclose(found.mean("aitchison"), whole, rtol=1e-9)
    cosines = _mean_over_rows(
        block, lambda p: np.arccos(1 - pdist(composition.clr(p), "cosine")), kept=False
    )
    np.testing.assert_allclose(found.mean("content_angle"), cosines, rtol=1e-9)
