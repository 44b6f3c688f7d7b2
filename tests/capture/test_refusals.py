"""What cannot be captured faithfully raises, and says what to do."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sinkwise.capture.source import ModelRows  # noqa: E402
from sinkwise.errors import (  # noqa: E402
    CaptureError,
    InputTypeError,
    MemoryBudgetError,
    RowError,
)

IDS = [np.arange(3, 15), np.arange(3, 12)]


def _heads(model):
    return ModelRows(model, None, IDS).heads


def test_A4_a_family_outside_the_interface_is_named(build):
    with pytest.raises(CaptureError, match=r"BloomModel.*sinkwise\.rows\(outputs\.attentions"):
        _heads(build("bloom"))


def _custom_class():
    from transformers import GPT2Config, GPT2Model, PreTrainedModel

    class HomeMadeModel(PreTrainedModel):
        config_class = GPT2Config

        def __init__(self, config):
            super().__init__(config)
            self.embed = torch.nn.Embedding(config.vocab_size, config.n_embd)
            self.attention = torch.nn.MultiheadAttention(config.n_embd, 2, batch_first=True)
            self.post_init()

        def forward(self, input_ids, attention_mask=None):
            x = self.embed(input_ids)
            return self.attention(x, x, x)

    return HomeMadeModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=64)), GPT2Model


def test_A4_a_custom_class_is_named():
    with pytest.raises(CaptureError, match="HomeMadeModel"):
        _heads(_custom_class()[0])


def test_I4_no_record_at_all_is_an_error(build, monkeypatch):
    """What a forward compiled before the capture does: the interface isn't asked any more."""
    model = build("gpt2")
    for block in model.h:
        attention = block.attn

        def compiled(hidden_states, *args, **kwargs):
            return hidden_states, None

        monkeypatch.setattr(attention, "forward", compiled)
    with pytest.raises(CaptureError, match=r"not one attention row .*GPT2Model.*compiled"):
        _heads(model)


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "gpt_neox", "bert"])
def test_a_model_whose_heads_were_all_removed_is_named_as_such(build, family):
    from sinkwise import remove_heads

    model = build(family)
    heads = [(head.layer, head.index) for head in _heads(model)]
    with pytest.raises(CaptureError, match=r"Model has no attention head left.*remove_heads"):
        _heads(remove_heads(model, heads))


def test_I4_a_record_missing_in_a_later_pass_is_an_error(build, monkeypatch):
    model = build("gpt2")
    rows = ModelRows(model, None, IDS)
    assert len(rows.heads) == 12
    monkeypatch.setattr(model.h[2].attn, "forward", lambda hidden, *a, **k: (hidden, None))
    with pytest.raises(CaptureError, match="made 2 attention calls where its first pass made 3"):
        next(rows.blocks())


def test_I4_a_layer_that_attends_by_its_config_but_is_not_heard_is_an_error(build, monkeypatch):
    model = build("qwen2")
    attention = model.layers[1].self_attn
    monkeypatch.setattr(attention, "forward", lambda hidden_states, **k: (hidden_states, None))
    with pytest.raises(CaptureError, match=r"layers \[1\] of Qwen2Model attend"):
        _heads(model)


def test_A7_a_serving_engine_needs_a_transformers_model():
    class LLM:
        """Like vllm.LLM: it generates, and has no modules."""

        def generate(self, prompts):
            return prompts

    with pytest.raises(TypeError, match=r"LLM, expected a transformers model"):
        ModelRows(LLM(), None, IDS)


@pytest.mark.parametrize("model", [torch.nn.Linear(2, 2), "gpt2", None])
def test_A7_other_objects_are_refused_with_their_class(model):
    with pytest.raises(InputTypeError, match="expected a transformers model") as error:
        ModelRows(model, None, IDS)
    assert type(model).__name__ in str(error.value)


def test_A7_a_wrapped_model_says_how_to_unwrap_it(build):
    with pytest.raises(InputTypeError, match=r"model\.module"):
        ModelRows(torch.nn.DataParallel(build("gpt2")), None, IDS)
    compiled = torch.nn.Module()  # what torch.compile returns, without the compiler's start-up
    compiled._orig_mod = build("gpt2")
    with pytest.raises(InputTypeError, match=r"_orig_mod"):
        ModelRows(compiled, None, IDS)


