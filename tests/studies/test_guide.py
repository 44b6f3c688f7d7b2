"""The guide: one source, promising nothing."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from sinkwise.studies.guide import GUIDE, guide_markdown

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_docs_is_made_from_it():
    page = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    assert page == guide_markdown(), "sinkwise guide --markdown > docs/guide.md"


def test_every_question_has_all_its_answers():
    assert all(all(astuple(advice)) for advice in GUIDE)
    assert len({advice.question for advice in GUIDE}) == len(GUIDE)


def test_it_promises_no_winner():
    words = guide_markdown().lower()
    for claim in ("always better", "superior", "outperforms", "best metric", "wins on"):
        assert claim not in words


def test_every_study_of_heads_is_in_it():
    estimators = " ".join(advice.estimator for advice in GUIDE)
    for study in (
        *("reversal", "bands", "channels", "taxonomy", "sinks found", "sink sets"),
        *("regime", "scaling", "compare", "entropy split", "measure the damage"),
    ):
        assert study in estimators
