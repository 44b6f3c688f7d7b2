"""The regime rule with its frozen thresholds."""

from __future__ import annotations

import numpy as np
import pytest

import sinkwise as sw
from sinkwise.studies.regime import regime


@pytest.mark.parametrize(
    ("spread", "verdict"),
    [(0.09, "classical safe"), (0.15, "abstain"), (0.21, "classical unsafe")],
)
def test_the_spread_of_sink_mass_decides(spread, verdict):
    found = regime(np.array([0.5 - spread, 0.5 + spread]))
    assert found["verdict"] == verdict
    assert found["dispersion"] == pytest.approx(spread)
    assert f"{spread:.3f}" in found["why"]


def test_its_record_always_comes_with_it():
    assert "one miss" in regime(np.array([0.1, 0.9]))["record"]


def test_heads_without_rows_are_left_out_and_one_head_is_too_few():
    assert regime(np.array([0.4, np.nan, 0.5]))["dispersion"] == pytest.approx(0.05)
    with pytest.raises(sw.RowError, match="2 heads"):
        regime(np.array([0.4, np.nan]))
