"""Which rows of which documents are taken, and what the card says of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.queries import choose_queries, first_usable_query  # noqa: E402
from sinkwise.capture.source import ModelRows  # noqa: E402


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    return [rng.integers(3, 60, size=length) for length in (30, 28, 60, 20, 25, 22)]


def test_queries_are_one_draw_a_stratum_of_the_usable_range():
    draws = np.array([choose_queries(66, 4, start=2, seed=s, document=0) for s in range(400)])
    low = 2 + 16 * np.arange(4)
    assert (draws >= low).all() and (draws < low + 16).all()
    # every position of the range comes up: 400 draws over 16 places miss one with 16 * e^-25
    assert np.unique(draws).tolist() == list(range(2, 66))


def test_queries_depend_on_the_seed_and_the_document_alone(build, texts):
    def queries(**options):
        rows = ModelRows(build("gpt2"), None, texts, queries=5, **options)
        return [block.queries.tolist() for block in rows.blocks()]

    texts = [*texts, texts[0], texts[0]]
    first = queries(batch_size=4)
    assert queries(batch_size=1) == first
    assert queries(seed=1) != first
    # alike documents draw apart: 5 strata of 5 or 6 positions agree once in 4,000
    assert len({tuple(rows) for rows in (first[0], *first[-2:])}) == 3


def test_a_short_document_gives_every_usable_row(build):
    block = next(ModelRows(build("gpt2"), None, [np.arange(3, 13)], queries=64).blocks())
    assert block.queries.tolist() == list(range(2, 10))
    assert not block.excluded


@pytest.mark.parametrize(
    ("sink", "causal", "virtual", "first"),
    [
        ((0,), True, False, 2),
        ((0, 1), True, False, 3),
        ((3,), True, False, 3),
        ((0, 5), True, False, 2),
        ((3,), True, True, 1),
        ((0,), False, False, 0),
    ],
)
def test_the_first_usable_query_sees_the_sink_and_two_content_parts(sink, causal, virtual, first):
    assert first_usable_query(10, sink, causal=causal, virtual=virtual) == first


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_C1_batching_changes_no_row(build, texts, padding, batch_size):
    model = build("qwen2")
    one = list(ModelRows(model, padding("left"), texts, batch_size=1).blocks())
    many = list(ModelRows(model, padding("left"), texts, batch_size=batch_size).blocks())
    for a, b in zip(one, many, strict=True):
        assert a.document == b.document
        assert np.array_equal(a.queries, b.queries)
        assert np.array_equal(a.support, b.support)
        support = np.broadcast_to(a.support, a.log_weights.shape)
        np.testing.assert_allclose(a.log_weights[support], b.log_weights[support], atol=1e-4)


def test_documents_of_like_lengths_share_a_pass_and_come_in_order(build, texts):
    rows = ModelRows(build("gpt2"), None, texts, batch_size=4)
    plan = list(rows._documents.plan(4))
    assert plan == [((0, 1), 30), ((2,), 60), ((3, 4, 5), 25)]
    assert [block.document for block in rows.blocks()] == list(range(6))


def test_skipped_documents_are_not_run_and_leave_the_others_as_they_were(build, texts):
    model = build("gpt2")
    rows = ModelRows(model, None, texts, batch_size=3)
    whole = {block.document: block for block in rows.blocks()}
    ran = []
    handle = model.register_forward_pre_hook(
        lambda _, args, options: ran.extend(options["input_ids"].shape[:1]), with_kwargs=True
    )
    rest = {block.document: block for block in rows.blocks(skip=frozenset({0, 2, 3}))}
    handle.remove()
    assert sum(ran) == 3 and sorted(rest) == [1, 4, 5]
    for document, block in rest.items():
        assert block.excluded == whole[document].excluded
        np.testing.assert_allclose(block.log_weights, whole[document].log_weights, atol=1e-5)
    assert not list(rows.blocks(skip=frozenset(range(6))))


def test_documents_limits_how_many_texts_are_read(build, texts):
    assert ModelRows(build("gpt2"), None, texts, documents=2).n_documents == 2
    assert ModelRows(build("gpt2"), None, texts, documents=99).n_documents == 6


def test_C1_sink_positions_count_real_tokens(build, texts, padding):
    rows = ModelRows(build("gpt2"), padding("left"), texts[:2], sink=(0, 3), queries="all")
    for block in rows.blocks():
        assert (block.sink.nonzero()[1].reshape(-1, 2) == [0, 3]).all()
        assert block.queries[0] == 2 and block.support[0].sum() == 3


def test_the_card_tells_what_was_read(build, tokenizer):
    texts = ["", "abcdefghij", "k" * 40, "lmnopqrst", "x"]
    rows = ModelRows(build("gpt2"), tokenizer, texts, max_length=20, queries=3, seed=7)
    card = rows.card()
    assert rows.n_documents == card["documents"] == 3
    assert card["lengths"] == {"min": 10, "mean": pytest.approx(41 / 3), "max": 20}
    assert card["tokens"] == 41 and card["truncated"] == 1 and card["max_length"] == 20
    assert card["skipped_documents"] == {"fewer_than_3_tokens": 2}
    assert card["skipped_texts"] == [0, 4]
    assert card["begins_with"] == "bos" and card["special_tokens"] == {"bos_token": "<s>"}
    assert card["queries"] == 3 and card["seed"] == 7 and card["sink"] == "first"
    assert card["model_type"] == "gpt2" and card["dtype"] == "float32"
    assert card["heads"] == 12 and card["heads_by_layer"] == 4 and card["n_layers"] == 3
    assert card["padding_side"] == "right" and card["attention_implementation"] == "sdpa"
    json.dumps(card)


def test_the_card_tells_two_sets_of_weights_apart(build, documents):
    model, inputs = build("gpt2"), documents("gpt2")
    first = ModelRows(model, None, inputs).card()["weights_fingerprint"]
    assert ModelRows(build("gpt2"), None, inputs).card()["weights_fingerprint"] == first
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.mul_(1.01)
    assert ModelRows(model, None, inputs).card()["weights_fingerprint"] != first


def test_a_context_longer_than_the_model_has_positions_is_cut(build, caplog):
    rows = ModelRows(build("gpt2"), None, [np.arange(3, 60).repeat(5)], max_length=1000)
    assert rows.card()["max_length"] == 128 and rows.card()["truncated"] == 1
    assert next(rows.blocks()).n_keys == 128
    assert "cut to the model's 128 positions" in caplog.text


def test_images_are_read_from_files_by_the_processor(build, tmp_path):
    image = pytest.importorskip("PIL.Image")
    from transformers import ViTImageProcessorPil

    rng = np.random.default_rng(0)
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"{number}.png")
        image.fromarray(rng.integers(0, 255, size=(20, 30, 3), dtype=np.uint8)).save(paths[-1])
    processor = ViTImageProcessorPil(size={"height": 16, "width": 16})
    rows = ModelRows(build("vit"), processor, paths, queries="all", batch_size=2)
    blocks = list(rows.blocks())
    assert [block.log_weights.shape for block in blocks] == [(12, 17, 17)] * 3
    assert rows.card()["lengths"] == {"min": 17, "mean": 17.0, "max": 17}
    assert not rows.card()["causal"]
    opened = [image.open(path) for path in paths]
    for one, other in zip(
        blocks, ModelRows(build("vit"), processor, opened, queries="all").blocks(), strict=True
    ):
        np.testing.assert_allclose(one.log_weights, other.log_weights, atol=1e-5)
