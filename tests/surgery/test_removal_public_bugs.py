"""Public reports about removing heads: each behaves as it should (H10 is the evaluation's)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from transformers import AutoModelForCausalLM, T5ForConditionalGeneration  # noqa: E402

from sinkwise.capture.pruned.load import load_pruned  # noqa: E402
from sinkwise.surgery.removal import remove_heads  # noqa: E402
from sinkwise.surgery.switch import switch_off  # noqa: E402

PROMPT = torch.tensor([[5, 6, 7, 8, 9, 10, 11]])


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "bert", "vit"])
def test_H1_all_heads_of_a_layer(family, model_of, inputs_of, run, zeroed):
    """No division by zero: the layer adds its output bias; masking and pruning agree."""
    model, inputs = model_of(family), inputs_of(family)
    heads = [(1, index) for index in range(4)]
    with zeroed(model, family, heads):
        by_hand = run(model, inputs)
    with switch_off(model, heads):
        masked = run(model, inputs)
    removed = run(remove_heads(model, heads), inputs)
    assert (masked - by_hand).abs().max() < 1e-5 and (removed - by_hand).abs().max() < 1e-5


def test_H1_what_stays_of_a_layer_is_its_output_bias(model_of):
    model = model_of("gpt2")
    emptied = remove_heads(model, [(1, index) for index in range(4)])
    states = torch.randn(2, 5, 32)
    output, weights = emptied.transformer.h[1].attn(states)
    bias = model.transformer.h[1].attn.c_proj.bias
    assert torch.equal(output, bias.expand(2, 5, 32)) and weights is None


@pytest.mark.parametrize("layer", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_H2_T5_shares_its_position_bias(layer, implementation, model_of, inputs_of, run):
    """The bias has a column for each head of the first layer; the others have other heads."""
    model, inputs = model_of("t5", implementation, num_layers=2), inputs_of("t5")
    assert isinstance(model, T5ForConditionalGeneration)
    torch.nn.init.normal_(
        model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    )
    torch.nn.init.normal_(
        model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    )
    dense = run(model, inputs)
    for heads in ([(layer, 1)], [(layer, index) for index in range(4)]):
        with switch_off(model, heads):
            masked = run(model, inputs)
        removed = run(remove_heads(model, heads), inputs)
        assert (masked - dense).abs().max() > 1e-3
        assert (removed - masked).abs().max() < 1e-5


def test_H2_T5_by_hand(model_of, inputs_of, run):
    """The second layer loses head 0: its heads 1, 2, 3 must read columns 1, 2, 3 of the bias."""
    model, inputs = model_of("t5", num_layers=2), inputs_of("t5")
    torch.nn.init.normal_(
        model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
    )
    by_hand = model_of("t5", num_layers=2)
    by_hand.load_state_dict(model.state_dict())
    with torch.no_grad():
        by_hand.encoder.block[1].layer[0].SelfAttention.o.weight[:, :8] = 0
    removed = remove_heads(model, [(1, 0)])
    assert removed.encoder.block[1].layer[0].SelfAttention.o.weight.shape == (32, 24)
    assert (run(removed, inputs) - run(by_hand, inputs)).abs().max() < 1e-5


@pytest.mark.parametrize(
    "heads",
    [[(0, 2), (0, 3)], [(0, 0), (0, 2)], [(0, 1), (1, 4)], [(0, 0), (0, 1), (2, 7)]],
)
def test_H3_grouped_heads_lose_two_query_heads(heads, model_of, run):
    """8 query heads over 4 key/value heads; counts say what is there, cached is uncached."""
    model = model_of("llama", num_attention_heads=8, num_key_value_heads=4, head_dim=4)
    removed = remove_heads(model, heads)
    for layer in range(3):
        attention = removed.model.layers[layer].self_attn
        kept = [index for index in range(8) if (layer, index) not in heads]
        groups = len({index // 2 for index in kept})
        assert attention.config.num_attention_heads == len(kept)
        assert attention.config.num_key_value_heads == groups
        assert attention.q_proj.out_features == 4 * len(kept)
        assert attention.k_proj.out_features == 4 * groups
    options = {
        "max_new_tokens": 8,
        "do_sample": False,
        "output_scores": True,
        "return_dict_in_generate": True,
    }
    cached = removed.generate(PROMPT, use_cache=True, **options)
    uncached = removed.generate(PROMPT, use_cache=False, **options)
    with switch_off(model, heads):
        masked = model.generate(PROMPT, use_cache=True, **options)
    assert torch.equal(cached.sequences, uncached.sequences)
    assert torch.equal(cached.sequences, masked.sequences)
    for a, b in zip(cached.scores, uncached.scores, strict=True):
        assert (a - b).abs().max() < 1e-4


@pytest.mark.parametrize("family", ["gpt_neox", "gpt2", "phi3"])
@pytest.mark.parametrize("head", [0, 1])
def test_H5_fused_projections_lose_the_right_rows(family, head, model_of, inputs_of, run, zeroed):
    """NeoX keeps a head's query, key and value together, GPT-2 all queries, keys, values."""
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    if family == "gpt2":
        sizes = {"n_embd": 8, "n_head": 2}
    if family == "phi3":
        sizes |= {"num_key_value_heads": 2, "head_dim": 4}
    model = model_of(family, **sizes)
    inputs = inputs_of(family)
    with zeroed(model, family, [(0, head)], head_dim=4):
        masked = run(model, inputs)
    removed = remove_heads(model, [(0, head)])
    assert (run(removed, inputs) - masked).abs().max() < 1e-5


