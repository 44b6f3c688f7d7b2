"""What a stranger passed to the studies: a right value, or an error that says what to do."""

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.runs.folder import RunFolder


def softmax_rows(seed=0, documents=4, heads=6, length=14):
    z = np.random.default_rng(seed).normal(size=(documents, heads, length, length)) * 2
    z = np.where(np.tri(length, dtype=bool), z, -np.inf)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_a_head_wholly_on_the_sink_leaves_a_report_that_says_so(tmp_path):
    w = softmax_rows()
    w[:, 1] = 0
    w[:, 1, :, 0] = 1
    audit = sw.audit(sw.rows(w, sink=0, causal=True, zeros="exclude"))
    assert len(audit.not_compared) == 9
    assert not len(audit.sink_association()) and not len(audit.reversals())
    page = audit.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "no distance" in page
    with pytest.raises(sw.RowError, match="left out"):
        audit.biplot()


@pytest.mark.parametrize("content", [b"", b"PK", b"not a block"])
def test_a_block_cut_short_is_named_with_what_to_do(tmp_path, content):
    sw.audit(sw.rows(softmax_rows(), sink=0, causal=True), out=tmp_path / "run")
    block = tmp_path / "run" / "blocks" / "document-00000.npz"
    block.write_bytes(content)
    with pytest.raises(sw.RunError, match=r"document-00000.npz is damaged .*--resume"):
        sw.open_audit(tmp_path / "run").summary()
    block.unlink()
    with pytest.raises(sw.RunError, match=r"document-00000.npz is missing: the run"):
        sw.open_audit(tmp_path / "run")


def test_a_file_is_no_run(tmp_path):
    file = tmp_path / "summary.json"
    file.write_text("{}")
    with pytest.raises(sw.RunError, match="name the folder of a run"):
        sw.open_audit(file)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(sw.RunError, match="into a new folder"):
        _ = RunFolder(tmp_path).manifest


def test_negative_distances_are_no_distances():
    d = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    assert sw.reversal_rate(-d, d) > 0.5  # verdicts take any order, groups need distances
    with pytest.raises(sw.RowError, match="never negative"):
        sw.HeadClustering(2).fit(-d)


def test_identical_heads_have_no_groups_to_agree_on():
    w = np.repeat(softmax_rows(heads=1), 5, axis=1)
    audit = sw.audit(sw.rows(w, sink=0, causal=True))
    table = audit.taxonomy()
    assert table.ari.isna().all() and table.degenerate.all()
    assert (table.note == "heads all alike: no groups to compare").all()
    assert audit.taxonomy_effects().ari.isna().all()


def test_no_rate_above_one_is_asked_for():
    table = sw.audit(sw.rows(softmax_rows(heads=3), sink=0, causal=True)).reversals()
    known = table.smallest_detectable.dropna()
    assert len(known) and (known <= 1).all()


def test_nan_at_a_key_that_no_query_may_see_is_named():
    w = softmax_rows()
    w[1, 2, 3, 9] = np.nan
    with pytest.raises(sw.RowError, match="key 9, which it may not see, holds nan"):
        sw.rows(w, sink=0, causal=True)
