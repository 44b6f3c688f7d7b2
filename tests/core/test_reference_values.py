"""Values to 16 digits from an independent oracle, on every library, from weights and logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import sinkwise as sw

CASES = json.loads(Path(__file__).with_name("reference_values.json").read_text())
IDS = [case["name"] for case in CASES]


def row_values(p, sink, **kw):
    split = sw.entropy_split(p, sink=sink, **kw)
    return {
        "sink_mass": sw.sink_mass(p, sink=sink, **kw),
        "sink_balance": sw.sink_balance(p, sink=sink, **kw),
        "content_dispersion": sw.content_dispersion(p, sink=sink, **kw),
        "entropy": split.total,
        "entropy_sink": split.sink,
        "entropy_content": split.content,
        "entropy_within_sink": split.within_sink,
        "content_entropy": split.content_entropy,
    }


def pair_values(p, q, sink, **kw):
    split = sw.distance_split(p, q, sink=sink, **kw)
    change = sw.entropy_change(p, q, sink=sink, **kw)
    values = {
        "aitchison": split.total,
        "content": sw.content_distance(p, q, sink=sink, **kw),
        "content_angle": sw.content_angle(p, q, sink=sink, **kw),
        "balance_gap": split.balance,
        "within_sink": split.within_sink,
        "dispersion_gap": split.dispersion,
        "direction": split.direction,
        "entropy_change": change.total,
        "entropy_change_sink": change.sink,
        "entropy_change_content": change.content,
        "entropy_change_within_sink": change.within_sink,
    }
    for convention in ("kept", "dropped"):
        common = {"sink": sink, "convention": convention, **kw}
        values[f"js_divergence_{convention}"] = sw.js_divergence(p, q, **common)
        values[f"cosine_{convention}"] = sw.cosine_distance(p, q, **common)
        values[f"euclidean_{convention}"] = sw.euclidean_distance(p, q, **common)
    return values


@pytest.mark.parametrize("logits", [False, True], ids=["weights", "logits"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_float64_equals_the_oracle_to_1e_12(case, logits, library):
    p, q = np.array(case["p"]), np.array(case["q"])
    if logits:  # an offset shows that they need not be normalised
        p, q = np.log(p) + 3.0, np.log(q) - 2.0
    p, q = library.array(p), library.array(q)
    sink = tuple(case["sink"])
    got = {"row_p": row_values(p, sink, logits=logits), "row_q": row_values(q, sink, logits=logits)}
    got["pair"] = pair_values(p, q, sink, logits=logits)
    for part, expected in ((k, case[k]) for k in got):
        for name, value in expected.items():
            result = float(library.numpy(got[part][name]))
            assert abs(result - value) <= 1e-12 * max(1, abs(value)), (part, name, result, value)
    if "content_angle" not in case["pair"]:
        assert np.isnan(float(library.numpy(got["pair"]["content_angle"])))


def float32_tolerance(case, logits):
    """How far float32 may be: rounding of the inputs, times the condition of a log-ratio.

    A log-weight of size L is rounded by L·2⁻²⁴ and a weight by 2⁻²⁴ of itself, which moves its
    log by 2⁻²⁴.  Sums over n parts in a norm multiply by √n; computing log and mean costs a few
    more roundings of size L.
    """
    parts = np.array(case["p"] + case["q"])
    size = np.abs(np.log(parts)).max() + 3.0
    return 8 * 2.0**-24 * size * np.sqrt(len(case["p"]))


@pytest.mark.parametrize("logits", [False, True], ids=["weights", "logits"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_float32_is_good_to_its_own_rounding(case, logits, library):
    if not logits and case["name"] == "nearly all sink":
        pytest.skip("float32 weights cannot hold it: 1 - 1e-12 rounds to 1; its logits can")
    p, q = np.array(case["p"]), np.array(case["q"])
    if logits:
        p, q = np.log(p), np.log(q)
    p, q = library.array(p, "float32"), library.array(q, "float32")
    sink = tuple(case["sink"])
    tolerance = float32_tolerance(case, logits)
    got = row_values(p, sink, logits=logits) | {}
    for name, value in case["row_p"].items():
        assert abs(float(library.numpy(got[name])) - value) <= tolerance * max(1, abs(value)), name
    for name, value in pair_values(p, q, sink, logits=logits).items():
        value, expected = float(library.numpy(value)), case["pair"].get(name, np.nan)
        if np.isnan(expected):
            assert np.isnan(value)
        else:
            # direction is a square root of a difference only where the rows nearly agree;
            # absolute error there is the rounding of the clr vectors themselves
            assert abs(value - expected) <= tolerance * max(1, abs(expected)), name


def test_nearly_all_sink_keeps_its_content_from_float32_logits():
    case = next(c for c in CASES if c["name"] == "nearly all sink")
    z = np.log(np.array(case["p"])).astype(np.float32)
    split = sw.entropy_split(z, sink=0, logits=True)
    # the relative error of H_b and (1-s)H(π), tiny numbers, is that of 1-s: |z|·2⁻²⁴
    for name, field in (("entropy_sink", split.sink), ("entropy_content", split.content)):
        assert float(field) == pytest.approx(case["row_p"][name], rel=64 * 2.0**-24)
