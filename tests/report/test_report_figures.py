"""Figures and what they show: orders, channels, bands, escaped labels."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import xarray as xr

from sinkwise.errors import RowError
from sinkwise.report.bands import band, row_ceiling
from sinkwise.report.figures import FIGURES, draw, sink_grid
from sinkwise.report.figures.sinks import layer_means
from sinkwise.report.matrices import has_matrix, matrix_of
from sinkwise.report.ordering import shared_order
from sinkwise.studies.channels import channel_shares, channel_shares_by_layer


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_every_named_figure_stands_alone(name, uneven):
    figure = draw(name, uneven)
    assert figure.data
    assert figure.layout.height >= 100
    assert figure.to_json()


def test_an_unknown_figure_lists_the_known_ones(uneven):
    with pytest.raises(RowError, match=r"no figure is called 'sinks'.*sink-grid"):
        draw("sinks", uneven)


def test_too_few_heads_for_reversals_says_so(tiny):
    with pytest.raises(RowError, match="at least 3 heads"):
        draw("reversals", tiny)


def test_uneven_layers_leave_cells_empty_and_keep_every_head_in_place(uneven):
    grid = np.asarray(sink_grid(uneven).data[0].z)
    assert grid.shape == (3, 4)
    np.testing.assert_array_equal(np.isfinite(grid).sum(1), [4, 2, 3])
    profile = uneven.profile
    expected = profile["sink_mass"].to_numpy().astype(np.float32)
    np.testing.assert_array_equal(grid[profile["layer"], profile["index"]], expected)


def test_skipped_layers_keep_their_numbers(uneven):
    layer = uneven.profile["layer"].to_numpy() * 4 + 3
    spread = uneven.profile.assign_coords(layer=("head", layer))
    audit = uneven.but(profile=spread, summary={"sink_mass": {}})
    assert list(sink_grid(audit).data[0].y) == [3, 7, 11]
    assert [m["layer"] for m in layer_means(audit)] == [3, 7, 11]


def test_the_shared_order_puts_like_heads_side_by_side(middling):
    order = shared_order(middling.distances)
    assert order.source == "content_angle"
    assert sorted(order.order) == list(range(30))
    matrix = matrix_of(middling.distances, "content_angle")
    cells = order.cells(matrix)
    # neighbours in the order are much nearer than in layer order
    assert np.diag(cells, 1).mean() < 0.7 * np.diag(matrix, 1).mean()


def test_the_order_falls_back_and_survives_missing_distances(with_nan, tiny):
    order = shared_order(with_nan.distances.drop_vars("content_angle"))
    assert order.source == "content"
    assert sorted(order.order) == list(range(6))
    assert shared_order(tiny.distances).source == "layer and head number"


def test_crowded_cells_are_means_over_blocks_without_the_diagonal(middling):
    order = shared_order(middling.distances, max_cells=8)
    assert order.per_cell == 4
    matrix = matrix_of(middling.distances, "content")
    cells = order.cells(matrix)
    assert cells.shape == (8, 8)
    first = order.order[:4]
    block = matrix[np.ix_(first, first)]
    np.testing.assert_allclose(cells[0, 0], block[~np.eye(4, dtype=bool)].mean(), rtol=1e-12)
    other = matrix[np.ix_(first, order.order[28:])]  # the last block holds two heads
    np.testing.assert_allclose(cells[0, 7], other.mean(), rtol=1e-12)
    labels = [str(i) for i in range(30)]
    assert order.names(labels)[0] == f"{first[0]} +3"


def test_channel_shares_add_up_and_equal_the_ratio_of_squares(middling):
    distances = middling.distances
    shares = channel_shares(distances)
    # mean squares split exactly; 30 heads of float64 sums leave a few ulps
    assert sum(shares.values()) == pytest.approx(1, abs=1e-12)
    upper = np.triu_indices(30, 1)
    whole = (matrix_of(distances, "aitchison_rms")[upper] ** 2).sum()
    part = (matrix_of(distances, "balance_rms")[upper] ** 2).sum()
    assert shares["balance"] == pytest.approx(part / whole, rel=1e-9)


def test_channel_shares_by_layer_leave_out_pairs_without_a_distance(with_nan):
    layers = channel_shares_by_layer(with_nan.distances)
    for entry in layers:
        parts = sum(entry[n] for n in ("balance", "dispersion", "direction", "within_sink"))
        assert parts == pytest.approx(1, abs=1e-12)
    lonely = channel_shares(with_nan.distances.isel(head=[0, 1], other=[0, 1]))
    assert all(np.isnan(s) for s in lonely.values())


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "js_divergence"])
def test_pairs_lie_under_their_ceiling_and_one_above_is_counted(metric, middling):
    found = band(middling.distances, metric)
    assert found.distance.size == 435
    assert found.share_within == 1.0
    assert 0 < found.median_use < 1
    raised = middling.distances.copy(deep=True)
    raised[metric].loc[{"convention": "kept", "head": 0, "other": 1}] = 2.0
    assert band(raised, metric).share_within == pytest.approx(434 / 435)


def test_the_cosine_ceiling_of_a_pair_is_not_that_of_its_mean_mass(middling):
    found = band(middling.distances, "cosine")
    at_mean = row_ceiling("cosine", found.larger_content_mass)
    assert np.abs(found.ceiling - at_mean).max() > 1e-3


def test_row_ceilings_are_the_closed_forms():
    # cosine similarity is at least 0.9412 when both sinks hold 0.8
    assert 1 - row_ceiling("cosine", np.array([0.2]))[0] == pytest.approx(0.9412, abs=5e-5)
    assert row_ceiling("euclidean", np.array([0.2]))[0] == pytest.approx(0.2 * 2**0.5)
    assert row_ceiling("js_divergence", np.array([0.2]))[0] == pytest.approx(0.2 * np.log(2))


def test_a_subsample_of_pairs_is_seeded_and_keeps_pairs_together(middling):
    whole = band(middling.distances, "euclidean")
    some = whole.subsample(50)
    again = whole.subsample(50)
    assert some.distance.size == 50
    np.testing.assert_array_equal(some.first, again.first)
    matrix = matrix_of(middling.distances, "euclidean/kept")
    np.testing.assert_array_equal(some.distance, matrix[some.first, some.second])
    assert whole.subsample(435) is whole


def test_no_band_without_its_bounds(middling):
    bare = middling.distances.drop_vars("larger_content_mass")
    assert band(bare, "euclidean") is None
    audit = middling.but(distances=bare)
    with pytest.raises(RowError, match="sink of one key"):
        draw("band-euclidean", audit)


def test_an_unknown_distance_lists_the_known_ones(middling):
    with pytest.raises(RowError, match=r"no distance named 'jsd'.*content_angle"):
        matrix_of(middling.distances, "jsd")
    assert not has_matrix(middling.distances, "cosine/zeroed")
    empty = xr.full_like(middling.distances, np.nan)
    assert not has_matrix(empty, "content")


def test_heat_map_scales_ignore_a_few_far_heads(middling):
    far = middling.distances.copy(deep=True)
    far["content"].loc[{"head": 0, "other": 1}] = 1e6
    plain = draw("distances-content", middling).data[0]
    stretched = draw("distances-content", middling.but(distances=far))
    assert stretched.data[0].zmax == pytest.approx(plain.zmax, rel=0.1)


def test_heat_maps_are_sent_as_float32(middling):
    z = draw("distances-content", middling).to_plotly_json()["data"][0]["z"]
    assert z["dtype"] == "f4"
    assert len(base64.b64decode(z["bdata"])) == 4 * 30 * 30
