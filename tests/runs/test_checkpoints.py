"""Which checkpoints a command line means: order, steps, names, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sinkwise.errors import RowError, RunError
from sinkwise.runs.checkpoints import files_fingerprint, locate_checkpoints


def checkpoint(parent: Path, name: str, step: int | None = None, weights: bytes = b"w") -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    if step is not None:
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return folder


def found(*names: object, **options: object) -> list[tuple[str, int | None]]:
    return [(s.name, s.step) for s in locate_checkpoints([*names], **options)]


@pytest.mark.parametrize("form", ["checkpoint-{}", "step{}", "step_{}", "ckpt-{}", "{}"])
def test_a_folder_of_checkpoints_in_the_order_of_numbers(tmp_path, form):
    for step in (1000, 200, 0):
        checkpoint(tmp_path, form.format(step))
    (tmp_path / "logs").mkdir()
    checkpoint(tmp_path, "best")
    (tmp_path / "config.json").write_text("{}")  # the trainer leaves its last model here
    assert found(tmp_path) == [(form.format(s), s) for s in (0, 200, 1000)]
    assert found(str(tmp_path)) == found(tmp_path)


def test_a_shells_order_of_names_is_put_right(tmp_path):
    names = sorted(f"step{step}" for step in (0, 200, 1000))
    assert [step for _, step in found(*(checkpoint(tmp_path, n) for n in names))] == [0, 200, 1000]


def test_the_trainers_own_step_wins_over_the_name(tmp_path):
    a, b = checkpoint(tmp_path, "late", 900), checkpoint(tmp_path, "step5", 100)
    assert found(a, b) == [("step5", 100), ("late", 900)]


def test_without_steps_the_order_given_stays(tmp_path):
    a, b, c = (checkpoint(tmp_path, n) for n in ("b", "step5", "a"))
    assert found(a, b, c) == [("b", None), ("step5", 5), ("a", None)]


def test_two_runs_at_one_step_keep_the_order_given_and_have_longer_names(tmp_path):
    a, b = checkpoint(tmp_path / "two", "step5"), checkpoint(tmp_path / "one", "step5")
    assert found(a, b) == [("two/step5", 5), ("one/step5", 5)]


def test_files_have_their_own_steps_or_their_folders(tmp_path):
    folder = checkpoint(tmp_path, "run", 70)
    for name in ("step20", "step3"):
        (folder / f"{name}.safetensors").write_bytes(b"x")
    files = [folder / f"{name}.safetensors" for name in ("step20", "step3", "model")]
    assert found(*files) == [
        ("step3.safetensors", 3),
        ("step20.safetensors", 20),
        ("model.safetensors", 70),
    ]


def test_revisions_of_a_hub_model(tmp_path):
    sources = locate_checkpoints(["owner/model"], ["step1000", "step0"])
    assert [(s.name, s.step, s.where, s.revision) for s in sources] == [
        ("step0", 0, "owner/model", "step0"),
        ("step1000", 1000, "owner/model", "step1000"),
    ]


def test_what_is_refused_says_what_to_name(tmp_path):
    one = checkpoint(tmp_path, "step5")
    with pytest.raises(RowError, match=r"1 checkpoint arrived.*between two"):
        locate_checkpoints([one])
    with pytest.raises(RowError, match="named twice"):
        locate_checkpoints([one, one])
    with pytest.raises(RunError, match=r"there is no checkpoint .*gone"):
        locate_checkpoints([one, tmp_path / "gone"])
    with pytest.raises(RunError, match=r"holds no config\.json"):
        locate_checkpoints([one, tmp_path])
    with pytest.raises(RowError, match="revisions belong to one hub id"):
        locate_checkpoints([one], ["main", "step5"])
    with pytest.raises(RowError, match="stands twice"):
        locate_checkpoints(["owner/model"], ["step5", "step5"])
    (one / "trainer_state.json").write_text("{")
    with pytest.raises(RunError, match=r"trainer_state\.json can't be read"):
        locate_checkpoints([one, checkpoint(tmp_path, "step6")])


def test_a_fingerprint_knows_other_weights_of_one_size(tmp_path):
    a = checkpoint(tmp_path, "a", weights=bytes(200_000))
    b = checkpoint(tmp_path, "b", weights=bytes(100_000) + b"\x01" * 100_000)
    assert files_fingerprint(a) != files_fingerprint(b)
    assert files_fingerprint(a) == files_fingerprint(
        checkpoint(tmp_path, "c", weights=bytes(200_000))
    )
    assert files_fingerprint(a / "model.safetensors") == files_fingerprint(
        tmp_path / "c" / "model.safetensors"
    )
