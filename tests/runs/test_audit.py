"""An audit from arrays: values against plain loops, both doors the same, resumption, files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.runs.folder import RunFolder

CLASSICAL = {
    "cosine": sw.cosine_distance,
    "js_divergence": sw.js_divergence,
    "euclidean": sw.euclidean_distance,
}


def logits(documents=6, heads=5, queries=4, keys=8, seed=0):
    z = np.random.default_rng(seed).normal(size=(documents, heads, queries, keys))
    z[..., 0] += np.linspace(0, 4, heads)[:, None]
    return z


@pytest.fixture(scope="module")
def found():
    return sw.audit(sw.rows(logits(), sink=0, logits=True))


def test_every_distance_is_the_mean_of_the_row_function(found):
    z = logits()
    a, b = z[:, :, None], z[:, None]

    def mean(values):
        return np.asarray(values).mean((0, 3))

    kw = {"sink": 0, "logits": True}
    d = found.distances
    np.testing.assert_allclose(d.content, mean(sw.content_distance(a, b, **kw)), atol=1e-9)
    angle = mean(sw.content_angle(a, b, **kw))
    np.testing.assert_allclose(d.content_angle, angle, atol=1e-7)  # √rounding on the diagonal
    split = sw.distance_split(a, b, **kw)
    np.testing.assert_allclose(d.aitchison, mean(split.total), atol=1e-9)
    np.testing.assert_allclose(d.balance, mean(np.abs(split.balance)), atol=1e-9)
    np.testing.assert_allclose(d.dispersion, mean(np.abs(split.dispersion)), atol=1e-9)
    np.testing.assert_allclose(d.direction, mean(split.direction), atol=1e-7)
    for name, f in CLASSICAL.items():
        for convention in ("kept", "dropped"):
            expected = mean(f(a, b, convention=convention, **kw))
            got = d[name].sel(convention=convention)
            # the divergence's logarithms are float32: 1e-6 absolute and 1e-4 relative is promised
            tolerance = {"rtol": 1e-4, "atol": 1e-6} if name == "js_divergence" else {"atol": 1e-12}
            np.testing.assert_allclose(got, expected, err_msg=name, **tolerance)
    larger = 1 - np.minimum(sw.sink_mass(a, **kw), sw.sink_mass(b, **kw))
    off = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(d.larger_content_mass.values[off], mean(larger)[off], atol=1e-12)


def test_the_split_survives_averaging_in_root_mean_square(found):
    d = found.distances
    parts = d.balance_rms**2 + d.dispersion_rms**2 + d.direction_rms**2 + d.within_sink_rms**2
    np.testing.assert_allclose(d.aitchison_rms**2, parts, atol=1e-10)
    np.testing.assert_allclose(
        d.content_rms**2, d.dispersion_rms**2 + d.direction_rms**2, atol=1e-10
    )


def test_the_profile_is_the_mean_of_the_row_functions(found):
    z = logits()
    kw = {"sink": 0, "logits": True}
    p = found.profile
    np.testing.assert_allclose(p.sink_mass, sw.sink_mass(z, **kw).mean((0, 2)))
    np.testing.assert_allclose(p.sink_balance, sw.sink_balance(z, **kw).mean((0, 2)))
    np.testing.assert_allclose(p.content_dispersion, sw.content_dispersion(z, **kw).mean((0, 2)))
    split = sw.entropy_split(z, **kw)
    np.testing.assert_allclose(p.entropy, split.total.mean((0, 2)))
    np.testing.assert_allclose(p.content_entropy, split.content_entropy.mean((0, 2)))
    np.testing.assert_allclose(
        p.entropy, p.entropy_sink + p.entropy_content + p.entropy_within_sink, atol=1e-14
    )
    over = (sw.sink_mass(z, **kw) > 0.3).mean((0, 2))
    np.testing.assert_allclose(p.share_over.sel(eps=0.3), over)
    assert (p.sink_mass_low < p.sink_mass).all()
    assert (p.sink_mass < p.sink_mass_high).all()
    assert p.rows.values.tolist() == [24] * 5
    assert p.label.values.tolist() == ["L0H0", "L0H1", "L0H2", "L0H3", "L0H4"]


def test_reversals_are_exact_rates_between_the_matrices(found):
    table = found.reversals()
    assert len(table) == 36
    for row in table.itertuples():
        a, b = (matrix(found, name) for name in (row.first, row.second))
        assert row.rate == pytest.approx(sw.reversal_rate(a, b), abs=1e-12)


def matrix(audit, name):
    metric, _, convention = name.partition("/")
    found = audit.distances[metric]
    return (found.sel(convention=convention) if convention else found).to_numpy()


def test_bands_hold_every_pair_below_its_ceiling(found):
    bands = found.bands()
    assert (bands.share_within == 1).all()
    upper = np.triu_indices(5, 1)
    kept = found.distances.cosine.sel(convention="kept").values[upper]
    np.testing.assert_array_equal(bands.value.sel(metric="cosine"), kept)
    with pytest.raises(sw.RowError, match="several keys"):
        sw.audit(sw.rows(logits(), sink=(0, 1), logits=True)).bands()


def test_head_distances_and_the_audit_agree(found):
    rows = sw.rows(logits(), sink=0, logits=True)
    for name in ("content", "aitchison", "content_angle"):
        got = sw.head_distances(rows, metric=name)  # another summation order: rounding alone
        np.testing.assert_allclose(got, matrix(found, name), rtol=1e-13, atol=1e-14)
    got = sw.head_distances(rows, metric="js_divergence", convention="kept")
    np.testing.assert_allclose(got, matrix(found, "js_divergence/kept"), atol=1e-15)


def test_the_summary_is_json_with_the_promised_keys(found):
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    promised = {
        "model", "sink", "conventions", "heads", "layers", "documents", "rows", "rows_excluded",
        "sink_mass", "reversals", "taxonomy", "versions", "seed", "card",
    }  # fmt: skip
    assert promised <= set(summary)
    assert {"mean", "low", "high", "by_layer", "share_over"} <= set(summary["sink_mass"])
    first = summary["reversals"][0]
    assert {"first", "second", "rate", "resolved_rate", "low", "high", "bias"} <= set(first)
    promised = {"first", "second", "method", "ari", "low", "high", "ceiling", "sizes", "degenerate"}
    assert promised <= set(summary["taxonomy"][0])
    assert summary["rows"] == 24
    assert summary["card"]["sink"] == 0


def test_grid_lays_uneven_layers_out(found):
    maps = tuple(np.random.default_rng(h).dirichlet(np.ones(5), size=(2, h, 3)) for h in (2, 3))
    audit = sw.audit(sw.rows(maps, sink=0))
    grid = audit.grid("sink_mass")
    assert grid.shape == (2, 3)
    assert np.isnan(grid.values[0, 2])
    with pytest.raises(sw.RowError, match="sink_mass"):
        audit.grid("sinkmass")


def test_a_run_on_disk_equals_one_in_memory_and_opens_again(found, tmp_path):
    rows = sw.rows(logits(), sink=0, logits=True)
    made = sw.audit(rows, out=tmp_path / "run")
    again = sw.open_audit(tmp_path / "run")
    for audit in (made, again):
        assert audit.profile.equals(found.profile)
        assert audit.distances.equals(found.distances)
        assert audit.reversals().equals(found.reversals())
        assert audit.taxonomy().equals(found.taxonomy())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == json.loads(json.dumps(again.summary()))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "blocks", "manifest.json", "summary.json",
    ]  # fmt: skip


class Interrupted(Exception):
    pass


def test_an_interrupted_run_resumes_and_loses_nothing(found, tmp_path):
    rows = sw.rows(logits(), sink=0, logits=True)
    out = tmp_path / "run"

    def stop(done, total):
        assert total == 6
        if done == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        sw.audit(rows, out=out, progress=stop)
    assert RunFolder(out).documents == (0, 1)
    with pytest.raises(sw.RunError, match="not finished: 2 documents"):
        sw.open_audit(out)
    with pytest.raises(sw.RunError, match="resume=True"):
        sw.audit(rows, out=out)
    written = (out / "blocks" / "document-00000.npz").stat().st_mtime_ns
    seen = []
    resumed = sw.audit(rows, out=out, resume=True, progress=lambda done, total: seen.append(done))
    assert seen == [2, 3, 4, 5, 6]
    assert (out / "blocks" / "document-00000.npz").stat().st_mtime_ns == written
    assert resumed.distances.equals(found.distances)


def test_a_run_that_kept_no_document_is_begun_anew(found, tmp_path):
    out = tmp_path / "run"

    def stop(done, total):
        raise Interrupted

    with pytest.raises(Interrupted):
        sw.audit(sw.rows(logits(), sink=1, logits=True), out=out, progress=stop)
    again = sw.audit(sw.rows(logits(), sink=0, logits=True), out=out)
    assert again.distances.equals(found.distances)
    assert sw.open_audit(out).card()["sink"] == 0


def test_a_run_refuses_to_go_on_with_other_rows_or_settings(tmp_path):
    out = tmp_path / "run"
    sw.audit(sw.rows(logits(), sink=0, logits=True), out=out)
    with pytest.raises(sw.RunError, match="sink=0, now it is 1"):
        sw.audit(sw.rows(logits(), sink=1, logits=True), out=out, resume=True)
    with pytest.raises(sw.RunError, match="begun with other documents"):
        sw.audit(sw.rows(logits(seed=1), sink=0, logits=True), out=out, resume=True)
    # the level is no property of the blocks: the tables are made anew from them
    again = sw.audit(sw.rows(logits(), sink=0, logits=True), out=out, resume=True, level=0.9)
    assert sw.open_audit(out).level == again.level == 0.9


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(sw.RunError, match="not empty"):
        sw.audit(sw.rows(logits(), sink=0, logits=True), out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(sw.RunError, match="is a file"):
        sw.audit(sw.rows(logits(), sink=0, logits=True), out=tmp_path / "thesis.txt")
    with pytest.raises(sw.RunError, match="no run"):
        sw.open_audit(tmp_path / "nothing")


def test_a_damaged_block_is_named_and_only_it_is_computed_again(tmp_path):
    rows = sw.rows(logits(), sink=0, logits=True)
    out = tmp_path / "run"
    before = sw.audit(rows, out=out)
    block = out / "blocks" / "document-00003.npz"
    block.write_bytes(block.read_bytes()[:100])
    with pytest.raises(sw.RunError, match=r"document-00003\.npz is damaged.*--resume"):
        _ = sw.open_audit(out).profile
    block.unlink()
    seen = []
    after = sw.audit(rows, out=out, resume=True, progress=lambda done, total: seen.append(done))
    assert seen == [5, 6]
    assert after.distances.equals(before.distances)


def test_a_lost_block_of_a_finished_run_is_missed(tmp_path):
    rows = sw.rows(logits(), sink=0, logits=True)
    out = tmp_path / "run"
    before = sw.audit(rows, out=out)
    (out / "blocks" / "document-00002.npz").unlink()
    with pytest.raises(sw.RunError, match=r"document-00002\.npz is missing"):
        sw.open_audit(out)
    assert sw.audit(rows, out=out, resume=True).distances.equals(before.distances)
    assert len(sw.open_audit(out).summary()["reversals"]) == 36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 95}, "level=95"),
        ({"level": 1.0}, "between 0 and 1"),
        ({"seed": "x"}, "seed='x'"),
        ({"seed": -1}, "at least 0"),
        ({"documents": 2.5}, "documents=2.5"),
        ({"sink": 2}, "sink=2 is an option for models"),
        ({"queries": 1}, "queries=1 is an option for models"),
        ({"out": 5}, "path of a folder"),
    ],
)
def test_options_are_looked_at_before_any_work(options, message, tmp_path):
    out = {"out": tmp_path / "run"} | options
    with pytest.raises(sw.SinkwiseError, match=message):
        sw.audit(sw.rows(logits(), sink=0, logits=True), **out)
    assert not (tmp_path / "run").exists()


def test_the_share_of_a_virtual_sink_is_told_apart():
    """B7: first key and learned column together are the sink; the column's share stands beside."""
    z, learned = logits(), np.linspace(-1, 2, 5)
    rows = sw.rows(z, sink=("virtual", 0), logits=True, sink_logit=learned)
    profile = sw.audit(rows).profile
    whole = np.concatenate([z, np.broadcast_to(learned[:, None, None], (6, 5, 4, 1))], -1)
    shares = np.exp(whole) / np.exp(whole).sum(-1, keepdims=True)
    np.testing.assert_allclose(profile.virtual_sink_mass, shares[..., -1].mean((0, 2)))
    both = (shares[..., 0] + shares[..., -1]).mean((0, 2))
    np.testing.assert_allclose(profile.sink_mass, both)
    plain = sw.audit(sw.rows(z, sink=0, logits=True)).profile
    assert (plain.virtual_sink_mass == 0).all()


