"""Mantel correlations against scikit-bio, brute force and edge cases."""

import itertools

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from scipy.stats import spearmanr
from skbio.stats.distance import mantel

from sinkwise.errors import RowError
from sinkwise.studies.mantel import MANTEL_COLUMNS, sink_association


def matrices(seed, n=12):
    rng = np.random.default_rng(seed)
    mass = rng.random(n)
    content = squareform(pdist(rng.normal(size=(n, 3))))
    gaps = np.abs(np.subtract.outer(mass, mass))
    kept = 0.5 * content + 2 * gaps + squareform(rng.random(n * (n - 1) // 2) * 0.1)
    return mass, gaps, {"content": content, "cosine/kept": kept}


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_correlations_are_scikit_bio_s(method):
    mass, gaps, found = matrices(0)
    table = sink_association(found, mass, permutations=0)
    table = table[table.method == method].set_index("measure")
    for name, matrix in found.items():
        want, _, _ = mantel(matrix, gaps, method=method, permutations=0)
        assert table.r[name] == pytest.approx(want, abs=1e-12)
    assert table.p.isna().all()


def test_partial_correlation_is_that_of_the_residuals():
    mass, gaps, found = matrices(1)
    table = sink_association(found, mass, permutations=0).set_index(["measure", "method"])
    d, g, c = (squareform(m, checks=False) for m in (found["cosine/kept"], gaps, found["content"]))
    design = np.stack([np.ones_like(c), c], 1)
    rest = [v - design @ np.linalg.lstsq(design, v, rcond=None)[0] for v in (d, g)]
    assert table.partial_r["cosine/kept", "pearson"] == pytest.approx(np.corrcoef(*rest)[0, 1])
    assert np.isnan(table.partial_r["content", "pearson"])
    assert table.r["cosine/kept", "spearman"] == pytest.approx(spearmanr(d, g)[0])


def test_p_values_approach_those_of_all_permutations():
    mass, gaps, found = matrices(2, n=6)
    d = squareform(found["content"], checks=False)
    every = []
    for order in itertools.permutations(range(6)):
        g = squareform(gaps[np.ix_(order, order)], checks=False)
        every.append(np.corrcoef(d, g)[0, 1])
    want = np.mean(np.abs(every) >= abs(every[0]) - 1e-12)
    table = sink_association(found, mass, permutations=4000, seed=3)
    # 4,000 draws: three standard errors of a share
    assert table.p[0] == pytest.approx(want, abs=3 * np.sqrt(want * (1 - want) / 4000) + 1 / 4000)


def test_a_distance_that_is_the_gap_has_the_smallest_p():
    mass, gaps, _ = matrices(4)
    table = sink_association({"euclidean/kept": gaps}, mass, permutations=99)
    assert table.r.tolist() == pytest.approx([1, 1]) and table.p.tolist() == [0.01, 0.01]


def test_unrelated_distances_have_even_p_values():
    rng = np.random.default_rng(5)
    p = []
    for seed in range(60):
        d = squareform(pdist(rng.normal(size=(9, 3))))
        p.append(sink_association({"x": d}, rng.random(9), permutations=99, seed=seed).p[0])
    assert 0.35 < np.mean(p) < 0.65  # the mean of 60 even draws is within 0.12 of 0.5, 3 s.e.


@pytest.mark.parametrize("constant", ["distances", "gaps"])
def test_constant_matrices_have_no_correlation_and_say_so(constant):
    mass, _, found = matrices(6, n=5)
    if constant == "gaps":
        mass = np.full(5, 0.3)
    else:
        found["content"] = 1.0 - np.eye(5)
    table = sink_association(found, mass, permutations=9)
    rows = table if constant == "gaps" else table[table.measure == "content"]
    assert rows.r.isna().all() and rows.p.isna().all()
    assert (rows.note == f"all {constant} are alike").all()


def test_wrong_input_is_told_apart():
    mass, _, found = matrices(7)
    with pytest.raises(RowError, match="3 heads"):
        sink_association({}, mass[:2])
    with pytest.raises(RowError, match="12 heads, sink_mass 11"):
        sink_association(found, mass[:-1])
    with pytest.raises(RowError, match="not finite"):
        sink_association(found, np.where(mass == mass[0], np.nan, mass))
    assert tuple(sink_association(found, mass, permutations=0).columns) == MANTEL_COLUMNS
