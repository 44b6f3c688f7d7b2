"""Damage by document, rank correlations and clusters against hand counts and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sinkwise.errors import RowError
from sinkwise.studies.document_damage import damage_sums, document_outcome
from sinkwise.studies.exchange_damage import cluster_damage, damage_correlations


def _documents(losses, tokens):
    return [{"loss": float(x), "tokens": int(n)} for x, n in zip(losses, tokens, strict=True)]


def test_perplexity_pools_tokens_and_damage_is_paired_by_document():
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, 60, size=6)
    dense, now = 3 * tokens + rng.normal(size=6), 3.2 * tokens + rng.normal(size=6)
    found = document_outcome(_documents(now, tokens), _documents(dense, tokens), "perplexity")
    total = tokens.sum()
    assert found["value"] == pytest.approx(np.exp(now.sum() / total))
    assert found["damage"]["value"] == pytest.approx((now - dense).sum() / total)
    # delete-one-document jackknife by hand
    for numbers, value, low, high in (
        (now - dense, found["damage"]["value"], found["damage"]["low"], found["damage"]["high"]),
        (now, *np.log([found["value"], found["low"], found["high"]])),
    ):
        left = [(numbers.sum() - x) / (total - n) for x, n in zip(numbers, tokens, strict=True)]
        reach = stats.t.ppf(0.975, 5) * np.sqrt(5 / 6 * ((left - np.mean(left)) ** 2).sum())
        assert (low, high) == pytest.approx((value - reach, value + reach))
    # the pairing takes out what documents share, so the damage is known far better
    assert found["damage"]["high"] - found["damage"]["low"] < 0.5


def test_other_measures_are_their_own_damage():
    now = [{"damage": 0.1, "tokens": 10}, {"damage": 0.4, "tokens": 30}]
    dense = [{"damage": 0.0, "tokens": 10}, {"damage": 0.0, "tokens": 30}]
    found = document_outcome(now, dense, "cosine")
    assert found["value"] == found["damage"]["value"] == pytest.approx((0.1 * 10 + 0.4 * 30) / 40)


def test_damage_on_other_documents_is_refused():
    with pytest.raises(RowError, match="paired"):
        damage_sums(_documents([1.0], [5]), _documents([1.0], [6]), "perplexity")
    with pytest.raises(RowError, match="paired"):
        damage_sums(_documents([1.0], [5]), _documents([1.0, 2.0], [5, 5]), "perplexity")


def _sample(seed=0, documents=8, borrowers=10, donors=4, noise=0.1):
    """Damage grows with the distance, at a scale of each borrower's own."""
    rng = np.random.default_rng(seed)
    near = rng.random((borrowers, donors))
    importance = np.exp(rng.normal(0, 2, size=(borrowers, 1)))
    damage = (importance * near).ravel()
    tokens = rng.integers(50, 80, size=documents)
    sums = tokens[:, None] * damage * (1 + noise * rng.normal(size=(documents, 1)))
    return sums, tokens, np.repeat(np.arange(borrowers) + 5, donors), near.ravel(), damage


def test_correlations_equal_scipys_and_see_through_the_borrowers_importance():
    sums, tokens, borrowers, near, damage = _sample()
    table = damage_correlations(sums, tokens, borrowers, {"near": near}, mode="split")
    row = table.iloc[0]
    pooled_damage = sums.sum(0) / tokens.sum()
    assert row.pooled == pytest.approx(stats.spearmanr(near, pooled_damage).statistic)
    by_hand = [
        stats.spearmanr(near[borrowers == b], damage[borrowers == b]).statistic
        for b in np.unique(borrowers)
    ]
    assert row.within == pytest.approx(np.mean(by_hand)) == 1.0
    assert row.pooled < 0.8  # how much a borrower matters hides it
    assert (row.pairs, row.borrowers, row.note) == (40, 10, "")


