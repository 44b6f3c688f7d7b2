"""The page of a study over checkpoints: stacks that add up, verdicts, what has no number."""

from __future__ import annotations

import re

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.report.collapse import collapse_section
from sinkwise.report.figures.collapse import COLLAPSE_FIGURES, contributions
from sinkwise.studies.collapse_sums import CHANNELS

KEYS = 8


def study_of(*changes, documents=5, sink=0, prefix="step") -> sw.CollapseStudy:
    """Each change is what is added to the logits, and what they are multiplied by."""
    z = np.random.default_rng(0).normal(size=(documents, 3, 6, KEYS))
    named = {
        f"{prefix}{100 * i}": sw.rows(z * k + by * (np.arange(KEYS) == 0), sink=sink, logits=True)
        for i, (by, k) in enumerate(changes)
    }
    return sw.collapse_study(named)


@pytest.fixture(scope="module")
def study() -> sw.CollapseStudy:
    return study_of((0, 1), (3, 1), (3, 3))


def bars(figure):
    return {trace.name: np.array(trace.y) for trace in figure.data if trace.type == "bar"}


@pytest.mark.parametrize("since_first", [False, True])
def test_stacks_add_up_to_the_line_of_totals(study, since_first):
    figure = contributions(study, since_first=since_first)
    line = next(trace for trace in figure.data if trace.name == "total")
    np.testing.assert_allclose(sum(bars(figure).values()), line.y, atol=1e-12)
    names = study.names
    starts = (names[0], names[0]) if since_first else names[:2]
    expected = [study.change(a, b) for a, b in zip(starts, names[1:], strict=True)]
    np.testing.assert_allclose(bars(figure)["sink"], [s.sink.value for s in expected])
    reach = np.array([s.total.high - s.total.value for s in expected])
    np.testing.assert_allclose(line.error_y.array, reach)
    assert list(line.x) == (["100", "200"] if since_first else ["0 → 100", "100 → 200"])


def test_within_the_sink_is_drawn_where_there_is_such_a_channel(study):
    assert set(bars(contributions(study))) == {"sink", "content"}
    assert set(bars(contributions(study_of((0, 1), (2, 2), sink=(0, 3))))) == {
        "sink",
        "content",
        "within the sink",
    }


@pytest.mark.parametrize("name", COLLAPSE_FIGURES)
def test_every_figure_can_be_drawn(study, name):
    assert COLLAPSE_FIGURES[name](study).data


def test_maps_share_one_scale_around_zero(study):
    maps = [COLLAPSE_FIGURES[f"collapse-map-{name}"](study).data[0] for name in ("sink", "content")]
    assert maps[0].zmin == maps[1].zmin == -maps[0].zmax
    assert maps[0].zmax >= np.abs(study.by_head()[list(CHANNELS)].to_numpy()).max()
    np.testing.assert_allclose(maps[0].z[0], study.by_head().sink, rtol=1e-6)


def test_checkpoints_without_steps_are_named(tmp_path):
    nameless = study_of((0, 1), (3, 1), prefix="model-v")
    assert list(contributions(nameless).data[0].x) == ["model-v0 → model-v100"]


def texts(section) -> str:
    return " ".join(str(block) for block in section.content)


def test_the_section_says_the_verdict_and_flags_extremes_apart(study):
    said = texts(collapse_section(study))
    assert study.overall.words in said
    assert "Peaked content" in said
    assert "Uniform content" in said
    assert "by chance" in said


def test_shares_of_no_change_are_withheld_in_words():
    said = texts(collapse_section(study_of((0, 1), (0, 1))))
    assert "the interval of the change of entropy holds 0" in said
    assert "withheld" in said
    assert "nan" not in said.lower()


def test_one_document_has_a_page_without_intervals():
    said = texts(collapse_section(study_of((0, 1), (3, 1), documents=1)))
    assert "they need two documents" in said


def test_the_page_is_one_file_that_escapes_names(tmp_path):
    z = np.random.default_rng(0).normal(size=(3, 2, 4, 6))
    evil = "<script>alert(1)</script>"
    named = {name: sw.rows(z * k, sink=0, logits=True) for name, k in (("a", 1), (evil, 2))}
    page = sw.collapse_study(named).report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert evil not in page
    assert "Entropy over checkpoints" in page
    ids = re.findall(r'<div class="plot" id="(figure-[a-z-]+)"', page)
    assert len(ids) == len(set(ids)) == 5
    assert 'id="card"' in page