def test_A7_an_engine_is_refused_as_no_transformers_model():
    class Engine:
        pass

    with pytest.raises(TypeError, match="transformers model"):
        sw.audit(Engine())


def test_a_block_with_a_pickle_in_it_is_refused(tmp_path):
    out = tmp_path / "run"
    sw.audit(sw.rows(logits(), sink=0, logits=True), out=out)
    evil = np.array([{"anything": 1}], dtype=object)
    np.savez(out / "blocks" / "document-00000.npz", **{"profile/sums/sink_mass": evil})
    with pytest.raises(sw.RunError, match="damaged"):
        _ = sw.open_audit(out).profile


def test_zeros_replaced_by_a_share_report_how_far_that_moves_things():
    p = np.random.default_rng(3).dirichlet(np.full(7, 0.3), size=(4, 5, 3))
    p[p < 0.01] = 0
    p /= p.sum(-1, keepdims=True)
    p[..., 0] += 1e-9
    p /= p.sum(-1, keepdims=True)
    card = sw.audit(sw.rows(p, sink=0, zeros=1e-4)).card()
    assert card["zeros"] == "replace=0.0001"
    moved = {(e["metric"], round(e["zeros"], 8)): e for e in card["zero_sensitivity"]}
    assert set(moved) == {
        (m, z) for m in ("content", "content_angle", "aitchison") for z in (1e-5, 1e-3)
    }
    # log-ratios to a zero grow by log 10 a zero: far from nothing, and said so
    assert moved["content", 1e-5]["median_change"] > 0.05
    excluded = sw.audit(sw.rows(p, sink=0, zeros="exclude"))
    assert "zero_sensitivity" not in excluded.card()
    assert np.isfinite(excluded.distances.content).all()


