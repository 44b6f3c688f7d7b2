"""The figure of scaling: a point a model, a line where a family has a slope."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sinkwise.report.figures.scaling import scaling_figure, write_scaling
from sinkwise.report.theme import CONFIG
from sinkwise.studies.scaling import MODEL_COLUMNS, Scaling, _slopes


def scaling(families, masses):
    models = pd.DataFrame(
        {
            "model": [f"m{i}" for i in range(len(masses))],
            "family": families,
            "parameters": [10 ** (6 + i) for i in range(len(masses))],
            "sink_mass": masses,
            "sink_mass_low": np.array(masses) - 0.01,
            "sink_mass_high": np.array(masses) + 0.01,
            "heads_over_0.3": 0.5,
            "heads_over_0.8": 0.1,
        },
        columns=MODEL_COLUMNS,
    )
    slopes, notes = _slopes(models, 0.95)
    return Scaling(models, slopes, {}, 0.95, tuple(notes))


def test_points_lines_and_ticks(tmp_path):
    found = scaling(["a", "a", "a", "b", None], [0.1, 0.2, 0.3, 0.9, 0.4])
    figure = scaling_figure(found)
    points = [t for t in figure.data if t.mode == "markers"]
    assert [t.name for t in points] == ["a", "b", "no family"]
    (line,) = (t for t in figure.data if t.mode == "lines")
    assert line.name == "a: +0.100 per factor of ten"
    assert list(line.x) == pytest.approx([1e6, 1e8]) and list(line.y) == pytest.approx([0.1, 0.3])
    shown = dict(zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext, strict=True))
    assert shown[10**6] == "1 M" and shown[10**9] == "1 B"
    settings = dict(CONFIG)
    page = write_scaling(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert settings == CONFIG  # plotly takes entries out of what it is given
    assert "m3" in page


def test_a_single_model():
    figure = scaling_figure(scaling(["a"], [0.1]))
    assert len(figure.data) == 1
    assert len(figure.layout.xaxis.tickvals) >= 3
