"""What an audit says of channels and taxonomies, thin over the studies, and when nothing."""

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId, make_block
from sinkwise.studies.channel_verdicts import CHANNEL_VERDICT_COLUMNS
from sinkwise.studies.channels import channel_shares
from sinkwise.studies.taxonomy import TAXONOMY_COLUMNS
from sinkwise.studies.taxonomy_effects import EFFECT_COLUMNS


def audit_of(heads, *, documents=1, sink=0, alike=False, layers=1, keys=9, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(documents, heads, 6, keys)) * rng.gamma(3, 0.5, (1, heads, 1, 1))
    z[..., 0] += rng.normal(1, 2, (1, heads, 1))
    if alike:
        z[:] = z[:, :1]
    p = np.exp(z)
    p /= p.sum(-1, keepdims=True)
    pieces = tuple(np.split(p, layers, axis=1)) if layers > 1 else p
    return sw.audit(sw.rows(pieces, sink=sink, causal=False))


def test_every_table_is_there_with_its_columns_and_they_agree():
    audit = audit_of(8, documents=5, layers=2)
    table = audit.channels()
    assert table.share.sum() == pytest.approx(1, abs=1e-12)
    assert dict(zip(table.channel, table.share, strict=True)) == pytest.approx(
        channel_shares(audit.distances)
    )
    layers = audit.channels_by_layer()
    assert layers.layer.unique().tolist() == [0, 1]
    pairs = audit.channel_shares().sum("channel").to_numpy()
    assert pairs[~np.eye(8, dtype=bool)] == pytest.approx(1, abs=1e-12)
    verdicts = audit.channel_verdicts()
    assert tuple(verdicts.columns) == CHANNEL_VERDICT_COLUMNS
    assert set(verdicts.channel) == {"balance", "dispersion", "direction"}
    assert verdicts.groupby("measure").follows.sum().eq(1).all()
    assert verdicts.measure.nunique() == 9
    assert len(audit.taxonomy()) == 4 * 21 and len(audit.taxonomy_effects()) == 14
    mine = audit.taxonomy().set_index(["first", "second", "method"]).ari
    theirs = audit.taxonomy_effects()
    theirs = theirs[theirs.effect == "sink"]
    for row in theirs.itertuples():
        assert row.ari == mine[row.first, row.second, row.first_method]


def test_several_sink_keys_have_a_channel_of_their_own():
    audit = audit_of(6, documents=4, sink=(0, 1))
    assert "within_sink" in set(audit.channel_verdicts().channel)
    assert audit.channels().set_index("channel").share["within_sink"] > 0


@pytest.mark.parametrize("heads", [1, 2])
def test_one_head_or_two_have_shares_at_most(heads):
    audit = audit_of(heads, documents=3)
    assert tuple(audit.taxonomy().columns) == TAXONOMY_COLUMNS and audit.taxonomy().empty
    assert tuple(audit.taxonomy_effects().columns) == EFFECT_COLUMNS
    assert audit.channel_verdicts().empty
    assert audit.channels().share.isna().all() == (heads == 1)
    assert audit.channels_by_layer().empty == (heads == 1)


def test_heads_that_are_all_alike_differ_in_no_channel():
    audit = audit_of(5, documents=4, alike=True)
    assert audit.channels().share.isna().all()
    assert audit.channel_verdicts().empty
    assert audit.taxonomy_effects().degenerate.any()


class WindowedLast:
    """Four heads, the last of which sees fewer keys."""

    heads = tuple(HeadId(0, i) for i in range(4))
    n_documents = 3

    def card(self):
        return {"model": "made up", "sink": "first", "zeros": "none", "source": "arrays"}

    def blocks(self, skip=frozenset()):
        support = np.ones((4, 6, 9), dtype=bool)
        support[3, :, 6:] = False
        for document in range(3):
            z = np.random.default_rng(document).normal(size=(4, 6, 9))
            yield make_block(
                document=document,
                log_weights=z,
                support=support,
                sink=np.arange(9) == 0,
                queries=np.arange(9, 15),
                heads=self.heads,
            )


def test_heads_without_a_common_support_have_shares_where_they_have_distances():
    audit = sw.audit(WindowedLast())
    assert audit.channels().share.sum() == pytest.approx(1, abs=1e-12)
    shares = audit.channel_shares()
    assert np.isnan(shares[:, 3]).all() and np.isfinite(shares[:, 0, 1]).all()
    # without all three distances of a triple there are no verdicts and no clusters
    assert audit.channel_verdicts().empty and audit.taxonomy_effects().empty


def test_an_unknown_measure_has_no_map():
    with pytest.raises(RowError, match="no measure 'js'; there are content"):
        audit_of(4).head_map("js")
