"""Linkage, scale and sink, one at a time: each shows where it was put in, and nowhere else."""

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import pdist

from sinkwise.studies.clustering import adjusted_rand_index, cluster_heads
from sinkwise.studies.document_halves import DocumentPairs
from sinkwise.studies.half_clusterings import HalfClusterings
from sinkwise.studies.taxonomy_effects import (
    EFFECT_COLUMNS,
    EFFECT_NAMES,
    effects_of,
    taxonomy_effects,
    what_follows,
)

HEADS = 24


def seen(points, rng, *, documents=8, noise=0.02):
    d = pdist(points)
    return DocumentPairs(
        d * np.exp(noise * rng.normal(size=(documents, len(d)))), np.ones((documents, 1))
    )


def in_groups(rng, labels):
    """Points whose groups are `labels`."""
    return 9 * np.eye(4)[labels] + rng.normal(size=(HEADS, 4))


def planted(*, scale=False, sink=False, seed=0, **noise):
    """All measures in the same groups, but for the effect that is planted."""
    rng = np.random.default_rng(seed)
    usual = np.arange(HEADS) % 4
    other = np.arange(HEADS) // 6  # crosses the usual groups
    moved = {"content_angle"} if scale else set()
    moved |= {"js_divergence/dropped", "cosine/dropped"} if sink else set()
    return {
        name: seen(in_groups(rng, other if name in moved else usual), rng, **noise)
        for name in EFFECT_NAMES
    }


@pytest.mark.parametrize("effect", ["scale", "sink", None])
def test_a_planted_effect_is_found_where_it_is(effect):
    table = taxonomy_effects(planted(**({effect: True} if effect else {})), HEADS, k=4)
    assert tuple(table.columns) == EFFECT_COLUMNS
    assert table.effect.value_counts().to_dict() == {
        "scale": 4,
        "sink": 4,
        "together": 4,
        "linkage": 2,
    }
    ends = table[["first", "second"]].isin(["content_angle"]).any(axis=1)
    touched = {
        "scale": ends,
        "sink": table.effect == "sink",
        None: pd.Series(False, index=table.index),
    }[effect]
    assert (table.ari[~touched] == 1).all() and (table.ari[touched] < 0.2).all()
    assert (table.high[touched] < table.ceiling[touched]).all()
    assert (table.ceiling == 1).all() and not table.degenerate.any()
    text = what_follows(table)
    for words, name in (("the scale alone", "scale"), ("the sink alone", "sink")):
        clause = next(c for c in text.split("; ") if c.startswith(words))
        assert ("below it" in clause) == (name == effect)
        assert ("not told from noise" in clause) == (name != effect)


def test_indices_are_those_of_the_clusterings():
    rng = np.random.default_rng(1)
    documents = {name: seen(rng.normal(size=(HEADS, 3)), rng) for name in EFFECT_NAMES}
    table = taxonomy_effects(documents, HEADS, k=3, halves=3)
    for row in table.itertuples():
        first = cluster_heads(documents[row.first].distances(), k=3, method=row.first_method)
        second = cluster_heads(documents[row.second].distances(), k=3, method=row.second_method)
        assert row.ari == adjusted_rand_index(first, second)
        differ = (row.first != row.second, row.first_method != row.second_method)
        assert differ == ((False, True) if row.effect == "linkage" else (True, False))


def test_a_chain_is_named_and_not_taken_for_an_effect():
    rng = np.random.default_rng(2)
    documents = planted()
    chained = np.concatenate([rng.normal(size=(HEADS - 1, 4)), [[900.0, 0, 0, 0]]])
    documents["content"] = seen(chained, rng)
    table = taxonomy_effects(documents, HEADS, k=2)
    row = table[table.effect == "linkage"].iloc[0]
    assert row.degenerate and row.sizes_first == (23, 1)
    assert "which says little with 96 % of the heads in one cluster" in what_follows(table)


def test_missing_measures_leave_their_rows_out_and_few_documents_their_intervals():
    documents = {n: d for n, d in planted(documents=2).items() if not n.startswith("cosine")}
    del documents["dispersion"]
    table = taxonomy_effects(documents, HEADS, k=4)
    assert (
        table.effect.tolist() == ["linkage"] * 2 + ["scale"] * 2 + ["sink"] * 2 + ["together"] * 4
    )
    assert table.low.isna().all() and (table.note == "too few documents").all()
    assert "too few documents to say more" in what_follows(table)
    assert what_follows(table.iloc[:0]) == ""


def test_shared_clusterings_give_the_same_table():
    documents = planted(scale=True, noise=0.3)
    found = HalfClusterings(documents, HEADS, default=EFFECT_NAMES, k=4)
    pd.testing.assert_frame_equal(effects_of(found), taxonomy_effects(documents, HEADS, k=4))


def test_three_heads():
    rng = np.random.default_rng(3)
    documents = {n: seen(rng.normal(size=(3, 2)), rng) for n in EFFECT_NAMES}
    assert len(taxonomy_effects(documents, 3)) == 14
