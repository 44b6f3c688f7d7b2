"""Capture leaves no trace: registries, configs, modes, hooks, outputs, memory."""

from __future__ import annotations

import gc
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

from sinkwise.capture.interface import listening, loaded_implementations  # noqa: E402
from sinkwise.capture.source import ModelRows  # noqa: E402

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _state(model):
    """Everything a user could see of a model and of transformers' tables."""
    modules = {
        name: (
            module.training,
            sorted(vars(module)),
            [list(getattr(module, hooks)) for hooks in HOOKS],
            "forward" in vars(module),
        )
        for name, module in model.named_modules()
    }
    configs = {
        name: (id(module.config), repr(module.config.__dict__))
        for name, module in model.named_modules()
        if hasattr(module, "config")
    }
    tables = (
        dict(ALL_ATTENTION_FUNCTIONS._global_mapping),
        dict(ALL_ATTENTION_FUNCTIONS._local_mapping),
        dict(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping),
        dict(ALL_MASK_ATTENTION_FUNCTIONS._local_mapping),
    )
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    requires = {name: weight.requires_grad for name, weight in model.named_parameters()}
    return modules, configs, tables, requires, torch.is_grad_enabled(), weights


def _assert_same(before, after):
    assert before[:-1] == after[:-1]
    assert before[-1].keys() == after[-1].keys()
    assert all(torch.equal(before[-1][name], after[-1][name]) for name in before[-1])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("model_type", ["gpt2", "qwen2", "bert", "vit"])
def test_A2_model_and_tables_are_identical_before_and_after(
    build, documents, model_type, implementation
):
    model, inputs = build(model_type, implementation), documents(model_type)
    value = {model.main_input_name: torch.as_tensor(inputs[0])[None]}
    before, output = _state(model), model(**value)
    list(ModelRows(model, None, inputs).blocks())
    _assert_same(before, _state(model))
    after = model(**value)
    assert list(after) == list(output)
    assert torch.equal(after.last_hidden_state, output.last_hidden_state)
    assert after.last_hidden_state.requires_grad


@pytest.mark.parametrize("when", ["first call", "last layer", "between forward passes"])
def test_an_exception_inside_leaves_the_model_as_found(build, documents, when):
    model = build("llama").train()
    before = _state(model)

    class Stop(Exception):
        pass

    calls = []

    def listener(call):
        calls.append(call)
        if (when == "first call") or (when == "last layer" and len(calls) == 3):
            raise Stop

    with pytest.raises(Stop), listening(model, listener):
        model(torch.as_tensor(documents("llama")[0])[None])
        raise Stop
    _assert_same(before, _state(model))


def test_a_stream_left_halfway_leaves_the_model_as_found(build, documents):
    model = build("gpt2").train()
    before = _state(model)
    stream = ModelRows(model, None, documents("gpt2"), batch_size=1).blocks()
    next(stream)
    _assert_same(before, _state(model))
    stream.close()
    _assert_same(before, _state(model))


def test_D4_dropout_is_off_inside_and_each_module_gets_its_own_mode_back(build, documents):
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=2, n_head=2, n_embd=8, vocab_size=64, attn_pdrop=0.5, embd_pdrop=0.5
    )
    model = GPT2Model(config).train()
    model.h[1].attn.eval()  # frozen by the user
    inputs = documents("gpt2")
    first = [b.log_weights for b in ModelRows(model, None, inputs).blocks()]
    second = [b.log_weights for b in ModelRows(model, None, inputs).blocks()]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert model.training and model.h[0].attn.training
    assert not model.h[1].attn.training and not model.h[1].attn.attn_dropout.training


def test_G6_the_model_pickles_after_a_capture_and_holds_no_hooks(build, documents):
    model = build("bert")
    list(ModelRows(model, None, documents("bert")).blocks())
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    again = torch.load(buffer, weights_only=False)
    ids = torch.as_tensor(documents("bert")[0])[None]
    assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)
    assert not any(len(getattr(m, hooks)) for m in model.modules() for hooks in HOOKS)


def test_a_config_that_asks_for_attentions_makes_the_model_install_no_hooks(build, documents):
    model = build("gpt2", "eager")
    model.config.output_attentions = True
    before = _state(model)
    list(ModelRows(model, None, documents("gpt2")).blocks())
    _assert_same(before, _state(model))


def test_the_capture_runs_inside_another_capture(build, documents):
    model = build("gpt2")
    before, heard = _state(model), []
    with listening(model, heard.append):
        blocks = list(ModelRows(model, None, documents("gpt2")).blocks())
        assert loaded_implementations(model) != ("sdpa",)
    assert len(blocks) == 3 and len(heard) >= 3
    _assert_same(before, _state(model))


def test_sub_configs_are_switched_and_restored_too(documents):
    from transformers import CLIPConfig, CLIPModel

    text = {
        "vocab_size": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    vision = {
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "image_size": 16,
        "patch_size": 8,
    }
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision)).eval()
    model.vision_model.config._attn_implementation_internal = "eager"
    before, heard = _state(model), []
    with listening(model, lambda call: heard.append(call.implementation)):
        model(input_ids=torch.tensor([[1, 4, 2]]), pixel_values=torch.zeros(1, 3, 16, 16))
    assert sorted(heard) == ["eager"] * 3 + ["sdpa"] * 2
    _assert_same(before, _state(model))


def test_a_config_below_a_modules_config_is_switched_too(build, documents):
    from transformers import GPT2Config

    model, inside = build("gpt2"), []
    below = GPT2Config()
    below._attn_implementation_internal = "sdpa"
    model.config.below = below  # what a module reads as self.config.below
    with listening(model, lambda call: inside.append(below._attn_implementation)):
        model(torch.as_tensor(documents("gpt2")[0])[None])
    assert all(name.startswith("sinkwise_") for name in inside)
    assert below._attn_implementation == "sdpa"


def test_G4_nothing_keeps_a_graph_and_memory_is_flat_over_a_hundred_captures(build, documents):
    model, inputs = build("gpt2").train(), documents("gpt2")
    model.requires_grad_(True)

    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    def capture():
        for block in ModelRows(model, None, inputs).blocks():
            assert isinstance(block.log_weights, np.ndarray)

    capture()
    before = tensors()
    tables = len(ALL_ATTENTION_FUNCTIONS), len(ALL_MASK_ATTENTION_FUNCTIONS)
    for _ in range(100):
        capture()
    assert tensors() == before
    assert (len(ALL_ATTENTION_FUNCTIONS), len(ALL_MASK_ATTENTION_FUNCTIONS)) == tables
    # and training goes on: the graph of a later step is the model's own
    model(torch.as_tensor(inputs[0])[None]).last_hidden_state.sum().backward()
    assert all(weight.grad is not None for weight in model.h.parameters())


def test_the_language_head_is_not_run(documents):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=64)).eval()
    ran = []
    handle = model.lm_head.register_forward_hook(lambda *_: ran.append(1))
    assert len(list(ModelRows(model, None, documents("gpt2")).blocks())) == 3
    handle.remove()
    assert not ran
