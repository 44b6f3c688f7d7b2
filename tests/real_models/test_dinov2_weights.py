"""The weights read from the ONNX file are DINOv2's: the graph they come from says the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dinov2 import backbone_graph, parameters_of

onnx = pytest.importorskip("onnx")


def test_every_parameter_stands_in_the_graph_once(dinov2, onnx_file):
    graph = onnx.load(onnx_file).graph
    weights = parameters_of(graph)
    backbone = [entry for entry in graph.initializer if not entry.name.startswith("decoder.")]
    # the position embeddings lie in two places
    assert len(weights) == len(backbone) - 1 == len(list(dinov2.parameters()))
    held = sum(parameter.numel() for parameter in dinov2.parameters())
    assert sum(int(np.prod(entry.dims)) for entry in backbone) == held
    assert dinov2.config.num_hidden_layers * dinov2.config.num_attention_heads == 72


def test_a_weight_that_cannot_be_placed_is_refused(onnx_file):
    graph = onnx.load(onnx_file).graph
    strayed = next(node for node in graph.node if node.op_type == "MatMul")
    strayed.op_type = "Gemm"
    with pytest.raises(ValueError, match="no parameter of the backbone"):
        parameters_of(graph)


def test_the_model_gives_what_the_graph_gives(dinov2, onnx_file, pictures):
    """The graph is run by ONNX's own reference in NumPy, one operation after the other.

    Swapping two square weights, or leaving one untransposed, moves the output by tenths.
    """
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(backbone_graph(onnx_file))
    (expected,) = evaluator.run(None, {"input_image": pictures[0][None]})
    with torch.no_grad():
        got = dinov2(torch.tensor(pictures[0][None])).last_hidden_state.numpy()
    # 12 layers of float32 in another order of sums, on values up to about 10
    np.testing.assert_allclose(got, expected, atol=2e-4)