def test_H5_rows_by_known_weights(model_of):
    """Row r of a fused weight holds the number r."""
    neox = model_of("gpt_neox", hidden_size=8, num_attention_heads=2)
    gpt2 = model_of("gpt2", n_embd=8, n_head=2)
    with torch.no_grad():
        fused = neox.gpt_neox.layers[0].attention.query_key_value
        fused.bias.copy_(torch.arange(24))
        conv = gpt2.transformer.h[0].attn.c_attn
        conv.bias.copy_(torch.arange(24))
    neox_bias = remove_heads(neox, [(0, 0)]).gpt_neox.layers[0].attention.query_key_value.bias
    gpt2_bias = remove_heads(gpt2, [(0, 0)]).transformer.h[0].attn.c_attn.bias
    assert neox_bias.tolist() == list(range(12, 24))
    assert gpt2_bias.tolist() == [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]


def test_H6_uneven_heads_reload_bit_equal(model_of, inputs_of, run, tmp_path):
    """And transformers' own loader, which can't express them, refuses rather than fills in."""
    model, inputs = model_of("llama"), inputs_of("llama")
    for number, heads in enumerate(
        ([(0, 1)], [(0, 0), (0, 1), (2, 3)], [(1, index) for index in range(4)])
    ):
        removed = remove_heads(model, heads)
        removed.save_pretrained(tmp_path / str(number))
        again = load_pruned(tmp_path / str(number))
        assert torch.equal(run(again, inputs), run(removed, inputs))
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            AutoModelForCausalLM.from_pretrained(tmp_path / str(number))


def test_H7_without_head_mask_and_prune_heads(model_of, inputs_of, run):
    """transformers 5 has neither; the numbers are those of zeroing the head's columns."""
    model, inputs = model_of("bert"), inputs_of("bert")
    import transformers.pytorch_utils

    assert not hasattr(transformers.pytorch_utils, "find_pruneable_heads_and_indices")
    by_hand = model_of("bert")
    with torch.no_grad():
        by_hand.encoder.layer[2].attention.output.dense.weight[:, 8:16] = 0
    expected = run(by_hand, inputs)
    assert (run(remove_heads(model, [(2, 1)]), inputs) - expected).abs().max() < 1e-5
    with switch_off(model, [(2, 1)]):
        assert (run(model, inputs) - expected).abs().max() < 1e-5
