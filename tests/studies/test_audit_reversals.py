"""What an audit says of reversals and bands: the studies' answers, and clear refusals."""

import numpy as np
import pandas as pd
import pytest

import sinkwise as sw
from sinkwise.errors import RowError
from sinkwise.studies.head_matrix import square
from sinkwise.studies.reversal_places import REVERSAL_PLACES_COLUMNS, reversal_places
from sinkwise.studies.worst_pairs import WORST_PAIRS_COLUMNS, worst_pairs


def audit_of(n_heads, sink=0, documents=5):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(documents, n_heads, 6, 9))
    z[..., 0] += np.linspace(0, 3, n_heads)[:, None]
    return sw.audit(sw.rows(z, sink=sink, logits=True))


def test_an_audit_gives_what_the_studies_say_of_its_sums():
    audit = audit_of(6)
    names = "cosine/kept", "cosine/dropped"
    one, two = (audit.store.pairs(name) for name in names)
    places = reversal_places(
        square(one.distances(), 6),
        square(two.distances(), 6),
        audit.heads,
        audit.profile.sink_mass.to_numpy(),
    )
    pd.testing.assert_frame_equal(audit.reversal_places(*names), places)
    table = audit.reversals().set_index(["first", "second"])
    assert places.rate[0] == pytest.approx(table.rate[names])  # one layer: all pairs
    worst = worst_pairs(one, two, 6, 3, names=names, heads=audit.heads)
    pd.testing.assert_frame_equal(audit.worst_pairs(*names, n=3), worst)
    ranking = audit.band_ranking().set_index(["metric", "threshold"])
    kept = audit.distances.cosine.sel(convention="kept").to_numpy()[np.triu_indices(6, 1)]
    assert ranking.value_high["cosine", 0.0] == pytest.approx(np.quantile(kept, 0.95))


def test_two_heads_have_no_verdicts():
    audit = audit_of(2)
    assert list(audit.reversal_places().columns) == list(REVERSAL_PLACES_COLUMNS)
    assert list(audit.worst_pairs().columns) == list(WORST_PAIRS_COLUMNS)
    assert len(audit.reversal_places()) == len(audit.worst_pairs()) == 0
    assert audit.band_ranking().pairs.max() == 1


def test_refusals_say_what_there_is():
    audit = audit_of(4, sink=(0, 1))
    with pytest.raises(RowError, match="no measure 'js/kept'; there are content"):
        audit.reversal_places("js/kept")
    with pytest.raises(RowError, match="no measure 'cosine'"):
        audit.worst_pairs("cosine/kept", "cosine")
    with pytest.raises(RowError, match="single sink key"):
        audit.band_ranking()