def test_B9_banded_attention_is_refused(build):
    with pytest.raises(CaptureError, match="LongformerModel computes banded attention"):
        _heads(build("longformer"))


def test_encoder_decoders_are_refused(build):
    with pytest.raises(CaptureError, match="T5Model is an encoder-decoder"):
        ModelRows(build("t5"), None, IDS)


def test_windows_of_an_image_are_refused(documents):
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(
        image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=2
    )
    with pytest.raises(CaptureError, match=r"SwinAttention attends in 16 pieces of 4"):
        _ = ModelRows(SwinModel(config).eval(), None, documents("vit")).heads


@pytest.mark.parametrize("layer", [0, 2])
def test_D6_an_overflow_names_the_first_bad_layer_and_another_dtype(build, layer):
    model = build("llama").half()
    with torch.no_grad():
        model.layers[layer].self_attn.q_proj.weight.fill_(6e4)  # a float16 overflow in the query
    pattern = rf"layer {layer}, head \d.*float16.*float32.*bfloat16"
    with pytest.raises(CaptureError, match=pattern):
        next(ModelRows(model, None, IDS).blocks())


def test_D6_logits_beyond_float16_in_eager_attention_name_their_own_layer(build):
    model = build("qwen2", "eager").half()
    with torch.no_grad():
        for projection in ("q_proj", "k_proj"):
            getattr(model.layers[1].self_attn, projection).weight.mul_(150)
    with pytest.raises(CaptureError, match=r"layer 1, .*output is not finite.*float16"):
        next(ModelRows(model, None, IDS).blocks())


def test_C2_NaN_at_padding_is_no_error(build, padding, monkeypatch):
    """Left pads in float16: their queries see nothing; real rows are as they are alone."""
    model = build("gpt2").half()
    alone = list(ModelRows(model, None, IDS, queries="all", batch_size=1).blocks())
    batched = list(ModelRows(model, padding("left"), IDS, queries="all").blocks())
    assert [b.excluded.get("padding", 0) for b in batched] == [0, 3]
    for one, other in zip(alone, batched, strict=True):
        assert np.isfinite(other.log_weights[:, other.support]).all()
        # float16 activations: 2^-11 of values up to 30, through three layers
        np.testing.assert_allclose(
            one.log_weights[:, one.support], other.log_weights[:, one.support], atol=0.1
        )


def test_logits_changed_behind_the_interface_are_noticed(build, monkeypatch):
    import transformers.models.gpt2.modeling_gpt2 as file

    honest = file.eager_attention_forward

    def halved(module, query, key, value, attention_mask, **options):
        return honest(module, query / 2, key, value, attention_mask, **options)

    monkeypatch.setattr(file, "eager_attention_forward", halved)
    with pytest.raises(CaptureError, match=r"layer 0 \(GPT2Attention\): .* don't give"):
        next(ModelRows(build("gpt2", "eager"), None, IDS).blocks())


def test_flex_attention_says_what_to_load_instead(build):
    model = build("gpt2")
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(
        CaptureError, match=r'loaded with flex_attention.*attn_implementation="sdpa"'
    ):
        _heads(model)


def _message(model):
    with pytest.raises(CaptureError, match=r"layer 0, head \d, query .*expected finite") as error:
        list(ModelRows(model, None, IDS).blocks())
    return str(error.value)


def test_weights_that_are_not_finite_are_counted_and_the_first_is_named(build):
    model = build("gpt2")
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.fill_(torch.nan)
        model.h[2].mlp.c_fc.bias[3] = torch.inf
    message = _message(model)
    total = len(list(model.parameters()))
    assert f"2 of {total} parameters" in message and "first h.0.attn.c_attn.weight" in message
    assert "float16" not in message and 'dtype="float32"' not in message


def test_finite_weights_in_float32_are_not_told_to_be_loaded_in_float32(build):
    model = build("gpt2")
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.mul_(1e38)
    message = _message(model)
    assert "every parameter of GPT2Model is finite" in message
    assert "float16" not in message and 'dtype="float32"' not in message


def test_float16_that_overflows_says_what_to_load(build):
    model = build("gpt2").to(torch.float16)
    with torch.no_grad():
        model.h[0].attn.c_attn.weight.mul_(1e7).clamp_(-6e4, 6e4)
    message = _message(model)
    assert "every parameter of GPT2Model is finite" in message
    assert 'overflows above 65504: load the model with dtype="float32"' in message


