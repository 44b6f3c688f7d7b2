"""Removed heads on the page and in the terminal: what is said is what the study holds."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.cli.prune_table import MOST_LINES, summary_table
from sinkwise.errors import RowError
from sinkwise.report.figures import draw
from sinkwise.report.figures.removal import highlighted, removal_curves, removal_of, shown_range
from sinkwise.report.page import write_report
from sinkwise.report.section import Details, Figures, Paragraph, Table
from sinkwise.report.sections.removal import section
from sinkwise.studies.prune_study import PruneStudy

HOSTILE = "<script>alert(1)</script>"


def flat(blocks):
    for block in blocks:
        yield block
        if isinstance(block, Details):
            yield from flat(block.content)


def tables(audit):
    return {b.caption: b for b in flat(section(audit).content) if isinstance(b, Table)}


def texts(audit, tone):
    found = flat(section(audit).content)
    return [b.text for b in found if isinstance(b, Paragraph) and b.tone == tone]


def one(found, words):
    (table,) = [t for caption, t in found.items() if words in caption]
    return table


def test_an_audit_without_removal_has_no_section(tiny):
    assert tiny.pruning is None and section(tiny) is None
    with pytest.raises(RowError, match="sinkwise prune MODEL"):
        removal_of(tiny)
    with pytest.raises(RowError, match="sinkwise prune MODEL"):
        draw("removal-zero-model", tiny)


def test_a_study_without_points_has_no_section(middling):
    empty = replace(middling.pruning, records=())
    assert section(middling.but(pruning=empty)) is None


def test_an_opened_run_offers_the_study_that_lies_in_its_folder(tmp_path, middling):
    z = np.random.default_rng(0).normal(size=(4, 4, 6, 8))
    sw.audit(sw.rows(z, sink=0, logits=True), out=tmp_path / "run")
    assert sw.open_audit(tmp_path / "run").pruning is None
    kept = json.dumps(middling.pruning.to_json(), allow_nan=False)
    (tmp_path / "run" / "prune.json").write_text(kept, encoding="utf-8")
    audit = sw.open_audit(tmp_path / "run")
    assert audit.pruning == middling.pruning
    page = audit.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<section id="removal"' in page


def test_the_verdicts_name_the_best_score_and_the_ratio_to_the_classical_ones(middling):
    study = middling.pruning
    best, against = study.best(), study.against_classical()
    said = texts(middling, "verdict")
    assert f"For this model {best.score} (heads of {best.score}) did the least damage" in said[0]
    assert f"over {len(best.cells_used)} of 8 cells" in said[0]
    assert all(name in said[0] for name in best.not_told_apart)
    assert f"{against.geometric_mean:.3f} (" in said[1]
    assert f"worst cell {against.worst[0]}: {against.worst[1]:.2f}" in said[1]
    happened = study.happened()
    assert "“classical unsafe”: heads differ in their sink mass" in said[2]
    assert happened["result"] == "miss" and said[2].endswith("For the rule: miss.")


def test_every_warning_is_on_the_page(middling):
    study = middling.pruning
    assert texts(middling, "warning") == [f"{words}." for words in study.warnings()]
    assert any(words.startswith("flattest (") for words in study.warnings())


def test_the_protocol_is_that_of_the_card(middling):
    said = texts(middling, "")[0]
    tokens = sum(document["tokens"] for document in middling.pruning.dense)
    assert "8 scores chose heads" in said
    assert f"6 held-out documents with {tokens:,} predicted tokens" in said
    assert "cut to 256 tokens. One window a document, no stride." in said
    assert "BOS: no" in said and "float32" in said
    dense = middling.pruning.dense_outcome["value"]
    assert f"Dense perplexity {dense:.2f}" in said


def test_an_empty_card_leaves_the_protocol_out(middling):
    bare = middling.but(pruning=replace(middling.pruning, card={}))
    assert "window" not in texts(bare, "")[0]
    assert not any(
        isinstance(b, Details) and "Protocol" in b.summary for b in section(bare).content
    )


def test_the_tables_hold_every_cell_score_and_set(middling):
    study, found = middling.pruning, tables(middling)
    cells = len(study.damages.cells)
    assert len(one(found, "in each cell").rows) == cells
    against = one(found, "best classical score")
    assert [row[0] for row in against.rows] == [c.words for c in study.damages.cells]
    assert [row[2] for row in against.rows] == study.against_classical().cells.classical.tolist()
    assert len(one(found, "Every set").rows) == len(study.points)
    ranked = one(found, "Geometric mean")
    assert [row[0] for row in ranked.rows] == study.best().ranking.score.tolist()
    energy = one(found, "output energy")
    assert energy.head == (
        "score",
        *(f"{p} {s} %" for p in ("anywhere", "each layer") for s in (10, 30)),
    )
    shown = {row[0]: row[1] for row in energy.rows}
    assert (shown["content"], shown["random"]) == ("1.60, 40 %", "1.20, 40 %")  # random: median


def test_lines_and_band_are_those_of_the_tables(middling):
    study = middling.pruning
    figure = removal_curves(study, "zero", "layer")
    lines = {trace.name: trace for trace in figure.data}
    rows = study.curves().query("operation == 'zero' and scope == 'layer'")
    np.testing.assert_allclose(lines["JS kept"].y, rows[rows.score == "js_divergence/kept"].damage)
    band = study.random_band().query("operation == 'zero' and scope == 'layer'")
    assert list(lines["random sets"].y) == pytest.approx([*band.most, *band.least[::-1]])
    assert list(lines["median of random"].y) == pytest.approx(band["median"])
    assert len(figure.data) == 2 + rows.score.nunique()


def test_few_scores_are_coloured_and_the_best_is_one_of_them(middling):
    study = middling.pruning
    known = [
        "fisher_matrix",
        "js_divergence/kept",
        "michel",
        "relative_output_norm",
        "content",
    ]
    assert list(highlighted(study)) == known
    points = [
        dict(record) | {"documents": study.dense}
        for record in study.records
        if record["score"] == "joint_output"
    ]
    for point in points:  # half the damage that the best had
        point["documents"] = [d | {"loss": d["loss"] + 1e-3 * d["tokens"]} for d in study.dense]
    others = [r for r in study.records if r["score"] != "joint_output"]
    better = replace(study, records=(*others, *points))
    assert list(highlighted(better)) == ["joint_output", *known]
    figure = removal_curves(better, "zero", "model")
    shown = [t.name for t in figure.data if t.showlegend is not False]
    assert sorted(shown) == sorted(
        [
            "random sets",
            "other scores",
            "joint output",
            "fisher matrix",
            "JS kept",
            "michel",
            "relative output norm",
            "content",
        ]
    )
    faint = [t for t in figure.data if t.legendgroup == "others"]
    assert [t.showlegend for t in faint] == [True]  # flattest alone


def test_a_ruined_model_and_a_faint_damage_are_named_under_the_figure(middling):
    (drawn,) = [b for b in section(middling).content if isinstance(b, Figures)]
    captions = {figure.name: figure.caption for figure in drawn.figures}
    assert "Ruined: content at 30 %." in captions["removal-mean-layer"]
    assert "Ruined" not in captions["removal-zero-model"]
    study = middling.pruning
    records = [dict(record) for record in study.records]
    for record in records:
        if record["score"] == "michel":
            record["documents"] = [d | {"loss": d["loss"] - 1.0} for d in study.dense]
    better = middling.but(pruning=replace(study, records=tuple(records)))
    (drawn,) = [b for b in section(better).content if isinstance(b, Figures)]
    assert "Below the figure: michel at 10 %, michel at 30 %." in drawn.figures[0].caption
    low, high = shown_range(better.pruning, "zero", "model")
    assert 0 < low < high < math.inf


def test_ticks_name_the_perplexity_that_a_damage_makes(middling, uneven):
    study = middling.pruning
    axis = removal_curves(study, "zero", "model").layout.yaxis
    for damage, words in zip(axis.tickvals, axis.ticktext, strict=True):
        value = study.dense_outcome["value"] * math.exp(damage)
        shown = f"{value:.1f}" if value < 100 else f"{value:,.0f}"
        assert words == f"{damage:g} ({shown})"
    axis = removal_curves(uneven.pruning, "zero", "model").layout.yaxis
    assert axis.title.text == "1 − cosine to the dense output"
    assert axis.ticktext == tuple(f"{tick:g}" for tick in axis.tickvals)


def test_a_cell_that_was_not_evaluated_has_no_figure(middling):
    with pytest.raises(RowError, match="no heads were removed by 'remove'"):
        removal_curves(middling.pruning, "remove", "model")


def test_hostile_names_are_text(hostile, tmp_path):
    assert hostile.pruning.best().score == HOSTILE
    page = write_report(hostile, tmp_path / "page.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    figure = removal_curves(hostile.pruning, "zero", "model")
    names = [trace.name for trace in figure.data]
    assert any(name.startswith("&lt;script&gt;alert(1)") for name in names)
    hover = [text for trace in figure.data for text in trace.text or ()]
    assert not any("<script" in text for text in hover)


@pytest.mark.parametrize("kept", [["michel", "random"], ["content"], ["random"]])
def test_a_study_of_few_scores_is_shown_all_the_same(middling, kept, tmp_path):
    study = middling.pruning
    few = replace(
        study,
        records=tuple(r for r in study.records if r["score"] in kept),
        scores=tuple(s for s in study.scores if s["name"] in kept),
        predicted=None,
    )
    page = write_report(middling.but(pruning=few), tmp_path / "page.html")
    assert '<section id="removal"' in page.read_text(encoding="utf-8")
    assert len(summary_table(few).splitlines()) <= MOST_LINES


# -- in a terminal ---------------------------------------------------------------------------


def test_the_terminal_table_has_a_line_a_cell(middling):
    study = middling.pruning
    lines = summary_table(study).splitlines()
    assert len(lines) <= MOST_LINES
    dense = study.dense_outcome
    assert lines[0].startswith(
        f"Dense perplexity {dense['value']:.4g} ({dense['low']:.4g} to {dense['high']:.4g}) on 6"
    )
    cells = study.best().cells
    for number, cell in enumerate(study.damages.cells):
        assert lines[2 + number].startswith(cell.words)
        assert cells.score[number] in lines[2 + number]
    row = study.curves().query(
        "score == 'michel' and operation == 'zero' and scope == 'model' and sparsity == 0.1"
    )
    assert f"{row.value.iloc[0]:.4g}" in lines[2]
    band = study.random_band().iloc[0]
    assert lines[2].endswith(f"{band.value_least:.4g} to {band.value_most:.4g}")
    used = len(study.best().cells_used)
    assert any(line.startswith(f"Least damage to this model over {used} of 8 ") for line in lines)
    assert sum(line.startswith("Warning: ") for line in lines) == min(5, len(study.warnings()))


def test_the_terminal_table_stays_short(middling):
    study = middling.pruning
    records = [
        dict(record) | {"sparsity": record["sparsity"] + 0.01 * k}
        for k in range(6)
        for record in study.records
    ]
    many = replace(study, records=tuple(records))
    lines = summary_table(many).splitlines()
    assert len(lines) <= MOST_LINES
    assert "... and 36 more cells, in prune.json" in lines


def test_the_terminal_says_infinite_and_nothing(middling, uneven):
    assert "infinite" in summary_table(middling.pruning)
    assert summary_table(uneven.pruning).startswith("Dense cosine 0 (0 to 0) on 6")
    empty = PruneStudy.from_json(replace(middling.pruning, records=()).to_json())
    assert len(summary_table(empty).splitlines()) == 1
