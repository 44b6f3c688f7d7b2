"""The section of the regime rule: never a verdict without its record."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.report.figures.regime import regime_strip
from sinkwise.report.section import Cards, Figures, Paragraph
from sinkwise.report.sections import headline, regime


def audit(heads=4, documents=5):
    z = np.random.default_rng(0).normal(size=(documents, heads, 6, 8))
    z[..., 0] += 2 * np.arange(heads)[:, None]
    return sw.audit(sw.rows(z, sink=0, logits=True))


def test_verdict_record_and_outcome_stand_together():
    found = audit()
    content = regime.section(found).content
    cards = next(block for block in content if isinstance(block, Cards)).figures
    assert cards[0].value == found.regime()["verdict"]
    assert cards[2].note.removeprefix("the rule's verdict: ") in ("hit", "miss")
    assert any(isinstance(b, Paragraph) and "one miss" in b.text for b in content)
    aside = headline.section(found).content[-1]
    assert found.regime()["verdict"] in aside.text and "one miss" in aside.text


def test_the_strip_shows_spread_interval_and_thresholds():
    found = audit().regime()
    figure = regime_strip(found)
    bar, point = figure.data
    assert point.x == (found["dispersion"],)
    assert bar.x[0] - bar.error_x.array[0] == pytest.approx(found["low"])
    assert bar.x[0] + bar.error_x.array[0] == pytest.approx(found["high"])
    assert {s.x0 for s in figure.layout.shapes} == {0, 0.1, 0.2}


def test_one_document_and_one_head():
    content = regime.section(audit(documents=1)).content
    assert any(isinstance(block, Figures) for block in content)
    assert "no interval" in content[0].figures[1].note
    assert "undecided" in content[0].figures[2].note
    (only,) = regime.section(audit(heads=1)).content
    assert "no verdict" in only.text
