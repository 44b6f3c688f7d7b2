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


def test_a_difference_is_no_equal(monkeypatch):
    import sinkwise.capture.recording as recording

    honest = recording.write_logits

    def doubled(*args):
        honest(*args)
        args[-1].mul_(1.01)

    monkeypatch.setattr(recording, "write_logits", doubled)
    monkeypatch.setattr(doctor, "FAMILIES", doctor.FAMILIES[:1])
    (check,) = doctor.check_families()
    assert check["status"] == "untested" or check["status"] == "refused"


def test_the_global_random_state_is_left_alone():
    before = torch.random.get_rng_state()
    doctor.tiny_model(doctor.FAMILIES[0])
    assert torch.equal(before, torch.random.get_rng_state())
