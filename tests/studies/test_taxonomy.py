"""Clusters of heads: the clusterings, their comparison, and what is refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId
from sinkwise.studies.clustering import (
    FINDS_NUMBER,
    METHODS,
    NOISE,
    adjusted_rand_index,
    cluster_heads,
    cluster_sizes,
    head_linkage,
    is_degenerate,
    noise_apart,
    silhouettes,
)
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.half_clusterings import FEW_PARTINGS_NOTE
from sinkwise.studies.head_map import aligned_with, head_map, raw_stress
from sinkwise.studies.taxonomy import TAXONOMY_NAMES, taxonomy

COLUMNS = {
    "first",
    "second",
    "method",
    "k",
    "ari",
    "low",
    "high",
    "ceiling_first",
    "ceiling_second",
    "sizes_first",
    "sizes_second",
    "degenerate",
}


TAKES_K = tuple(m for m in METHODS if m not in FINDS_NUMBER)


def number(method, k):
    """`k`, unless the method finds it."""
    return None if method in FINDS_NUMBER else k


def grouped(rng, *, heads=24, groups=4, apart=8.0):
    """Points in well-parted groups, and their groups."""
    groups_of = np.arange(heads) % groups
    centres = apart * np.eye(groups, 4)
    return rng.normal(size=(heads, 4)) + centres[groups_of], groups_of


def pairs_of(points, rng=None, *, documents=6, noise=0.0):
    d = pdist(points)
    factors = np.ones((documents, len(d)))
    if noise:
        factors = np.exp(noise * rng.normal(size=(documents, len(d))))
    return DocumentPairs(d * factors, np.ones((documents, 1)))


# -- the public cases ---------------------------------------------------------------------


def test_F1_square_matrices_are_distances_and_never_observations():
    condensed = np.array([1, 2, 3, 1.5, 2.7, 0.15])
    for form in (condensed, squareform(condensed)):
        heights = head_linkage(form, method="complete")[:, 2]
        np.testing.assert_allclose(heights, [0.15, 1.0, 3.0], rtol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_F2_float32_rounding_is_symmetrised_and_real_asymmetry_raises(method):
    points, groups = grouped(np.random.default_rng(0))
    d = squareform(pdist(points)) / 10
    noisy = d.astype(np.float32)
    noisy[1, 2] += np.float32(1e-7)
    before = noisy.copy()
    labels = cluster_heads(noisy, k=number(method, 4), method=method)
    assert adjusted_rand_index(labels, groups) == 1.0
    np.testing.assert_array_equal(noisy, before)
    d[1, 2] += 2e-3
    with pytest.raises(RowError, match="must be symmetric"):
        cluster_heads(d, k=number(method, 4), method=method)


def test_F4_nonzero_diagonal_raises_and_zeroed_gives_the_right_silhouette():
    values = np.array([0.2, 0.1, 0.12, 1.34, 1.11, 1.6])
    labels = np.array([0, 0, 0, 1, 1, 1])
    d = np.abs(np.subtract.outer(values, values)) + np.eye(6)
    before = d.copy()
    with pytest.raises(RowError, match="on its diagonal"):
        silhouettes(d, labels)
    with pytest.raises(RowError, match="on its diagonal"):
        cluster_heads(d, k=2)
    np.testing.assert_array_equal(d, before)
    assert silhouettes(d - np.eye(6), labels)[0] == pytest.approx(0.9217, abs=5e-5)


def test_F5_nan_distances_name_the_head():
    heads = [HeadId(i // 4, i % 4) for i in range(8)]
    d = squareform(pdist(np.random.default_rng(1).normal(size=(8, 3))))
    d[6] = np.nan
    d[:, 6] = np.nan
    for call in (
        lambda: cluster_heads(d, k=3, heads=heads),
        lambda: cluster_heads(d, k=3, method="k-medoids", heads=heads),
        lambda: head_linkage(d, heads=heads),
        lambda: head_map(d, heads=heads),
        lambda: silhouettes(d, np.arange(8) % 2, heads=heads),
    ):
        with pytest.raises(RowError, match="layer 1, head 2 has the most such values"):
            call()


def test_F7_index_of_a_million_labels_neither_overflows_nor_leaves_its_range():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 6, size=(2, 1_000_000))
    assert abs(adjusted_rand_index(first, second)) < 1e-4
    assert adjusted_rand_index(first, first) == 1.0
    assert adjusted_rand_index(first, (first + 3) % 6) == 1.0


def test_F9_reported_stress_is_that_of_the_returned_coordinates():
    d = squareform([1.0, 2.0, 3.0, 1.5, 2.7, 0.15])
    for matrix in (d, squareform(pdist(np.random.default_rng(2).normal(size=(30, 6))))):
        found = head_map(matrix)
        by_hand = sum(
            (np.linalg.norm(found.coordinates[i] - found.coordinates[j]) - matrix[i, j]) ** 2
            for i in range(len(matrix))
            for j in range(i)
        )
        assert found.stress == pytest.approx(by_hand, rel=1e-9)
        assert found.stress == pytest.approx(raw_stress(matrix, found.coordinates), rel=1e-9)


# -- clusterings --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), heads=st.integers(4, 30), data=st.data())
def test_average_linkage_is_scipys_cut(seed, heads, data):
    d = pdist(np.random.default_rng(seed).normal(size=(heads, 3)))
    k = data.draw(st.integers(2, heads - 1))
    theirs = fcluster(linkage(d, "average"), k, "maxclust")
    assert adjusted_rand_index(cluster_heads(d, k=k), theirs) == 1.0


@pytest.mark.parametrize("method", TAKES_K)
def test_ties_still_give_k_clusters(method):
    equal = np.ones((7, 7)) - np.eye(7)
    for k in (2, 3, 6):
        assert len(np.unique(cluster_heads(equal, k=k, method=method))) == k


@pytest.mark.parametrize("method", METHODS)
def test_identical_heads_do_not_break_clustering(method):
    assert len(cluster_heads(np.zeros((6, 6)), k=number(method, 3), method=method)) == 6
    # four groups of coinciding heads: nothing splits one, and HDBSCAN finds them all
    d = np.abs(np.subtract.outer(np.arange(24) // 6, np.arange(24) // 6)).astype(float)
    labels = cluster_heads(d, k=number(method, 4), method=method)
    assert adjusted_rand_index(labels, np.arange(24) // 6) == 1.0


@pytest.mark.parametrize("method", METHODS)
def test_parted_groups_are_found_whatever_the_order_of_heads(method):
    rng = np.random.default_rng(3)
    points, groups = grouped(rng)
    order = rng.permutation(len(points))
    labels = cluster_heads(pdist(points[order]), k=number(method, 4), method=method)
    assert adjusted_rand_index(labels, groups[order]) == 1.0
    assert labels[0] == 0 and set(labels) == {0, 1, 2, 3}


@pytest.mark.parametrize("method", METHODS)
def test_clusterings_repeat_and_leave_the_matrix_alone(method):
    d = squareform(pdist(np.random.default_rng(21).normal(size=(40, 3))))
    before = d.copy()
    first = cluster_heads(d, k=number(method, 5), method=method)
    np.testing.assert_array_equal(first, cluster_heads(d, k=number(method, 5), method=method))
    np.testing.assert_array_equal(d, before)
    # the unit of the distance is none of a clustering's business
    np.testing.assert_array_equal(
        first, cluster_heads(1024 * d, k=number(method, 5), method=method)
    )


def test_heads_in_no_cluster_are_labelled_so_and_stand_alone_in_the_index():
    rng = np.random.default_rng(22)
    points = np.concatenate([rng.normal(size=(10, 2)), 50 + rng.normal(size=(10, 2))])
    points = np.concatenate([points, [[500.0, 0], [0, 900.0]]])
    labels = cluster_heads(pdist(points), method="hdbscan")
    assert labels.tolist() == [0] * 10 + [1] * 10 + [NOISE] * 2
    assert cluster_sizes(labels) == (10, 10) and not is_degenerate(labels)
    assert noise_apart(labels).tolist() == [0] * 10 + [1] * 10 + [2, 3]
    # two clusterings that leave the same heads out do not agree on them
    other = labels.copy()
    other[:20] = np.arange(20) % 2
    apart = adjusted_rand_index(noise_apart(labels), noise_apart(other))
    assert apart < adjusted_rand_index(labels, other)


def test_an_index_of_the_study_takes_heads_in_no_cluster_apart():
    rng = np.random.default_rng(24)
    far = np.array([[500.0, 0], [0, 900.0], [-700.0, 0]])
    # three heads lost in both; the rest in two groups, or in two others
    usual = np.concatenate([rng.normal(size=(20, 2)) + 50 * (np.arange(20) % 2)[:, None], far])
    other = np.concatenate([rng.normal(size=(20, 2)) + 50 * (np.arange(20) // 10)[:, None], far])
    documents = {"content": pairs_of(usual), "aitchison": pairs_of(other)}
    row = taxonomy(documents, 23, methods=("hdbscan",), halves=2).iloc[0]
    labels = [cluster_heads(pdist(p), method="hdbscan") for p in (usual, other)]
    assert all((x == NOISE).sum() == 3 for x in labels)
    assert row.ari == adjusted_rand_index(*(noise_apart(x) for x in labels))
    assert row.ari < adjusted_rand_index(*labels)
    assert row.sizes_first == (10, 10) and row.ceiling_first == 1.0


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ([0] * 19 + [1], True),
        ([0] * 18 + [1, 1], False),
        ([NOISE] * 19 + [0], True),
        ([NOISE] * 20, True),
        ([0] * 20, True),
        ([0] * 10 + [NOISE] * 10, False),
    ],
)
def test_over_nine_tenths_in_one_cluster_or_in_none_is_degenerate(labels, want):
    assert is_degenerate(np.array(labels)) is want


def test_hdbscan_takes_no_number_and_the_others_need_one():
    d = np.ones((8, 8)) - np.eye(8)
    with pytest.raises(RowError, match="finds the number of clusters: leave k out"):
        cluster_heads(d, k=3, method="hdbscan")
    with pytest.raises(RowError, match="k is None, expected 2 to 7"):
        cluster_heads(d, method="spectral")


@pytest.mark.filterwarnings("error")
def test_groups_without_any_affinity_are_parted_without_a_word():
    points, groups = grouped(np.random.default_rng(26), apart=1.0)
    points[groups == 0] += 1e6
    labels = cluster_heads(pdist(points), k=2, method="spectral")
    assert labels.tolist() == [min(g, 1) for g in groups]
    pairs = pairs_of(points, np.random.default_rng(27), noise=0.01)
    found = taxonomy({"content": pairs, "aitchison": pairs}, 24, k=2, methods=("spectral",))
    assert found.ari[0] == found.ceiling_first[0] == 1.0


def test_spectral_is_scikit_learns_on_the_affinity_by_hand():
    d = squareform(pdist(grouped(np.random.default_rng(23), apart=3.0)[0]))
    width = np.median(d[np.triu_indices(24, 1)])
    affinity = np.exp(-(d**2) / (2 * width**2))
    theirs = SpectralClustering(4, affinity="precomputed", random_state=1, n_init=50)
    labels = cluster_heads(d, k=4, method="spectral")
    assert adjusted_rand_index(labels, theirs.fit_predict(affinity)) == 1.0


def medoid_cost(d, medoids):
    return d[list(medoids)].min(0).sum()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), heads=st.integers(4, 14), k=st.integers(2, 3))
def test_k_medoids_ends_where_no_swap_helps(seed, heads, k):
    d = squareform(pdist(np.random.default_rng(seed).normal(size=(heads, 2))))
    labels = cluster_heads(d, k=k, method="k-medoids")
    centres = []
    for c in range(k):
        mine = np.flatnonzero(labels == c)
        sums = d[np.ix_(mine, mine)].sum(1)
        centres.append(mine[sums <= sums.min() + 1e-12])  # of two heads either is the medoid

    def no_swap_helps(medoids):
        cost = medoid_cost(d, medoids)
        return all(
            medoid_cost(d, [other if x == m else x for x in medoids]) >= cost - 1e-9
            for m in medoids
            for other in set(range(heads)) - set(medoids)
        )

    assert any(no_swap_helps(medoids) for medoids in itertools.product(*centres))


@pytest.mark.parametrize("k", [1, 8, 9])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(RowError, match="expected 2 to 7"):
        cluster_heads(np.ones((8, 8)) - np.eye(8), k=k)


def test_unknown_methods_are_refused():
    with pytest.raises(RowError, match="there are average, k-medoids"):
        cluster_heads(np.ones((8, 8)) - np.eye(8), k=2, method="ward")
    with pytest.raises(RowError, match="'ward' needs more than distances"):
        head_linkage(np.ones((8, 8)) - np.eye(8), method="ward")


@settings(max_examples=100, deadline=None)
@given(
    labels=st.integers(2, 30).flatmap(
        lambda n: st.tuples(
            *[st.lists(st.integers(0, 4), min_size=n, max_size=n) for _ in range(2)]
        )
    )
)
def test_adjusted_rand_index_is_scikit_learns(labels):
    first, second = (np.array(x) for x in labels)
    want = adjusted_rand_score(first, second)
    assert adjusted_rand_index(first, second) == pytest.approx(want, abs=1e-12)


def test_labels_of_different_lengths_are_refused():
    with pytest.raises(RowError, match="of one length"):
        adjusted_rand_index([0, 1, 1], [0, 1])


def test_plane_distances_are_mapped_exactly_and_stress_falls():
    rng = np.random.default_rng(4)
    plane = rng.normal(size=(20, 2))
    # SMACOF from the exact start: what remains is rounding
    assert head_map(pdist(plane)).stress < 1e-20
    wanted = pdist(rng.normal(size=(20, 6)))
    start = head_map(wanted, max_iterations=0)
    assert head_map(wanted).stress < 0.9 * start.stress
    assert head_map(wanted, dimensions=6).stress < 1e-12
    # at the end no scaling of the map lowers the stress: its distances fit the wanted ones
    there = pdist(head_map(wanted).coordinates)
    assert (there @ wanted) / (there @ there) == pytest.approx(1.0, abs=1e-6)


def test_map_of_coinciding_heads_is_finite():
    assert np.isfinite(head_map(np.zeros((4, 4))).coordinates).all()
    assert head_map(np.zeros((2, 2)), dimensions=3).coordinates.shape == (2, 3)


def test_a_map_is_laid_over_another_by_the_best_turn():
    rng = np.random.default_rng(25)
    reference, points = rng.normal(size=(2, 15, 2))
    found = aligned_with(reference, points)
    # SciPy's procrustes also scales; its turn is the same
    _, theirs, _ = procrustes(reference, points)
    scale = np.linalg.norm(found - found.mean(0)) / np.linalg.norm(theirs)
    np.testing.assert_allclose(found - found.mean(0), theirs * scale, atol=1e-12)
    np.testing.assert_allclose(found.mean(0), reference.mean(0))
    ratio = pdist(found) / pdist(points)
    assert ratio == pytest.approx(ratio[0], rel=1e-12)
    turned = points @ np.array([[0, 1], [1, 0.0]]) * 7 + 3
    np.testing.assert_allclose(aligned_with(points, turned), points, atol=1e-12)
    assert np.isfinite(aligned_with(reference, np.zeros((15, 2)))).all()


# -- the study ----------------------------------------------------------------------------


def test_every_two_measures_are_compared_under_every_method():
    rng = np.random.default_rng(5)
    points, _ = grouped(rng)
    documents = {n: pairs_of(points, rng, noise=0.05) for n in TAXONOMY_NAMES}
    table = taxonomy(documents, 24, k=4, halves=5)
    assert set(table.columns) >= COLUMNS
    assert len(table) == 4 * 21
    assert set(table["method"]) == set(METHODS)
    # the groups stand 8 apart, the noise moves distances by a few percent
    assert (table.ari == 1).all()
    costly = table.method.isin(["spectral", "hdbscan"])
    assert (table.low[~costly] == 1).all() and (table.high[~costly] == 1).all()
    assert (table.note[costly] == FEW_PARTINGS_NOTE).all() and table.low[costly].isna().all()
    assert (table.ceiling_first == 1).all() and (table.ceiling_second == 1).all()
    found = table.method == "hdbscan"
    assert (table.k[~found] == 4).all() and table.k[found].isna().all()
    assert not table.degenerate.any()
    assert table.sizes_first[0] == (6, 6, 6, 6)


def test_index_and_ceilings_by_hand():
    rng = np.random.default_rng(6)
    points, _ = grouped(rng, apart=1.5)
    a = pairs_of(points, rng, documents=2, noise=0.3)
    b = pairs_of(rng.normal(size=(24, 4)), rng, documents=2, noise=0.1)
    row = taxonomy({"a": a, "b": b}, 24, names=("a", "b"), k=3, methods=("average",)).iloc[0]
    labels = [cluster_heads(x.distances(), k=3) for x in (a, b)]
    assert row.ari == adjusted_rand_index(*labels)
    for d, ceiling in ((a, row.ceiling_first), (b, row.ceiling_second)):
        # two documents part in one way only
        halves = [cluster_heads(x, k=3) for x in d.sums]
        assert ceiling == pytest.approx(adjusted_rand_index(*halves))
    assert row.note == "too few documents"


def test_a_chain_is_flagged_as_degenerate():
    rng = np.random.default_rng(7)
    # one far head each for three clusters, all others in the fourth
    points = np.concatenate([rng.normal(size=(37, 4)), 1000 * np.eye(4)[:3]])
    pairs = pairs_of(points)
    row = taxonomy({"content": pairs, "aitchison": pairs}, 40, k=4, halves=2).iloc[0]
    assert row.sizes_first == (37, 1, 1, 1)
    assert row.degenerate and row.ari == 1.0


def test_a_measure_that_disagrees_with_itself_gets_no_interval():
    rng = np.random.default_rng(8)
    points, _ = grouped(rng)
    documents = {
        "content": pairs_of(points, rng, documents=8, noise=0.02),
        "aitchison": pairs_of(rng.normal(size=(24, 4)), rng, documents=8, noise=3.0),
    }
    table = taxonomy(documents, 24, k=4, methods=("k-medoids",))
    row = table.iloc[0]
    assert row.ceiling_first == 1.0 and row.ceiling_second < 0.5
    assert np.isnan(row.low) and np.isnan(row.high) and row.note == "too few documents"


def test_number_of_clusters_by_silhouette():
    rng = np.random.default_rng(9)
    points, _ = grouped(rng, groups=3)
    pairs = pairs_of(points)
    table = taxonomy({"content": pairs, "aitchison": pairs}, 24, k="silhouette", halves=2)
    assert (table.k[table.method != "hdbscan"] == 3).all()


def test_fewer_heads_than_clusters_lower_the_default():
    pairs = pairs_of(np.random.default_rng(10).normal(size=(4, 2)))
    table = taxonomy({"content": pairs, "aitchison": pairs}, 4, methods=TAKES_K, halves=2)
    assert (table.k == 3).all()


@pytest.mark.parametrize("documents", [1, 3])
def test_few_documents_have_no_interval(documents):
    points, _ = grouped(np.random.default_rng(11))
    pairs = pairs_of(points, documents=documents)
    row = taxonomy({"content": pairs, "aitchison": pairs}, 24, k=4).iloc[0]
    assert row.note == "too few documents" and np.isnan(row.low)
    assert np.isnan(row.ceiling_first) == (documents < 2)
    assert row.ari == 1.0


def test_pairs_without_rows_name_their_heads():
    pairs = pairs_of(np.random.default_rng(12).normal(size=(4, 2)))
    counts = np.array(pairs.counts)
    counts[:, 0] = 0
    broken = DocumentPairs(pairs.sums * (counts > 0), counts)
    heads = [HeadId(3, i) for i in range(4)]
    with pytest.raises(RowError, match=r"aitchison is nan between layer 3, head 0 and layer 3"):
        taxonomy({"content": pairs, "aitchison": broken}, 4, heads=heads)


def agreement_coverage(studies, *, noise, documents=8, heads=24):
    hits, n = [], 0
    for i in range(studies):
        rng = np.random.default_rng([17, i])
        x = grouped(rng, heads=heads, apart=3.0)[0]
        y = x + 1.5 * rng.normal(size=x.shape)
        found = {
            "content": pairs_of(x, rng, documents=documents, noise=noise),
            "aitchison": pairs_of(y, rng, documents=documents, noise=noise),
        }
        methods = ("average", "k-medoids")  # the ones with intervals
        for row in taxonomy(found, heads, k=4, methods=methods, halves=20).itertuples():
            n += 1
            if row.note == "":
                truth = adjusted_rand_index(
                    *(cluster_heads(pdist(p), k=4, method=row.method) for p in (x, y))
                )
                hits.append(row.low - 1e-9 <= truth <= row.high + 1e-9)
    return (np.mean(hits) if hits else np.nan), len(hits) / n


def test_coverage_of_agreement_intervals():
    # of 20 intervals or so, each covering 0.95, fewer than 0.8 hit once in 390 seeds
    covered, given_share = agreement_coverage(12, noise=0.1)
    assert covered >= 0.8
    assert given_share >= 0.7


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.05, 0.2, 0.5, 1.0])
def test_coverage_of_agreement_intervals_by_noise(noise):
    covered, given_share = agreement_coverage(150, noise=noise)
    if given_share >= 0.2:
        assert covered >= 0.85
