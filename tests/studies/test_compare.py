"""Comparing two runs: values, cover, pairing, refusals, and geometry beside noise."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
from scipy import stats

import sinkwise as sw
from sinkwise.studies.audit import Audit
from sinkwise.studies.compare import CHANGE_COLUMNS, COMPARED, HEAD_CHANGE_COLUMNS, changes
from sinkwise.studies.compare_geometry import GEOMETRY_COLUMNS, compare_geometry
from sinkwise.studies.document_halves import DocumentPairs


def logits(documents=8, heads=4, seed=0):
    return np.random.default_rng(seed).normal(size=(documents, heads, 6, 8))


def audit(z, **card):
    found = sw.audit(sw.rows(z, sink=0, logits=True))
    return Audit(found.store, found.heads, {**found.card(), **card})


def test_paired_and_unpaired_intervals_are_the_t_tests_where_documents_are_alike():
    rng = np.random.default_rng(0)
    a, b = rng.random((7, 3)), rng.random((7, 3)) + 0.1
    n = np.ones((7, 3))
    paired = changes(a, n, b, n, paired=True)
    second = stats.ttest_rel(b, a)
    np.testing.assert_allclose(paired.p_value, second.pvalue, rtol=1e-9)
    ends = second.confidence_interval(0.95)
    np.testing.assert_allclose(paired[["low", "high"]].T, [ends.low, ends.high], rtol=1e-9)
    c = rng.random((5, 3))
    welch = changes(a, n, c, np.ones((5, 3)), paired=False)
    second = stats.ttest_ind(c, a, equal_var=False)
    np.testing.assert_allclose(welch.p_value, second.pvalue, rtol=1e-9)
    ends = second.confidence_interval(0.95)
    np.testing.assert_allclose(welch[["low", "high"]].T, [ends.low, ends.high], rtol=1e-9)


@pytest.mark.parametrize("paired", [True, False])
def test_the_intervals_cover_with_documents_of_unequal_length(paired):
    rng = np.random.default_rng(1)
    g, columns = 8, 2000
    rows = rng.integers(20, 60, (g, 1)).astype(float)
    common = rng.normal(size=(g, columns))
    a = 0.3 + common + 0.3 * rng.normal(size=(g, columns))
    b = 0.5 + 0.3 * rng.normal(size=(g, columns))
    b += common if paired else 3 * rng.normal(size=(g, columns))
    counts = np.broadcast_to(rows, a.shape)
    found = changes(a * rows, counts, b * rows, counts, paired=paired)
    covered = ((found.low <= 0.2) & (found.high >= 0.2)).mean()
    assert 0.925 <= covered <= 0.975


def test_a_document_pair_without_rows_in_one_run_and_a_head_without_any():
    a, b = np.array([[1.0, 1], [2, 0], [3, 0]]), np.array([[2.0, 0], [3, 0], [5, 0]])
    n = np.array([[1.0, 1], [1, 0], [1, 0]])
    m = np.array([[1.0, 0], [1, 0], [1, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for paired in (True, False):
            found = changes(a, n, b, m, paired=paired)
            assert np.isfinite(found.low[0]) and np.isnan(found.low[1])
            assert np.isnan(found.second[1]) and np.isnan(found.p_value[1])


def test_a_run_against_itself_has_not_changed():
    run = audit(logits())
    found = sw.compare(run, run, paired=True)
    assert len(found.differences) == 0 and found.measures_differ == ()
    assert (found.model.change == 0).all() and (found.model.p_value == 1).all()
    assert (found.heads.q_value == 1).all()
    assert (found.geometry.rate == 0).all() and (found.geometry.p_value == 1).all()


def test_what_changed_is_found_and_the_rest_is_not():
    z = logits(documents=10, seed=3)
    more = z + 0.01 * logits(documents=10, seed=4)
    more[:, 1, :, 0] += 1.5  # one head's sink
    found = sw.compare(audit(z), audit(more), paired=True)
    assert tuple(found.model) == CHANGE_COLUMNS and tuple(found.heads) == HEAD_CHANGE_COLUMNS
    assert list(found.model.quantity) == list(COMPARED)
    mass = found.heads[found.heads.quantity == "sink_mass"].set_index("head")
    assert mass.q_value["L0H1"] < 0.001 and (mass.q_value.drop("L0H1") > 0.01).all()
    assert mass.low["L0H1"] > 0.1
    np.testing.assert_allclose(mass.change, mass.second - mass["first"])
    content = found.heads[found.heads.quantity == "content_dispersion"]
    assert (content.change.abs() < 0.02).all()
    whole = found.model.set_index("quantity")
    assert whole.change["sink_mass"] == pytest.approx(mass.change.mean())
    # kept verdicts moved, content verdicts did not
    geometry = found.geometry.set_index("measure")
    assert tuple(found.geometry) == GEOMETRY_COLUMNS
    assert geometry.excess["cosine/kept"] > 0.05 and geometry.p_value["cosine/kept"] < 0.02
    assert geometry.rate["content"] < 0.1 and abs(geometry.excess["content"]) < 0.02


def test_the_rate_is_the_exact_one_between_the_runs():
    one, two = audit(logits(seed=0)), audit(logits(seed=1))
    found = sw.compare(one, two).geometry.set_index("measure")
    expected = sw.reversal_rate(one.distances.content.values, two.distances.content.values)
    assert found.rate["content"] == pytest.approx(expected)


@pytest.mark.parametrize("paired", [True, False])
def test_noise_alone_seldom_counts_as_a_change(paired):
    rng = np.random.default_rng(5)
    alarms, excess = 0, []
    for seed in range(40):
        truth, common = rng.random(45), 0.3 * rng.normal(size=(8, 45))
        other = common if paired else 0.3 * rng.normal(size=(8, 45))
        runs = [
            {"x": DocumentPairs(truth + c + 0.1 * rng.normal(size=(8, 45)), np.ones(8))}
            for c in (common, other)
        ]
        row = compare_geometry(
            runs[0].__getitem__, runs[1].__getitem__, 10, paired=paired, names=("x",), seed=seed
        ).iloc[0]
        alarms += row.p_value <= 0.05
        excess.append(row.excess)
    assert alarms <= 6  # 2 expected; 7 or more has a chance of 0.003
    assert abs(np.mean(excess)) < 3 * np.std(excess) / np.sqrt(40) + 1e-3


def test_runs_in_folders_are_paired_by_their_fingerprint(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    sw.audit(sw.rows(logits(), sink=0, logits=True), out=folders[0])
    shutil.copytree(folders[0], folders[1])
    sw.audit(sw.rows(logits(seed=1), sink=0, logits=True), out=folders[2])
    same = sw.compare(folders[0], folders[1])
    assert same.paired and "the same documents" in same.notes[0]
    assert not sw.compare(folders[0], folders[2]).paired
    assert not sw.compare(folders[0], folders[1], paired=False).paired
    assert "as asked for" in sw.compare(folders[0], folders[2], paired=True).notes[0]


def test_paired_documents_must_match():
    with pytest.raises(sw.RowError, match="8 and 6, 6 of the same number"):
        sw.compare(audit(logits()), audit(logits(documents=6)), paired=True)


def test_unpaired_runs_may_differ_in_their_number_of_documents():
    found = sw.compare(audit(logits()), audit(logits(documents=5, seed=1)))
    assert not found.paired
    assert found.geometry.p_value.between(0.005, 1).all()
    assert found.geometry.excess.notna().all() and found.model.low.notna().all()


def test_other_heads_are_refused():
    with pytest.raises(sw.RunError, match="L0H4 is in one alone"):
        sw.compare(audit(logits()), audit(logits(heads=5)))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({"model": "a"}, {"model": "b"}, "model is a in the first"),
        ({"model": "a", "revision": "1"}, {"model": "a", "revision": "2"}, "revision is 1"),
        ({"weights_fingerprint": "x"}, {"weights_fingerprint": "y"}, "weights differ"),
    ],
)
def test_other_models_are_refused_unless_they_are_meant(first, second, words):
    one, two = audit(logits(), **first), audit(logits(), **second)
    with pytest.raises(sw.RunError, match=words):
        sw.compare(one, two)
    assert len(sw.compare(one, two, allow_different_models=True).differences) > 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"model": "a", "weights_fingerprint": "x"}, {"model": "b", "weights_fingerprint": "x"}),
        (
            {"model": "a", "weights_fingerprint": "x", "dtype": "float32"},
            {"model": "a", "weights_fingerprint": "y", "dtype": "bfloat16"},
        ),
        ({"model": "a"}, {}),
    ],
)
def test_another_name_or_another_dtype_is_no_other_model(first, second):
    sw.compare(audit(logits(), **first), audit(logits(), **second))


def test_another_measure_is_not_compared_silently():
    one, two = audit(logits(), sink="first", seed=0), audit(logits(), sink=[0, 1], seed=1)
    with pytest.warns(UserWarning, match=r"sink \(first against \[0, 1\]\)"):
        found = sw.compare(one, two)
    assert found.measures_differ == ("sink",)
    assert list(found.differences.entry) == ["sink", "seed"]


@pytest.mark.parametrize("documents", [1, 2])
def test_few_documents(documents):
    one, two = audit(logits(documents)), audit(logits(documents, seed=1))
    found = sw.compare(one, two)
    assert np.isfinite(found.model.change).all() and np.isfinite(found.geometry.rate).all()
    if documents == 1:
        assert found.model.low.isna().all() and found.geometry.p_value.isna().all()
        assert found.geometry.note.str.contains("one document").all()


def test_few_heads():
    found = sw.compare(audit(logits(heads=2)), audit(logits(heads=2, seed=1)))
    assert len(found.geometry) == 0 and tuple(found.geometry) == GEOMETRY_COLUMNS
    assert any("fewer than 3 heads" in note for note in found.notes)


def test_a_measure_without_common_rows_is_noted():
    sums = np.ones((4, 6))
    counts = np.ones((4, 6))
    lost = DocumentPairs(np.where(np.arange(6) == 0, 0.0, sums), (np.arange(6) > 0) * counts)
    whole = DocumentPairs(np.random.default_rng(0).random((4, 6)), counts)
    found = compare_geometry(
        {"x": whole, "y": lost}.__getitem__,
        {"x": whole, "y": whole}.__getitem__,
        4,
        paired=True,
        names=("x", "y"),
    )
    assert found.note.tolist() == ["", "some two heads share no row"]
    assert np.isnan(found.rate[1]) and np.isfinite(found.q_value[0])