def test_two_heads_have_distances_but_no_verdicts():
    audit = sw.audit(sw.rows(logits(heads=2), sink=0, logits=True))
    assert list(audit.reversals()["rate"]) == []
    assert list(audit.taxonomy()["ari"]) == []
    assert audit.summary()["reversals"] == []


def test_one_document_has_values_and_no_intervals():
    audit = sw.audit(sw.rows(logits(documents=1), sink=0, logits=True))
    assert np.isfinite(audit.profile.sink_mass).all()
    assert np.isnan(audit.profile.sink_mass_low).all()
    assert audit.reversals().low.isna().all()
    assert (audit.reversals().note == "too few documents").all()
    assert audit.summary()["sink_mass"]["low"] is None


def test_bare_arrays_are_told_what_to_type():
    with pytest.raises(sw.InputTypeError, match=r"sw\.rows\(weights, sink="):
        sw.audit(logits())
    with pytest.raises(sw.RowError, match="no tokenizer"):
        sw.audit(sw.rows(logits(), sink=0, logits=True), None, ["text"])


def test_opening_a_run_loads_no_torch(tmp_path):
    sw.audit(sw.rows(logits(), sink=0, logits=True), out=tmp_path / "run")
    code = (
        "import sys, sinkwise as sw\n"
        f"audit = sw.open_audit({str(tmp_path / 'run')!r})\n"
        "audit.profile, audit.distances, audit.reversals()\n"
        "assert not {'torch', 'transformers', 'jax', 'plotly'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