def test_intervals_add_the_jackknives_over_documents_and_over_borrowers():
    rng = np.random.default_rng(1)
    sums, tokens, borrowers, near, _ = _sample(noise=0)
    sums = sums * np.exp(rng.normal(size=sums.shape))
    row = damage_correlations(sums, tokens, borrowers, {"near": near}, mode="split").iloc[0]

    def pooled(documents, pairs):
        damage = sums[documents].sum(0)[pairs] / tokens[documents].sum()
        return stats.spearmanr(near[pairs], damage).statistic

    every, all_pairs = np.ones(8, bool), np.ones(40, bool)
    over_documents = [pooled(np.arange(8) != d, all_pairs) for d in range(8)]
    over_borrowers = [pooled(every, borrowers != b) for b in np.unique(borrowers)]
    variance = sum(
        (len(v) - 1) / len(v) * ((np.array(v) - np.mean(v)) ** 2).sum()
        for v in (over_documents, over_borrowers)
    )
    reach = stats.t.ppf(0.975, 7) * np.sqrt(variance)
    assert row.pooled_low == pytest.approx(max(-1, row.pooled - reach))
    assert row.pooled_high == pytest.approx(min(1, row.pooled + reach))


def test_intervals_cover_the_truth_of_unrelated_distances():
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        sums = np.exp(rng.normal(size=(1, 48))) * np.exp(0.3 * rng.normal(size=(8, 48)))
        borrowers = np.repeat(np.arange(12), 4)
        near = {"noise": rng.random(48)}
        row = damage_correlations(sums, np.full(8, 60), borrowers, near, mode="whole").iloc[0]
        covered += row.within_low <= 0 <= row.within_high
    assert covered >= 54  # 0.95 of 60 would be 57


def test_too_few_documents_give_a_value_and_no_interval():
    sums, tokens, borrowers, near, _ = _sample(documents=2)
    row = damage_correlations(sums, tokens, borrowers, {"near": near}, mode="split").iloc[0]
    assert row.within == 1 and np.isnan(row.within_low) and "too few" in row.note


def test_pairs_whose_damage_is_not_finite_are_left_out():
    sums, tokens, borrowers, near, _ = _sample()
    whole = damage_correlations(
        sums[:, 1:], tokens, borrowers[1:], {"near": near[1:]}, mode="split"
    )
    sums[3, 0] = np.inf
    found = damage_correlations(sums, tokens, borrowers, {"near": near}, mode="split")
    assert found.equals(whole) and found.pairs[0] == 39
    pairs = [(int(b), 0) for b in borrowers]
    assert cluster_damage(sums, tokens, pairs, {("a", "b"): [0] * 20}, mode="x").pairs_same[0] == 39


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(RowError, match=r"expected \(documents, pairs\)"):
        damage_correlations(np.ones((2, 3)), np.ones(2), [4, 4], {"x": [1, 2]}, mode="split")


def test_clusters_are_compared_among_the_donors_of_one_borrower():
    damage = np.array([[1.0, 3.0, 2.0, 5.0, 9.0, 9.0]]).repeat(4, 0)
    pairs = [(6, 0), (6, 1), (6, 2), (7, 0), (7, 1), (7, 2)]
    labels = [0, 1, 1, 0, 0, 0, 0, 1]  # borrower 6 is with donor 0; borrower 7 with 1 and 2
    table = cluster_damage(
        damage, np.full(4, 10), pairs, {("content", "k-medoids"): labels}, mode="split"
    )
    row = table.iloc[0]
    # 6: both others do more than its own; 7: the other does less than both of its own
    assert row.superiority == pytest.approx((2 + 0) / 4)
    assert row.comparisons == 4 and (row.pairs_same, row.pairs_other) == (3, 3)
    assert row.same_cluster == pytest.approx((1 + 9 + 9) / 3 / 10)
    assert row.other_cluster == pytest.approx((3 + 2 + 5) / 3 / 10)


def test_ties_count_half_and_one_cluster_says_so():
    damage = np.ones((4, 4))
    pairs = [(4, 0), (4, 1), (5, 0), (5, 1)]
    found = cluster_damage(
        damage,
        np.full(4, 10),
        pairs,
        {("a", "average"): [0, 1, 0, 0, 0, 0], ("b", "average"): [0] * 6},
        mode="whole",
    )
    assert found.superiority[0] == 0.5
    assert np.isnan(found.superiority[1]) and "both sides" in found.note[1]
