"""The self-check of families, and that it can fail."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture import doctor  # noqa: E402

REFUSED = {"bloom", "longformer", "t5"}


def test_every_family_is_equal_to_eager_or_refused():
    checks = doctor.check_families()
    assert all(set(check) == {"model_type", "status", "why"} and check["why"] for check in checks)
    assert {c["model_type"] for c in checks if c["status"] == "refused"} == REFUSED
    assert all(c["status"] == "equal" for c in checks if c["model_type"] not in REFUSED), checks


@pytest.mark.parametrize(("gap", "status"), [(1e-3, "untested"), (1e-6, "equal")])
def test_a_difference_is_no_equal(monkeypatch, gap, status):
    monkeypatch.setattr(doctor, "compare_with_eager", lambda *_: gap)
    monkeypatch.setattr(doctor, "FAMILIES", doctor.FAMILIES[:1])
    (check,) = doctor.check_families()
    assert check["status"] == status and f"{gap:.1e}" in check["why"]


def test_the_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    doctor.tiny_model(doctor.FAMILIES[0])
    assert torch.equal(before, torch.random.get_rng_state())
