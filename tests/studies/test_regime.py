"""The regime rule: frozen thresholds, the interval of the spread, and what really happened."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.studies.regime import (
    SinkDispersion,
    frozen_rule,
    regime,
    regime_outcome,
    sink_dispersion,
)


def logits(slope, documents=6, heads=5, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(1, heads, 6, 8))
    z = base + noise * rng.normal(size=(documents, heads, 6, 8))
    z[..., 0] += slope * np.arange(heads)[:, None]
    return z


def audit(slope, **options):
    return sw.audit(sw.rows(logits(slope, **options), sink=0, logits=True))


def test_the_thresholds_are_read_from_the_frozen_file():
    text = (resources.files("sinkwise.studies") / "regime_rule.json").read_text(encoding="utf-8")
    found = json.loads(text)
    assert found["schema"] == "sinkwise.regime/1" and found["version"] == 1
    # changing them needs a new version beside this one, not an edit
    assert (found["safe_below"], found["unsafe_above"]) == (0.10, 0.20)
    assert found["outcome"]["misled_above"] == 0.10
    assert found["frozen"] == "2026-12-02"
    rule = frozen_rule()
    assert (rule.safe_below, rule.unsafe_above, rule.misled_above) == (0.10, 0.20, 0.10)
    assert rule.record == found["published_record"]["text"]


@pytest.mark.parametrize(
    ("spread", "verdict"),
    [
        (0.0999, "classical safe"),
        (0.1001, "abstain"),
        (0.1999, "abstain"),
        (0.2001, "classical unsafe"),
    ],
)
def test_the_spread_of_sink_mass_decides(spread, verdict):
    found = regime(np.array([0.5 - spread, 0.5 + spread]))
    assert found["verdict"] == verdict
    assert found["dispersion"] == pytest.approx(spread)
    assert f"{spread:.3f}" in found["why"]
    assert found["settled"] is None


def test_at_a_threshold_the_rule_abstains():
    for spread in (0.10, 0.20):
        assert regime(SinkDispersion(spread, spread, spread, spread))["verdict"] == "abstain"


def test_its_record_always_comes_with_it():
    assert "one miss" in regime(np.array([0.1, 0.9]))["record"]
    assert "one miss" in audit(1.0).summary()["regime"]["record"]


def test_heads_without_rows_are_left_out_and_one_head_is_too_few():
    assert regime(np.array([0.4, np.nan, 0.5]))["dispersion"] == pytest.approx(0.05)
    with pytest.raises(sw.RowError, match="2 heads"):
        regime(np.array([0.4, np.nan]))
    sums, counts = np.array([[1.0, 0, 3], [2, 0, 3]]), np.array([[5, 0, 5], [5, 0, 5]])
    assert sink_dispersion(sums, counts).value == pytest.approx(np.std([0.3, 0.6]))
    with pytest.raises(sw.RowError, match="2 heads"):
        sink_dispersion(sums[:, :2], counts[:, :2])


def test_one_document_has_no_interval_and_a_head_of_one_document_none_either():
    assert np.isnan(sink_dispersion(np.array([[1.0, 4]]), np.array([5])).low)
    lonely = sink_dispersion(
        np.array([[1.0, 4], [1, 0], [2, 0]]), np.array([[5, 5], [5, 0], [5, 0]])
    )
    assert np.isnan(lonely.low) and lonely.value == pytest.approx(np.std([4 / 15, 0.8]))
    assert audit(1.0, documents=1).summary()["regime"]["low"] is None


def test_equal_documents_leave_no_noise():
    masses = np.tile([0.1, 0.5, 0.9], (4, 1))
    found = sink_dispersion(masses * 3, np.full(4, 3))
    assert found.low == pytest.approx(found.value) == found.corrected == found.high


def test_a_document_without_rows_changes_nothing():
    rng = np.random.default_rng(0)
    sums, counts = rng.random((5, 4)) * 7, np.full((5, 4), 7.0)
    one = sink_dispersion(sums, counts)
    two = sink_dispersion(np.vstack([sums, np.zeros(4)]), np.vstack([counts, np.zeros(4)]))
    assert (one.low, one.high) == pytest.approx((two.low, two.high))


@pytest.mark.parametrize(("heads", "noise"), [(4, 0.05), (72, 0.1), (72, 0.5)])
def test_the_interval_covers_where_noise_inflates_the_spread(heads, noise):
    rng = np.random.default_rng(heads)
    truth = rng.normal(size=heads)
    truth = 0.1 * (truth - truth.mean()) / truth.std()
    covered, values = 0, []
    for _ in range(400):
        x = truth + noise * rng.normal(size=(8, heads))
        found = sink_dispersion(x, np.ones(8))
        covered += found.low <= 0.1 <= found.high
        values.append(found.value)
    assert 0.90 <= covered / 400 <= 1.0
    if heads > 4:
        assert np.mean(values) > 0.104  # the spread itself is too large by its noise


def test_an_interval_across_a_threshold_is_said():
    rng = np.random.default_rng(1)
    x = np.linspace(0.30, 0.64, 5) + 0.1 * rng.normal(size=(4, 5))  # a spread of about 0.12
    found = regime(sink_dispersion(x, np.ones(4)))
    assert found["low"] < 0.10 < found["high"]
    assert found["settled"] is False and "don't settle" in found["why"]
    sharp = regime(sink_dispersion(np.tile([0.1, 0.9], (4, 1)), np.ones(4)))
    assert sharp["settled"] is True and "lies there too" in sharp["why"]


def test_the_outcome_is_the_resolved_rate_and_the_verdict_is_held_to_it():
    found = audit(2.0, noise=0.1)
    table = found.reversals().set_index(["first", "second"])
    row = table.loc[("js_divergence/kept", "js_divergence/dropped")]
    outcome = regime_outcome(found)
    assert outcome["rate"] == pytest.approx(row["resolved_rate"])
    assert outcome["resolved_share"] == pytest.approx(row["resolved_share"])
    said, misled = found.regime()["verdict"], outcome["rate"] > 0.1
    assert said == "classical unsafe"
    assert outcome["misled"] == misled
    assert outcome["result"] == ("hit" if misled else "miss")


@pytest.mark.parametrize(
    ("spread", "rate", "result"),
    [
        (0.05, 0.02, "hit"),
        (0.05, 0.10, "hit"),  # at the threshold: not misled
        (0.05, 0.30, "miss"),
        (0.15, 0.30, "abstained"),
        (0.30, 0.02, "miss"),
        (0.30, 0.30, "hit"),
    ],
)
def test_hits_misses_and_abstentions(monkeypatch, spread, rate, result):
    from sinkwise.studies import regime as module

    found = audit(1.0)
    monkeypatch.setattr(module, "_resolved_js", lambda a: (rate, 0.5, ""))
    monkeypatch.setattr(type(found), "regime", lambda a: regime(np.array([0, 2 * spread])))
    assert regime_outcome(found)["result"] == result


@pytest.mark.parametrize("options", [{"heads": 2}, {"documents": 1}])
def test_without_a_resolved_verdict_nothing_is_decided(options):
    outcome = regime_outcome(audit(1.0, **options))
    assert outcome["result"] == "undecided" and outcome["why"]
    assert outcome["rate"] is None and outcome["misled"] is None


def test_a_single_head_has_no_verdict():
    found = audit(1.0, heads=1)
    assert found.regime() is None
    assert regime_outcome(found)["result"] == "undecided"
