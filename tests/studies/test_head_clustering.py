"""The estimator keeps scikit-learn's habits and agrees with the functions under it."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import get_tags

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.studies.clustering import METHODS, cluster_heads
from sinkwise.studies.head_clustering import HeadClustering


def groups_of_heads(seed=0, heads=24, groups=4):
    group = np.arange(heads) % groups
    points = np.random.default_rng(seed).normal(size=(heads, 4)) + 8 * np.eye(groups, 4)[group]
    return squareform(pdist(points)), group


@pytest.mark.parametrize("method", METHODS)
def test_fit_is_cluster_heads_with_sizes(method):
    d, group = groups_of_heads()
    number = None if method == "hdbscan" else 4
    before = d.copy()
    model = HeadClustering(number, method=method)
    assert model.fit(d) is model
    np.testing.assert_array_equal(model.labels_, cluster_heads(d, k=number, method=method))
    assert adjusted_rand_score(group, model.labels_) == 1.0
    assert model.n_clusters_ == 4 and model.sizes_ == (6, 6, 6, 6) and not model.degenerate_
    assert model.n_features_in_ == 24
    np.testing.assert_array_equal(d, before)
    np.testing.assert_array_equal(model.fit_predict(d), model.labels_)
    np.testing.assert_array_equal(model.fit(squareform(d)).labels_, model.labels_)


def test_parameters_are_cloned_and_set_and_nothing_is_learned_before_fit():
    model = HeadClustering("silhouette", method="k-medoids", max_clusters=6)
    copy = clone(model)
    want = {"n_clusters": "silhouette", "method": "k-medoids", "max_clusters": 6}
    assert copy is not model and copy.get_params() == want
    assert copy.set_params(n_clusters=3).n_clusters == 3
    assert not hasattr(model, "labels_")
    assert repr(model) == (
        "HeadClustering(max_clusters=6, method='k-medoids', n_clusters='silhouette')"
    )
    assert get_tags(model).input_tags.pairwise
    assert get_tags(model).estimator_type == "clusterer"


@pytest.mark.parametrize("method", ["average", "k-medoids", "spectral"])
def test_silhouette_finds_the_number_of_groups(method):
    d, _ = groups_of_heads(groups=3)
    assert HeadClustering("silhouette", method=method).fit(d).n_clusters_ == 3


def test_default_number_and_few_heads():
    d, _ = groups_of_heads()
    assert HeadClustering().fit(d).n_clusters_ == 5
    assert HeadClustering().fit(d[:3, :3]).n_clusters_ == 2
    with pytest.raises(RowError, match="expected at least 3"):
        HeadClustering().fit(d[:2, :2])


def test_heads_that_all_coincide_are_one_degenerate_cluster():
    model = HeadClustering("silhouette", method="k-medoids").fit(np.zeros((6, 6)))
    assert model.labels_.tolist() == [0] * 6 and model.degenerate_ and model.n_clusters_ == 1


def test_rounding_is_symmetrised_and_mistakes_are_explained():
    d, _ = groups_of_heads()
    noisy = d.astype(np.float32)
    noisy[0, 1] += 1e-6
    np.testing.assert_array_equal(
        HeadClustering(4).fit(noisy).labels_, HeadClustering(4).fit(d).labels_
    )
    for broken, match in (
        (d + np.eye(24), "on its diagonal"),
        (np.where(d == d.max(), np.nan, d), "expected a finite number"),
        (np.random.default_rng(0).normal(size=(24, 3)), "expected .heads, heads. distances"),
    ):
        with pytest.raises(RowError, match=match):
            HeadClustering().fit(broken)
    with pytest.raises(RowError, match="unknown clustering 'ward'"):
        HeadClustering(method="ward").fit(d)
    with pytest.raises(RowError, match="expected a number, None or 'silhouette'"):
        HeadClustering("gap").fit(d)
    for number in (3, "silhouette"):
        with pytest.raises(RowError, match="finds the number of clusters"):
            HeadClustering(number, method="hdbscan").fit(d)


def test_the_name_is_there_without_scikit_learn_being_loaded():
    assert sw.HeadClustering is HeadClustering
    code = (
        "import sys, sinkwise; assert 'sklearn' not in sys.modules; "
        "sinkwise.HeadClustering; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
