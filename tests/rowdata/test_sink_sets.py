"""Sink sets by name, and sinks found from a document's own rows."""

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.rowdata import HeadId, KeyLabels, make_block
from sinkwise.rowdata.sink_sets import column_mass, found_columns, with_sink_set


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def block_of(z, support=None, *, virtual=False, keys=None, sink=0):
    n_heads, n_rows, n_keys = z.shape
    return make_block(
        document=0,
        log_weights=z,
        support=np.ones((n_rows, n_keys), bool) if support is None else support,
        sink=np.arange(n_keys) == sink,
        queries=np.arange(n_rows),
        heads=[HeadId(0, h) for h in range(n_heads)],
        virtual=virtual,
        keys=keys,
    )


@pytest.mark.parametrize("per_head", [False, True])
def test_column_mass_is_the_mean_over_the_rows_that_see_the_key(per_head):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 8, 6))
    support = np.tril(np.ones((8, 6), bool), 1)
    if per_head:
        support = np.broadcast_to(support, z.shape).copy()
        support[1, :, 4] = False
    mass, seen = column_mass(z, support)
    p = softmax(np.where(support, z, -np.inf))
    visible = np.broadcast_to(support, z.shape)
    for head in range(3):
        for key in range(6):
            rows = visible[head, :, key]
            want = p[head, rows, key].mean() if rows.any() else np.nan
            np.testing.assert_allclose(mass[head, key], want, rtol=1e-12)
    np.testing.assert_allclose(seen, visible.mean((0, 1)))


def test_a_key_that_no_row_sees_has_no_mass():
    mass, seen = column_mass(np.zeros((1, 2, 3)), np.array([[True, True, False]] * 2))
    assert np.isnan(mass[0, 2]) and seen[2] == 0


def test_the_strongest_key_is_found_and_those_of_enough_heads():
    mass = np.full((20, 60), 0.01)
    mass[:, 0] = 0.5
    mass[:2, 3] = 0.2  # 10 % of the heads, and two
    mass[:1, 4] = 0.9  # one head's habit
    seen = np.ones(60)
    seen[5] = 0.2
    mass[:, 5] = 0.9  # just behind the few queries that see it
    assert np.flatnonzero(found_columns(mass, seen)).tolist() == [0, 3]


def test_an_even_share_of_few_keys_is_no_sink():
    assert np.flatnonzero(found_columns(np.full((8, 6), 1 / 6), np.ones(6))).tolist() == [0]


def test_nothing_is_found_where_nothing_is_seen_by_half_of_the_rows():
    assert not found_columns(np.full((4, 3), 0.5), np.full(3, 0.4)).any()


def test_sets_by_name():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(4, 6, 7))
    z[..., 2] += 5
    bos = np.arange(7) == 1
    block = block_of(z, keys=KeyLabels(np.arange(7), None, bos))
    for name, keys in {"first": [0], "first4": [0, 1, 2, 3], "bos": [1], "found": [2]}.items():
        assert np.flatnonzero(with_sink_set(block, name).sink[0]).tolist() == keys
    assert with_sink_set(block_of(z), "bos") is None
    with pytest.raises(sw.RowError, match="first4"):
        with_sink_set(block, "last")


def test_positions_count_and_not_columns():
    z = np.zeros((2, 3, 4))
    block = block_of(z, keys=KeyLabels(np.array([2, 3, 4, 5])))
    assert with_sink_set(block, "first") is None
    assert with_sink_set(block, "first4").sink[0].tolist() == [True, True, False, False]


def test_a_virtual_sink_stays_in_every_set_and_is_never_found():
    z = np.zeros((4, 5, 6))
    z[..., -1] = 9
    z[..., 1] = 3
    block = block_of(z, virtual=True, sink=5)
    for name, keys in {"first": [0, 5], "found": [1, 5]}.items():
        assert np.flatnonzero(with_sink_set(block, name).sink[0]).tolist() == keys


def test_rows_take_a_found_sink():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(2, 5, 9, 9))
    z[0, :, :, 3] += 6
    z[1, :, :, 7] += 6
    blocks = list(sw.rows(softmax(z), sink="found").blocks())
    assert [np.flatnonzero(b.sink[0]).tolist() for b in blocks] == [[3], [7]]
