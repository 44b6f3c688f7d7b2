"""Biplots against scikit-learn's principal components, distances and edge cases."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.biplot import attention_parts, biplot


def shares(seed, heads=9, parts=5):
    return np.random.default_rng(seed).dirichlet(np.ones(parts), heads)


def heads(n):
    return [HeadId(0, h) for h in range(n)]


@pytest.mark.parametrize("scaling", ["form", "covariance"])
def test_points_and_arrows_multiply_to_the_centred_log_ratios(scaling):
    p = shares(0)
    found = biplot(p, list("abcde"), heads(9), scaling=scaling, dimensions=5)
    clr = np.log(p) - np.log(p).mean(1, keepdims=True)
    np.testing.assert_allclose(
        found.points.to_numpy() @ found.arrows.to_numpy().T, clr - clr.mean(0), atol=1e-12
    )
    pca = PCA(4).fit(clr)
    np.testing.assert_allclose(found.explained[:4], pca.explained_variance_ratio_, rtol=1e-10)


def test_form_points_keep_aitchison_distances_and_covariance_links_log_ratio_spread():
    p = shares(1)
    form = biplot(p, list("abcde"), heads(9), dimensions=5)
    want = [sw.aitchison_distance(p[i], p[j]) for i in range(9) for j in range(i + 1, 9)]
    np.testing.assert_allclose(pdist(form.points), want, rtol=1e-10)
    covariance = biplot(p, list("abcde"), heads(9), scaling="covariance", dimensions=5)
    links = pdist(covariance.arrows)
    spread = [np.std(np.log(p[:, i] / p[:, j]), ddof=1) for i in range(5) for j in range(i + 1, 5)]
    np.testing.assert_allclose(links, spread, rtol=1e-10)


def test_axes_are_turned_to_their_longest_arrow():
    found = biplot(shares(2), list("abcde"), heads(9))
    arrows = found.arrows.to_numpy()
    assert (arrows[np.abs(arrows).argmax(0), [0, 1]] > 0).all()


def test_equal_heads_have_no_axes_and_bad_shares_are_named():
    same = biplot(np.tile(shares(3, heads=1), (3, 1)), list("abcde"), heads(3))
    np.testing.assert_allclose(same.points, 0, atol=1e-12)
    p = shares(4)
    p[2, 1] = 0
    with pytest.raises(RowError, match=r"L0H2 has 0.0 of part 'b'"):
        biplot(p, list("abcde"), heads(9))
    with pytest.raises(RowError, match="shape"):
        biplot(p[:, :1], ["a"], heads(9))
    with pytest.raises(RowError, match="scaling"):
        biplot(shares(5), list("abcde"), heads(9), scaling="row")


def test_the_parts_of_an_audit_are_sink_and_offsets_and_sum_to_one():
    z = np.random.default_rng(6).normal(size=(4, 3, 12, 12))
    found = sw.audit(
        sw.rows(np.where(np.tri(12, dtype=bool), z, -np.inf), sink=0, causal=True, logits=True)
    )
    parts, names = attention_parts(found.store)
    assert names == ["sink", "0", "1", "2–3", "4–7", "8–15"]
    np.testing.assert_allclose(parts.sum(1), 1)
    np.testing.assert_allclose(parts[:, 0], found.profile.sink_mass)
    assert found.biplot().sizes["part"] == 6
    both = sw.audit(sw.rows(z, sink=0, logits=True))
    assert "ahead 1" in attention_parts(both.store)[1]
