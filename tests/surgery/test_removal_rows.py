"""Rows of a model without some heads are the rows of the heads that stayed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.families import FAMILIES, tiny_inputs, tiny_model  # noqa: E402
from sinkwise.capture.source import ModelRows  # noqa: E402
from sinkwise.errors import RowError  # noqa: E402
from sinkwise.surgery.output_projections import heads_of, output_projections  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.switch import switch_off  # noqa: E402

BY_TYPE = {family.model_type: family for family in FAMILIES}
SETS = {
    "uneven": [(0, 1), (1, 0), (1, 2), (1, 3)],
    "a layer gone": [(0, 0), (0, 1), (0, 2), (0, 3), (2, 1)],
}


@pytest.mark.parametrize("heads", SETS.values(), ids=SETS)
@pytest.mark.parametrize(
    "family",
    ["gpt2", "gpt_neox", "llama", "qwen2", "mistral", "gemma2", "gpt_oss", "bert", "dinov3_vit"],
)
def test_rows_of_kept_heads_are_as_with_the_others_switched_off(family, heads):
    model, documents = tiny_model(BY_TYPE[family]), tiny_inputs(BY_TYPE[family])
    with switch_off(model, heads):
        dense = ModelRows(model, None, documents)
        expected = list(dense.blocks())
    found = ModelRows(remove_heads(model, heads), None, documents)
    kept = [
        number for number, head in enumerate(dense.heads) if (head.layer, head.index) not in heads
    ]
    assert [head.layer for head in found.heads] == [dense.heads[number].layer for number in kept]
    for block, whole in zip(found.blocks(), expected, strict=True):
        support = np.broadcast_to(whole.support, whole.log_weights.shape)[kept]
        assert np.array_equal(np.broadcast_to(block.support, block.log_weights.shape), support)
        np.testing.assert_allclose(
            block.log_weights[support], whole.log_weights[kept][support], rtol=1e-4, atol=1e-3
        )
        assert np.array_equal(block.queries, whole.queries)


def test_layers_keep_their_numbers_and_counts_are_true():
    smaller = remove_heads(tiny_model(BY_TYPE["qwen2"]), [(0, i) for i in range(4)] + [(1, 0)])
    projections = output_projections(smaller)
    assert [(p.layer, p.n_heads) for p in projections] == [(1, 3), (2, 4)]
    assert [(h.layer, h.index) for h in heads_of(projections)][:3] == [(1, 0), (1, 1), (1, 2)]
    rows = ModelRows(smaller, None, tiny_inputs(BY_TYPE["qwen2"]))
    assert rows.card()["heads_by_layer"] == [3, 4] and rows.card()["kv_heads_by_layer"] == 2
    with pytest.raises(RowError, match="3 query heads over 2 key/value heads"):
        rows.head_number(1, 3)


def test_heads_of_a_smaller_model_can_be_switched_off():
    model = tiny_model(BY_TYPE["llama"])
    smaller = remove_heads(model, [(0, 1)])
    ids = torch.tensor([[4, 5, 6, 7]])
    with torch.no_grad(), switch_off(smaller, [(0, 1)]):
        found = smaller(ids).last_hidden_state
    with torch.no_grad(), switch_off(model, [(0, 1), (0, 2)]):
        expected = model(ids).last_hidden_state
    assert (found - expected).abs().max() < 1e-5
