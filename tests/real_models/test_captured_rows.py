"""Rows captured from pretrained models are the models' own ``output_attentions``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_attention import attending, eager_weights

from sinkwise.capture.source import ModelRows


def _weights(block):
    z = np.where(block.support, block.log_weights.astype(np.float64), -np.inf)
    exponentials = np.exp(z - z.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_minilm_on_padded_batches_of_chapters(minilm, chapters, batch_size):
    texts = [chapters[0][:150], chapters[1][:400], chapters[2][:300]]
    rows = ModelRows(
        minilm.model, minilm.processor, texts, queries=16, max_length=96, batch_size=batch_size
    )
    blocks = list(rows.blocks())
    assert len({block.n_keys for block in blocks}) == 3
    for block, text in zip(blocks, texts, strict=True):
        inputs = minilm.processor(text, truncation=True, max_length=96, return_tensors="pt")
        expected = eager_weights(minilm.model, inputs)[:, block.queries]
        assert block.sink[:, 0].all() and inputs["input_ids"][0, 0] == minilm.processor.cls_token_id
        assert block.n_heads == 72
        np.testing.assert_allclose(_weights(block), expected, atol=1e-5)


# Eager against eager, only the softmax is computed twice.  Fused attention hands every layer a
# hidden state in another rounding, and DINOv2's logits reach 290: a few times 290 eps in a logit,
# at most half of it in a weight.  Each is as far from the same model in float64, up to 3e-5.
@pytest.mark.parametrize(("implementation", "tolerance"), [("eager", 1e-5), ("sdpa", 1e-4)])
def test_dinov2_on_photographs(dinov2, pictures, implementation, tolerance):
    with attending(dinov2, implementation):
        blocks = list(ModelRows(dinov2, None, pictures[:3], queries=32, batch_size=2).blocks())
    assert [block.document for block in blocks] == [0, 1, 2]
    for block in blocks:
        inputs = {"pixel_values": torch.tensor(pictures[block.document])[None]}
        expected = eager_weights(dinov2, inputs)[:, block.queries]
        assert block.n_keys == 1 + 16 * 16 and block.n_heads == 72
        np.testing.assert_allclose(_weights(block), expected, atol=tolerance)


def test_a_sink_too_light_for_probabilities_is_held_as_logits(dinov2, pictures):
    """One head of DINOv2 gives [CLS] less than float32 can tell from 0 beside its strongest patch.

    In probabilities that [CLS] would be lost in rounding; in logits it is as exact as any key.
    """
    (block,) = ModelRows(dinov2, None, pictures[6:7], queries=32).blocks()
    weights = _weights(block)
    lightest = weights[..., 0].mean(1).argmin()
    assert 0 < weights[lightest, :, 0].mean() < np.finfo(np.float32).eps
    assert weights[lightest].max(-1).min() > 0.9
    assert np.isfinite(block.log_weights).all()