def test_G1_a_document_over_the_budget_is_refused_with_its_bytes_before_allocation(build):
    rows = ModelRows(build("gpt2"), None, IDS, queries="all", memory_budget=1000)
    # 12 heads x 12 queries x 12 keys x 4 bytes + 144 bytes of support = 7056
    with pytest.raises(
        MemoryBudgetError, match=r"needs 6\.9 KiB .*12 heads x 12 queries x 12 keys"
    ):
        next(rows.blocks())
    assert isinstance(MemoryBudgetError(""), MemoryError)


def test_G1_a_batch_over_the_budget_runs_in_parts_with_equal_rows(build):
    whole = list(ModelRows(build("gpt2"), None, IDS, queries="all").blocks())
    rows = ModelRows(model := build("gpt2"), None, IDS, queries="all", memory_budget=8000)
    assert len(rows.heads) == 12
    passes = []
    handle = model.register_forward_pre_hook(lambda *_: passes.append(1))
    parts = list(rows.blocks())
    handle.remove()
    assert len(passes) == 2  # 7,056 bytes of the first document leave no room for the second
    for one, other in zip(whole, parts, strict=True):
        assert one.excluded == other.excluded
        np.testing.assert_allclose(one.log_weights, other.log_weights, atol=1e-5)


def test_G3_memory_follows_the_tokens_not_the_context():
    """16 tokens in a context of 32,768: a context squared buffer would be 4 GiB a layer."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32768,
    )  # fmt: skip
    rows = ModelRows(LlamaModel(config).eval(), None, [np.arange(3, 19)], memory_budget=100_000)
    block = next(rows.blocks())
    assert block.log_weights.shape == (4, 14, 16)
    assert block.log_weights.base is None or block.log_weights.base.nbytes < 100_000


def test_audio_models_are_refused():
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        conv_dim=(8,), conv_stride=(2,), conv_kernel=(2,), num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, num_feat_extract_layers=1,
    )  # fmt: skip
    with pytest.raises(InputTypeError, match="reads input_values"):
        ModelRows(Wav2Vec2Model(config), None, [[0.0, 1.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sink": -1}, "sink=-1 arrived"),
        ({"sink": "last"}, "sink='last' arrived"),
        ({"sink": ()}, "expected"),
        ({"sink": (0, 0)}, "different positions"),
        ({"queries": 0}, "queries=0 arrived"),
        ({"queries": "some"}, "queries='some' arrived"),
        ({"max_length": 2}, "max_length=2 arrived"),
        ({"documents": 0}, "documents=0 arrived"),
        ({"batch_size": 0}, "batch_size=0 arrived"),
    ],
)
def test_options_are_checked_at_once(build, options, message):
    with pytest.raises(RowError, match=message):
        ModelRows(build("gpt2"), None, IDS, **options)


def test_documents_of_another_kind_are_refused(build, tokenizer):
    model = build("gpt2")
    with pytest.raises(InputTypeError, match=r"type \[text\]"):
        ModelRows(model, tokenizer, "one text")
    with pytest.raises(InputTypeError, match="no tokenizer was given"):
        ModelRows(model, None, ["a text"])
    with pytest.raises(InputTypeError, match="sequence of token ids"):
        ModelRows(model, tokenizer, [[0.5, 1.5]])
    with pytest.raises(RowError, match="none has 3 tokens"):
        ModelRows(model, tokenizer, ["", "a"])
    with pytest.raises(RowError, match="none has 3 tokens"):
        ModelRows(model, tokenizer, [])


def test_a_token_id_that_the_model_does_not_know_is_named(build):
    from sinkwise.errors import RowError

    for bad in (10_000, -1):
        with pytest.raises(RowError, match=f"document 0 holds the token id {bad}"):
            ModelRows(build("gpt2"), None, [[5, 6, 7, bad]])


def test_a_path_that_is_no_image_is_named(tmp_path):
    pytest.importorskip("PIL")
    from sinkwise.capture.documents import _open_image
    from sinkwise.errors import RowError

    with pytest.raises(RowError, match="some text"):
        _open_image("some text")


def test_a_grey_image_becomes_rgb():
    image = pytest.importorskip("PIL.Image").new("L", (4, 4))
    from sinkwise.capture.documents import _open_image

    assert _open_image(image).mode == "RGB"
