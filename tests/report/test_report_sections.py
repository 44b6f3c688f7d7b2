"""Sections: one interface, one order, errors that name the section."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import fields, is_dataclass
from types import SimpleNamespace

import pytest

from sinkwise.errors import MissingExtraError
from sinkwise.report import sections
from sinkwise.report.once import computed_once
from sinkwise.report.page import write_report
from sinkwise.report.section import Figure, Section, Table, table


@pytest.fixture(scope="module")
def made(middling) -> dict[str, Section]:
    audit = computed_once(middling)
    return {name: sections.maker(name)(audit) for name in sections.ORDER}


def parts(block):
    """Yield a block and everything inside it."""
    yield block
    if is_dataclass(block):
        for field in fields(block):
            yield from parts(getattr(block, field.name))
    elif isinstance(block, tuple):
        for inner in block:
            yield from parts(inner)


def test_every_module_of_the_package_is_on_the_page():
    found = {module.name for module in pkgutil.iter_modules(sections.__path__)}
    assert found == set(sections.ORDER)
    assert len(sections.ORDER) == len(found)


@pytest.mark.parametrize("name", sections.ORDER)
def test_a_section_says_what_it_answers_and_how_it_misleads(name, made):
    section = made[name]
    assert section.id == name.replace("_", "-")
    assert section.question.endswith("?")
    assert len(section.misleads) > 40
    assert section.misleads.endswith(".")
    assert section.title
    assert section.content


@pytest.mark.parametrize("name", sections.ORDER)
def test_every_figure_and_table_has_words_that_stand_alone(name, made):
    for part in parts(made[name]):
        if isinstance(part, Figure):
            assert part.title.endswith("."), part.name
            assert len(part.caption) > 20, part.name
            assert part.plot.layout.height, part.name
        elif isinstance(part, Table):
            assert part.caption and part.head, name


def test_names_are_unique_on_the_page(made):
    names = [p.name for s in made.values() for p in parts(s) if isinstance(p, Figure)]
    assert len(names) == len(set(names)) > 0
    assert len({s.id for s in made.values()}) == len(made)


def test_the_order_of_the_registry_is_that_of_the_page(middling, made, monkeypatch, tmp_path):
    turned = tuple(reversed(sections.ORDER))
    monkeypatch.setattr(sections, "ORDER", turned)
    text = write_report(middling, tmp_path / "page.html").read_text(encoding="utf-8")
    expected = [made[name].id for name in turned]
    assert re.findall(r'<section id="([^"]+)"', text) == expected
    assert re.findall(r'<li><a href="#([^"]+)"', text) == expected


def test_a_section_that_does_not_apply_is_neither_on_the_page_nor_in_its_contents(
    middling, monkeypatch, tmp_path
):
    monkeypatch.setattr("sinkwise.report.sections.bands.section", lambda audit: None)
    text = write_report(middling, tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'id="bands"' not in text
    assert 'href="#bands"' not in text


def test_a_section_that_fails_is_named_and_nothing_is_written(middling, monkeypatch, tmp_path):
    def fail(audit):
        raise ValueError("axes do not fit")

    monkeypatch.setattr("sinkwise.report.sections.bands.section", fail)
    with pytest.raises(RuntimeError, match=r"section 'bands'.*axes do not fit") as caught:
        write_report(middling, tmp_path / "page.html")
    assert isinstance(caught.value.__cause__, ValueError)
    assert not list(tmp_path.iterdir())

    def lack(audit):
        raise MissingExtraError("type: pip install")

    monkeypatch.setattr("sinkwise.report.sections.bands.section", lack)
    with pytest.raises(MissingExtraError, match="type: pip install"):
        write_report(middling, tmp_path / "page.html")


def test_a_study_is_computed_once_for_the_page():
    calls = []

    def reversals(metric="cosine"):
        calls.append(metric)
        return object()

    audit = computed_once(SimpleNamespace(reversals=reversals, profile={"layer": 1}))
    assert audit.reversals() is audit.reversals()
    assert audit.reversals("js") is audit.reversals("js")
    assert audit.reversals() is not audit.reversals("js")
    assert calls == ["cosine", "js"]
    assert audit.profile == {"layer": 1}
    assert computed_once(audit) is audit
    with pytest.raises(AttributeError, match="nothing"):
        _ = audit.nothing


def test_rows_that_do_not_fit_their_table_are_refused():
    with pytest.raises(TypeError, match=r"'Masses' is \('L0H1',\); expected 2 texts"):
        Table("Masses", ("head", "mass"), (("L0H1",),))
    with pytest.raises(TypeError, match="expected 1 texts"):
        Table("Masses", ("mass",), ((0.25,),))


def test_columns_without_text_are_left_out_but_not_from_an_empty_table():
    columns = {"head": lambda r: r["head"], "note": lambda r: r["note"]}
    assert table("Heads", [{"head": "L0H1", "note": ""}], columns).head == ("head",)
    assert table("Heads", [], columns).head == ("head", "note")
