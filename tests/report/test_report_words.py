"""What the page says: numbers, verdict, methods paragraph, guide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sinkwise.report.entries import entries, entry
from sinkwise.report.figures import sink_by_layer
from sinkwise.report.methods import methods_paragraph
from sinkwise.report.section import Table
from sinkwise.report.sections.headline import key_figures, verdict
from sinkwise.report.sections.reversals import classical_reversals, classical_table
from sinkwise.report.sections.taxonomy import agreement_table
from sinkwise.report.wording import interval, number, percent, plain

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.2849, 0.251, 0.319), "0.285 (0.25–0.32)"),
        ((0.2849, NAN, NAN), "0.285"),
        ((0.2849, None, None), "0.285"),
        ((NAN, NAN, NAN), "–"),
        ((-0.01, -0.09, 0.06), "-0.010 (-0.09 to 0.06)"),
        ((0.011, -0.002, 0.024), "0.011 (0.00–0.02)"),
        ((0.51234, 0.5112, 0.5134), "0.512 (0.511–0.513)"),
        ((1.0, 1.0, 1.0), "1.000 (1.00–1.00)"),
    ],
)
def test_intervals_are_rounded_to_their_width(values, text):
    assert interval(*values) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.285, "0.285"),
        (12345.678, "12346"),
        (1234567.0, "1.23e+06"),
        (np.int64(36_315), "36,315"),
        (0.0, "0.000"),
        (1e-9, "1e-09"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_a_share_short_of_one_is_not_rounded_to_one():
    assert percent(0.9998) == "99.98 %"
    assert percent(1.0) == "100 %"
    assert percent(0.0) == "0 %"


def test_card_entries_of_every_kind_read_as_text():
    assert plain([256] * 8) == "256 (8 times)"
    assert plain(list(range(40))).endswith("… (40 in all)")
    assert plain("") == "not stated"
    assert plain([]) == "none"
    assert plain(np.array([0, 1])) == "0, 1"
    assert plain(NAN) == "–"
    table = entry([{"rule": "a", "rate": 0.5}, {"rule": "b", "extra": None}], "rules")
    assert isinstance(table, Table)
    assert table.rows == (("a", "0.5", "–"), ("b", "–", "–"))
    assert entry({}, "sink") == "none"
    nested = entries({"sink": {"rule": "first", "tokens": {"id": 1}}})
    assert nested.entries[0][1].entries[1][1].entries[0][1] == "1"


def with_rates(audit, rate, low, high):
    """Return the audit with these values for kept against dropped."""
    frame = audit.reversals().copy()
    frame.loc[:, "rate"], frame.loc[:, "low"], frame.loc[:, "high"] = rate, low, high
    return audit.but(reversals=frame)


def test_the_verdict_follows_the_data(middling):
    strong = verdict(with_rates(middling, 0.28, 0.25, 0.31))
    assert "cosine distance in 28 % (25–31) of cases" in strong
    assert "depend on the convention" in strong
    weak = verdict(with_rates(middling, 0.02, 0.01, 0.04))
    assert "hardly matters" in weak
    assert "can be used as they are" in weak
    between = verdict(with_rates(middling, 0.08, 0.04, 0.12))
    assert "for some verdicts" in between
    unknown = verdict(with_rates(middling, 0.28, NAN, NAN))
    assert "too few for an interval" in unknown
    assert "Measure more documents" in unknown


def test_one_interval_that_is_missing_is_named(middling):
    frame = middling.reversals().copy()
    is_cosine = (frame["first"] == "cosine/kept") & (frame["second"] == "cosine/dropped")
    frame.loc[is_cosine, ["low", "high"]] = NAN
    audit = with_rates(middling, 0.02, 0.01, 0.04)
    audit.reversals().loc[is_cosine, ["low", "high"]] = NAN
    told = verdict(audit)
    assert "For cosine distance these documents are too few" in told
    assert "hardly matters" not in told  # not settled while one rate has no interval


def test_no_verdict_without_three_heads(tiny):
    assert "at least three heads" in verdict(tiny)
    assert classical_reversals(tiny) == []
    assert len(key_figures(tiny)) == 2


def test_key_figures_keep_mass_and_share_of_heads_apart(middling):
    mass, heads, *rates = key_figures(middling)
    assert mass.value == f"{middling.summary()['sink_mass']['mean']:.3f}"
    assert mass.note.startswith("95 % interval ")
    share = float((middling.profile["sink_mass"].to_numpy() > 0.3).mean())
    assert heads.value == f"{100 * share:.0f} %"
    assert [r.title.split(", ")[1].split()[0] for r in rates] == ["cosine", "JS", "Euclidean"]
    assert all(r.value.endswith(" %") for r in rates)


def test_the_order_of_a_pair_of_names_does_not_matter(middling):
    frame = middling.reversals().rename(columns={"first": "second", "second": "first"})
    audit = middling.but(reversals=frame)
    found = [r["metric"] for r in classical_reversals(audit)]
    assert found == ["cosine", "js_divergence", "euclidean"]


def test_the_methods_paragraph_states_the_conventions(middling, tiny):
    text = methods_paragraph(middling)
    for stated in (
        "demo/Small-135M",
        "30 heads in 6 layers",
        "8 documents",
        "32 queries per document",
        "rule first",
        "refused (none arose)",
        "(3; few content parts: 3)",
        "attention implementation sdpa",
        "jackknife",
        "Seed 0.",
    ):
        assert stated in text, stated
    assert "One document gives no intervals." in methods_paragraph(tiny)


def test_rows_that_stay_for_some_heads_are_listed_but_not_summed(middling):
    summary = middling.summary() | {
        "rows_excluded": {"few_content_parts": 3, "sink_not_visible_in_some_heads": 5}
    }
    audit = middling.but(summary=summary)
    assert "(3; few content parts: 3, sink not visible in some heads: 5)" in methods_paragraph(
        audit
    )


def test_lengths_quantization_and_no_exclusions_are_stated(middling):
    card = middling.card() | {"max_length": 256, "quantization": "gguf"}
    summary = middling.summary() | {"rows_excluded": {}}
    del card["rows_excluded"]
    audit = middling.but(card=card, summary=summary)
    text = methods_paragraph(audit)
    assert "each cut to 256 tokens." in text
    assert "quantization gguf" in text
    assert "No row had to be left out." in text


def test_degenerate_clusterings_are_flagged(middling):
    flags = [row[-1] for row in agreement_table(middling).rows]
    assert flags.count("degenerate") == int(middling.taxonomy()["degenerate"].sum()) > 0


def test_the_main_table_of_groups_holds_conventions_and_content_against_js(middling):
    pairs = {frozenset(row[:2]) for row in agreement_table(middling, main_pairs=True).rows}
    assert pairs == {
        frozenset(("JS kept", "JS dropped")),
        frozenset(("cosine kept", "cosine dropped")),
        frozenset(("JS kept", "content")),
        frozenset(("JS kept", "content angle")),
    }
    assert len(agreement_table(middling).rows) == len(middling.taxonomy())


def test_the_level_of_the_intervals_is_that_of_the_card(middling):
    card = middling.card() | {"level": 0.9}
    audit = middling.but(card=card)
    assert key_figures(audit)[0].note.startswith("90 % interval")
    assert "at the 90 % level" in methods_paragraph(audit)
    assert "90 % intervals" in classical_table(audit).caption
    assert "95" not in sink_by_layer(audit).data[1].name
