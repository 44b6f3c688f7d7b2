"""Entropy over checkpoints: attribution against brute force, intervals, verdicts, extremes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkwise as sw
from sinkwise.accumulate.intervals import Interval, jackknife_mean
from sinkwise.channels.entropy import EntropyParts
from sinkwise.errors import RowError, RunError
from sinkwise.studies.collapse_sums import change_sums, usable_rows
from sinkwise.studies.collapse_verdicts import VERDICTS, share_of_change, verdict, words

KEYS = 9


def maps(seed: int, *, documents: int = 6, heads: int = 3, queries: int = 7) -> np.ndarray:
    """Logits ``(documents, heads, queries, keys)``."""
    return np.random.default_rng(seed).normal(size=(documents, heads, queries, KEYS))


def study_of(*logits: np.ndarray, sink=0, **options) -> sw.CollapseStudy:
    named = {
        f"step{10 * i}": sw.rows(z, sink=sink, logits=True, zeros="exclude")
        for i, z in enumerate(logits)
    }
    return sw.collapse_study(named, **options)


def onto_sink(z: np.ndarray, by: float) -> np.ndarray:
    return z + by * (np.arange(KEYS) == 0)


def sharper(z: np.ndarray, factor: float) -> np.ndarray:
    """Content logits scaled, with the sink mass left where it was."""
    content = z[..., 1:] * factor
    shift = np.log(np.exp(z[..., 1:]).sum(-1) / np.exp(content).sum(-1))
    return np.concatenate([z[..., :1], content + shift[..., None]], -1)


def softmax(z: np.ndarray) -> np.ndarray:
    p = np.exp(z - z.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(p)).sum(-1)


def brute(z0: np.ndarray, z1: np.ndarray, sinks: int) -> dict[str, np.ndarray]:
    """The formula as it is written, row by row, with probabilities."""
    found = []
    for z in (z0, z1):
        p = softmax(z)
        s = p[..., :sinks].sum(-1)
        binary = -s * np.log(s) - (1 - s) * np.log1p(-s)
        pi, rho = p[..., sinks:] / (1 - s)[..., None], p[..., :sinks] / s[..., None]
        found.append((s, binary, entropy(pi), entropy(rho)))
    (s0, b0, h0, k0), (s1, b1, h1, k1) = found
    ds, mean = s1 - s0, (s0 + s1) / 2
    return {
        "sink": b1 - b0 - ds * (h0 + h1) / 2 + ds * (k0 + k1) / 2,
        "content": (1 - mean) * (h1 - h0),
        "within_sink": mean * (k1 - k0),
        "total": entropy(softmax(z1)) - entropy(softmax(z0)),
        "sink_mass": ds,
        "content_entropy": h1 - h0,
    }


@pytest.mark.parametrize("sinks", [1, 2])
def test_any_two_checkpoints_are_attributed_as_by_brute_force(sinks):
    z = [maps(seed) for seed in (0, 1, 2)]
    study = study_of(*z, sink=tuple(range(sinks)))
    for i, j in ((0, 1), (1, 2), (0, 2), (2, 0)):
        expected = brute(z[i], z[j], sinks)
        shift = study.change(study.names[i], study.names[j])
        heads = study.by_head(study.names[i], study.names[j])
        for name, rows in expected.items():
            assert getattr(shift, name).value == pytest.approx(rows.mean(), abs=1e-13)
            by_document = jackknife_mean(rows.sum((1, 2)), np.full(6, rows[0].size))
            assert getattr(shift, name).low == pytest.approx(float(by_document.low), abs=1e-13)
            np.testing.assert_allclose(heads[name], rows.mean((0, 2)), atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.1, 12), st.sampled_from([1, 2, 3]))
def test_channels_add_up_to_the_change(seed, scale, sinks):
    study = study_of(scale * maps(seed), scale * maps(seed + 1), sink=tuple(range(sinks)))
    shift = study.overall
    total = shift.sink.value + shift.content.value + shift.within_sink.value
    assert total == pytest.approx(shift.total.value, abs=1e-12)
    assert shift.residual <= 1e-10
    table = study.checkpoints
    np.testing.assert_allclose(
        table.entropy, table.entropy_sink + table.entropy_content + table.entropy_within_sink
    )
    assert shift.total.value == pytest.approx(table.entropy[1] - table.entropy[0], abs=1e-12)
    for part in (study.by_head(), study.by_layer()):
        np.testing.assert_allclose(part.total, part.sink + part.content + part.within_sink)


def test_consecutive_changes_add_up_to_the_whole():
    study = study_of(*(maps(seed) for seed in range(4)))
    assert sum(s.total.value for s in study.changes()) == pytest.approx(study.overall.total.value)


def test_a_sink_that_grows_leaves_the_content_channel_at_zero():
    z = maps(0)
    shift = study_of(z, onto_sink(z, 3.0)).overall
    assert shift.verdict == "sink grew"
    assert abs(shift.content.value) < 1e-14
    assert shift.shares["sink"].value == pytest.approx(1.0)
    assert study_of(onto_sink(z, 3.0), z).overall.verdict == "sink shrank"


def test_content_that_sharpens_leaves_the_sink_channel_at_zero():
    z = maps(0)
    shift = study_of(z, sharper(z, 3.0)).overall
    assert shift.verdict == "content sharpened"
    assert abs(shift.sink.value) < 1e-13
    assert study_of(sharper(z, 3.0), z).overall.verdict == "content spread"


def test_both_and_neither():
    z = maps(0)
    assert study_of(z, onto_sink(sharper(z, 3.0), 3.0)).overall.verdict == "both"


def test_what_made_most_of_a_change_is_named_where_both_channels_count():
    z = maps(0)
    most = study_of(z, onto_sink(sharper(z, 1.3), 4.0)).overall
    assert (most.verdict, most.mostly) == ("both", "sink")
    assert "Most of the change is the sink's" in most.words
    least = study_of(z, onto_sink(sharper(z, 6.0), 0.2)).overall
    assert (least.verdict, least.mostly) == ("both", "content")
    assert study_of(z, z).overall.mostly == ""


def test_checkpoints_that_differ_by_noise_are_rarely_told_apart():
    found = [study_of(maps(seed), maps(seed + 100)).overall.verdict for seed in range(30)]
    assert found.count("neither") >= 24  # 0.95 in each of two channels: 27 on average


def test_a_tie_of_equal_checkpoints_is_neither_and_has_no_share():
    z = maps(0)
    shift = study_of(z, z).overall
    assert shift.verdict == "neither"
    assert shift.total.value == 0
    assert all(np.isnan(share.value) for share in shift.shares.values())


def test_one_document_has_values_without_intervals_shares_or_verdict():
    z = maps(0, documents=1)
    study = study_of(z, onto_sink(z, 3.0))
    shift = study.overall
    assert shift.verdict == "no interval"
    assert np.isfinite(shift.total.value)
    assert np.isnan(shift.total.low)
    written = study.to_json()["overall"]
    assert written["total"]["low"] is None
    assert written["sink"]["share"] is None
    assert "two documents" in written["share_withheld"]


def test_float32_probabilities_would_have_lost_what_is_kept():
    """At s = 1 in float32 the content entropy from probabilities is NaN; from logits it is not."""
    z = maps(0)
    sunk = onto_sink(z, 200.0)
    p = softmax(sunk.astype(np.float32))
    with np.errstate(all="ignore"):
        assert np.isnan((p[..., 1:] / (1 - p[..., :1])).sum())
    study = study_of(z, sunk.astype(np.float32))
    np.testing.assert_allclose(study.checkpoints.content_entropy.diff()[1], 0, atol=1e-5)
    assert study.overall.verdict == "sink grew"


# -- verdicts in words ----------------------------------------------------------------------------


def around(value: float, half: float = 0.1) -> Interval:
    return Interval(value, value - half, value + half)


@pytest.mark.parametrize(
    ("sink", "content", "mass", "expected"),
    [
        (-0.5, 0.0, 0.4, "sink grew"),
        (0.5, 0.0, 0.4, "sink grew"),  # from almost no mass a growing sink raises the entropy
        (0.5, 0.0, -0.4, "sink shrank"),
        (-0.5, 0.0, 0.0, "sink moved"),
        (0.0, -0.5, 0.4, "content sharpened"),
        (0.0, 0.5, 0.0, "content spread"),
        (-0.5, -0.5, 0.4, "both"),
        (-0.5, 0.5, 0.4, "both"),
        (0.0, 0.0, 0.4, "neither"),
    ],
)
def test_intervals_decide_the_verdict(sink, content, mass, expected):
    judged = around(sink), around(content), around(mass)
    assert verdict(*judged) == expected
    assert expected in VERDICTS
    told = words(*judged)
    if expected not in ("both", "neither"):
        assert expected in told
    if expected == "both":
        assert ("too" in told) == (sink * content > 0)


# -- shares ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(-1, 1), st.integers(2, 9))
def test_a_share_is_given_exactly_where_the_change_excludes_zero(seed, centre, documents):
    rng = np.random.default_rng(seed)
    total = rng.normal(centre, 1, documents)
    channel = total * 0.4 + rng.normal(0, 0.2, documents)
    rows = np.full(documents, 5.0)
    whole = jackknife_mean(total, rows)
    told = bool(whole.low > 0 or whole.high < 0)
    share = share_of_change(channel, total, rows)
    assert np.isfinite(share.value) == told
    if told:
        assert share.low <= share.value <= share.high
        assert share.value == pytest.approx(channel.sum() / total.sum())


def test_shares_of_two_channels_mirror_each_other():
    rng = np.random.default_rng(1)
    total = rng.normal(2, 0.3, 7)
    a = total * 0.3 + rng.normal(0, 0.05, 7)
    rows = rng.integers(3, 9, 7).astype(float)
    one, other = (share_of_change(x, total, rows) for x in (a, total - a))
    assert one.value + other.value == pytest.approx(1)
    assert one.low + other.high == pytest.approx(1)
    assert one.high + other.low == pytest.approx(1)


def test_the_interval_of_a_share_covers_it():
    rng = np.random.default_rng(0)
    true, hits, times = 0.35, 0, 600
    for _ in range(times):
        size = rng.normal(1.0, 0.5, 8)
        channel = true * size + rng.normal(0, 0.15, 8)
        share = share_of_change(channel, size, np.full(8, 10.0))
        hits += bool(share.low <= true <= share.high) if np.isfinite(share.value) else 1
    assert 0.92 <= hits / times <= 0.98


# -- rows -----------------------------------------------------------------------------------------


def test_rows_of_causal_maps_that_see_too_little_are_left_out_and_counted():
    z = np.random.default_rng(0).normal(size=(3, 2, 5, 5))
    named = {
        name: sw.rows(z * k, sink=0, logits=True, causal=True) for name, k in (("a", 1), ("b", 2))
    }
    study = sw.collapse_study(named)
    assert study.card()["rows_excluded"] == {"few_content_parts": 6}
    assert study.n_rows == 3 * 2 * 3
    assert study.checkpoints.step.isna().all()


def test_a_row_without_content_at_one_checkpoint_is_left_out_of_all():
    z = maps(0, documents=3)
    bare = z.copy()
    bare[1, 0, 2, 1:] = -np.inf
    study = study_of(z, bare, 2 * z)
    assert study.card()["rows_excluded"] == {"no_content_at_some_checkpoint": 1}
    assert study.n_rows == z[..., 0].size - 1
    kept = np.ones(z.shape[:-1], dtype=bool)
    kept[1, 0, 2] = False
    expected = brute(z, 2 * z, 1)["content"][kept].mean()
    assert study.change("step0", "step20").content.value == pytest.approx(expected, abs=1e-13)
    p = softmax(z)[..., 0]
    assert study.checkpoints.sink_mass[0] == pytest.approx(p[kept].mean())


def test_heads_with_fewer_rows_weigh_less():
    z = maps(0, documents=3)
    z[:, 0, 1:, 1:] = -np.inf  # head 0 keeps one row a document
    study = study_of(z, 2 * z)
    table = study.by_head()
    assert table.rows.tolist() == [3, 21, 21]
    np.testing.assert_allclose(
        study.overall.total.value, (table.total * table.rows).sum() / table.rows.sum()
    )


def test_damaged_parts_are_refused_not_reported():
    z = maps(0)
    study = study_of(z, 2 * z)
    store = study._store
    parts = store.parts("step10", 2)
    store.keep_parts("step10", 2, EntropyParts(parts[0] + 0.3, *parts[1:]))
    with pytest.raises(RunError, match="document 2: the channels"):
        change_sums(store, "step0", "step10", usable_rows(store, study.names))


# -- extremes: public bug I8 ----------------------------------------------------------------------


def test_i8_low_and_high_extremes_are_flagged_apart():
    """One-hot content is collapse, uniform content is its opposite; neither is named by both."""
    z = maps(0)
    z[:, 0, :, 1:] = 0.0  # head 0: uniform content
    z[:, 1, :, 1:] = 40.0 * (np.arange(1, KEYS) == 4)  # head 1: one key takes all the content
    found = study_of(z, onto_sink(z, 2.0)).extremes()
    first = found[found.checkpoint == "step0"].set_index("label")
    assert first.kind.to_dict() == {"L0H0": "uniform", "L0H1": "peaked"}
    assert first.content_evenness["L0H0"] == pytest.approx(1)
    assert first.content_evenness["L0H1"] == pytest.approx(0, abs=1e-12)
    assert (found.rows_share == 1).all()
    assert len(found) == 4  # a growing sink changes nothing of it


def test_extremes_are_normalised_by_what_each_row_sees():
    z = np.zeros((2, 1, 12, 12))  # uniform over 2 to 11 content keys
    named = {name: sw.rows(z, sink=0, logits=True, causal=True) for name in ("a", "b")}
    table = sw.collapse_study(named).checkpoints
    np.testing.assert_allclose(table.content_evenness, 1)
    assert table.uniform_heads.tolist() == [1, 1]


def test_bounds_of_extremes_are_the_callers():
    z = maps(0)
    assert len(study_of(z, z, peaked=0.0, uniform=1.0).extremes()) == 0
    found = study_of(z, z, peaked=0.99, uniform=1.0).extremes()
    assert set(found.kind) == {"peaked"}
    with pytest.raises(RowError, match="peaked < uniform"):
        study_of(z, z, peaked=0.9, uniform=0.5)


# -- shape of results -----------------------------------------------------------------------------


def test_a_grid_has_the_heads_at_their_places():
    study = study_of(maps(0), maps(1))
    grid = study.grid("content")
    assert grid.dims == ("layer", "index")
    np.testing.assert_array_equal(grid.to_numpy()[0], study.by_head().content)
    with pytest.raises(RowError, match="no part 'sinks'"):
        study.grid("sinks")


def test_json_has_the_keys_that_others_read():
    z = maps(0)
    found = study_of(z, onto_sink(z, 2.0), maps(1)).to_json()
    assert found["schema"] == "sinkwise.collapse/1"
    assert {"name", "step", "entropy", "sink_mass", "content_entropy"} <= set(
        found["checkpoints"][0]
    )
    assert [c["step"] for c in found["checkpoints"]] == [0, 10, 20]
    change = found["changes"][0]
    assert (change["first"], change["second"]) == ("step0", "step10")
    for name in ("total", "sink", "content", "within_sink"):
        assert {"value", "low", "high", "share"} <= set(change[name])
    assert change["verdict"] == "sink grew"
    assert change["share_withheld"] is None
    assert sum(change["heads_by_verdict"].values()) == 3
    assert len(found["changes"]) == 2
    assert found["overall"]["second"] == "step20"
    assert len(found["heads"]) == 3


def test_json_withholds_shares_of_no_change_and_says_why():
    z = maps(0)
    change = study_of(z, z).to_json()["overall"]
    assert change["sink"]["value"] == 0.0
    assert change["sink"]["share"] is None
    assert "holds 0" in change["share_withheld"]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [("step0", "step1", "no checkpoint 'step1'; there are"), ("step0", "step0", "came twice")],
)
def test_a_change_of_no_pair_is_refused(first, second, message):
    study = study_of(maps(0), maps(1))
    with pytest.raises(RowError, match=message):
        study.change(first, second)
