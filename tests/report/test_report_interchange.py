"""Exchanged patterns on the page: what is said is what the study holds."""

from __future__ import annotations

import numpy as np
import pytest

from sinkwise.errors import RowError
from sinkwise.report.figures.interchange import (
    curve_range,
    exchange_correlations,
    exchange_curves,
    exchanged_of,
)
from sinkwise.report.section import Figures, Paragraph, Table
from sinkwise.report.sections.interchange import section


def _of(blocks, kind):
    return [block for block in blocks if isinstance(block, kind)]


def test_an_audit_without_exchanges_has_no_section(tiny):
    assert tiny.interchange is None and section(tiny) is None
    with pytest.raises(RowError, match="sinkwise interchange MODEL"):
        exchanged_of(tiny)


def test_the_verdicts_are_the_least_damage_at_the_largest_share(middling):
    study = middling.interchange
    said = [p.text for p in _of(section(middling).content, Paragraph) if p.tone == "verdict"]
    assert len(said) == 4  # two modes, two scopes
    best = study.best()
    row = best[(best["mode"] == "split") & (best.scope == "model") & (best.share == 0.5)].iloc[0]
    assert row.metric == "content"
    assert "content distance" in said[0] and "50 % of the heads" in said[0]
    assert f"perplexity {row.value:.1f} against {study.dense_outcome['value']:.1f} dense" in said[0]
    band = study.random_band().set_index(["mode", "scope", "share"]).loc[("split", "model", 0.5)]
    assert f"random pairs {band.value_least:.1f} to {band.value_most:.1f}" in said[0]


def test_encoders_have_no_dense_value(uneven):
    said = [p.text for p in _of(section(uneven).content, Paragraph) if p.tone == "verdict"]
    assert said and not any("dense" in text for text in said)
    figure = exchange_curves(uneven.interchange, "split", "model")
    assert not figure.layout.shapes


def test_a_line_that_would_hide_the_others_is_cut_and_named(middling):
    study = middling.interchange
    table = study.curves()
    table = table[(table["mode"] == "split") & (table.scope == "model")]
    dense = study.dense_outcome["value"]
    low, high = curve_range(table, dense)
    assert low < dense and high > table.value.max()
    ruined = table.copy()
    ruined.loc[ruined.metric == "content", "value"] = 1e5
    assert curve_range(ruined, dense)[1] < 1.6 * ruined.value[ruined.metric == "random"].max()
    without = ruined[ruined.metric != "random"]
    assert curve_range(without, dense)[1] > 1e5


def test_lines_and_points_are_those_of_the_tables(middling):
    study = middling.interchange
    figure = exchange_curves(study, "whole", "layer")
    names = [trace.name for trace in figure.data]
    assert names == ["random pairs", "content", "JS kept"]
    table = study.curves()
    rows = table[
        (table["mode"] == "whole") & (table.scope == "layer") & (table.metric == "content")
    ]
    np.testing.assert_allclose(figure.data[1].y, rows.value)
    figure = exchange_correlations(study, "split")
    told = study.correlations()
    told = told[told["mode"] == "split"][::-1]
    np.testing.assert_allclose(figure.data[0].x, told.within)


def test_clusters_stand_in_a_table_of_their_own(middling):
    content = section(middling).content
    (table,) = [t for t in _of(content, Table) if "cluster" in t.caption]
    assert len(table.rows) == len(middling.interchange.clusters())
    assert len(_of(content, Figures)) == 2
