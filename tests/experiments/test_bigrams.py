"""The toy texts are what they say, and its runs are folders that sinkwise reads."""

from __future__ import annotations

import itertools
import math
import os
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
torch.set_num_threads(1)

from experiments.bigrams import (  # noqa: E402
    BOS,
    HELD_OUT,
    LENGTH,
    TRIGGERS,
    VOCABULARY,
    Bigrams,
    is_trigger,
    new_model,
    tokenizer,
)
from experiments.collapse_runs import last_checkpoint, train_run  # noqa: E402
from experiments.entropy_floors import (  # noqa: E402
    FLOOR,
    LOSSES,
    measure,
    whole_row_shortfall,
)
from experiments.split_curves import Curves, draw, read_curves  # noqa: E402
from experiments.training import Recipe  # noqa: E402

import sinkwise as sw  # noqa: E402
from sinkwise.cli.documents import locate_documents  # noqa: E402

SHORT = Recipe(steps=10, learning_rate=3e-3)


def test_after_a_trigger_the_token_before_it_comes_again_and_nowhere_else_by_rule():
    ids = Bigrams.drawn(0).batch(3, 200).numpy()
    assert ids.shape == (200, LENGTH)
    assert (ids[:, 0] == BOS).all()
    assert (ids[:, 1:] != BOS).all()
    assert not is_trigger(ids[:, 1]).any()
    before, now, after = ids[:, :-2], ids[:, 1:-1], ids[:, 2:]
    assert (after == before)[is_trigger(now)].all()
    assert (after == before)[~is_trigger(now)].mean() < 0.2
    # so no trigger follows a trigger
    assert not (is_trigger(now) & is_trigger(after)).any()


def test_tokens_follow_the_table():
    texts = Bigrams.drawn(0)
    np.testing.assert_allclose(texts.table.sum(1), 1)
    assert (texts.table[:, BOS] == 0).all()
    ids = texts.batch(0, 4000).numpy()
    common = np.bincount(ids[:, 1:-1].ravel(), minlength=VOCABULARY)
    common[list(TRIGGERS)] = 0
    token = int(common.argmax())
    at = ids[:, 1:-1] == token
    seen = np.bincount(ids[:, 2:][at], minlength=VOCABULARY) / at.sum()
    error = np.sqrt(texts.table[token] / at.sum())
    assert (np.abs(seen - texts.table[token]) < 5 * error + 1e-3).all()


def test_batches_depend_on_seed_and_number_alone():
    assert torch.equal(Bigrams.drawn(0).batch(7), Bigrams.drawn(0).batch(7))
    assert not torch.equal(Bigrams.drawn(0).batch(7), Bigrams.drawn(0).batch(8))
    assert not torch.equal(Bigrams.drawn(0).batch(7), Bigrams.drawn(1).batch(7))


def test_the_least_loss_is_the_processs_own_by_hand():
    texts = Bigrams.drawn(0)
    ids = texts.batch(HELD_OUT, 5)
    losses = []
    for row in ids.tolist():
        losses.append(math.log(VOCABULARY - TRIGGERS.stop))
        for now, after in itertools.pairwise(row[1:]):
            losses.append(0.0 if now in TRIGGERS else -math.log(texts.table[now, after]))
    assert texts.least_loss(ids) == pytest.approx(sum(losses) / len(losses))


def test_saved_texts_are_the_held_out_batch_in_words(tmp_path):
    texts = Bigrams.drawn(0)
    texts.save_texts(tmp_path / "texts.txt", documents=5)
    documents = locate_documents(tmp_path / "texts.txt").read()
    words = tokenizer()
    assert [words(d)["input_ids"] for d in documents] == texts.batch(HELD_OUT, 5).tolist()


def test_the_usual_penalty_counts_the_sink_and_the_floor_does_not():
    logits = torch.tensor([[[[9.0, 0.0, 0.0, 0.0]]]])
    visible = torch.ones(1, 1, 1, 4, dtype=torch.bool)
    entropy = float(sw.entropy(logits, logits=True)[0, 0, 0])
    expected = FLOOR - entropy / math.log(4)
    assert float(whole_row_shortfall(logits, visible)) == pytest.approx(expected)
    assert float(sw.content_entropy_floor(logits, sink=0, floor=FLOOR)) == 0


@pytest.mark.parametrize("penalty", LOSSES)
def test_a_run_is_a_folder_of_checkpoints_that_can_be_measured(tmp_path, penalty):
    result = train_run(SHORT, tmp_path, seed=0, loss_of=LOSSES[penalty])
    assert {p.name for p in tmp_path.iterdir()} == {f"checkpoint-{step}" for step in (0, 2, 5, 10)}
    assert result["least_loss"] < result["loss"] < math.log(VOCABULARY)
    values = measure(last_checkpoint(tmp_path), Bigrams.drawn(0), documents=8)
    assert all(math.isfinite(value) for value in values.values())
    assert 0 < values["sink_mass"] < 1
    words = sw.load_model(tmp_path / "checkpoint-10").processor
    assert words("word9 again1")["input_ids"] == [BOS, 9, 1]


def test_training_is_the_same_from_the_same_seed(tmp_path):
    for name in ("one", "two"):
        train_run(SHORT, tmp_path / name, seed=3)
    one, two = (last_checkpoint(tmp_path / name) for name in ("one", "two"))
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    other = new_model(4)
    assert not torch.equal(next(other.parameters()), next(new_model(3).parameters()))


def test_the_drawn_areas_are_the_channels_and_end_at_the_total():
    shifts = {"b": (-1.0, -0.5), "c": (-0.75, -1.25)}
    study = SimpleNamespace(
        names=("a", "b", "c"),
        checkpoints=pd.DataFrame(
            {"step": [0, 10, 20], "sink_mass": [0.1, 0.5, 0.4], "content_entropy": [3.0, 2.0, 1.5]}
        ),
        change=lambda first, second: SimpleNamespace(
            sink=SimpleNamespace(value=shifts[second][0]),
            content=SimpleNamespace(value=shifts[second][1]),
        ),
    )
    curves = read_curves("a < b", study)
    assert curves == Curves(
        "a < b", (0, 10, 20), (0, -1, -0.75), (0, -0.5, -1.25), (0.1, 0.5, 0.4), (3, 2, 1.5)
    )
    picture = draw([curves, curves])
    assert picture.count("a &lt; b") == 2
    outlines = re.findall(r'<polygon points="([^"]+)"', picture)
    total = re.findall(r'<polyline points="([^"]+)"', picture)[0]
    assert outlines[1].split()[3:] == total.split()[::-1]
