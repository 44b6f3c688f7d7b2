"""What heads write into the residual stream, and how a loss depends on it: merged over documents.

A head's write at token t is ``y_h(t) = W_O,h o_h(t) / |x(t)|``: its own part of the output
projection's result, over the norm of the residual stream it is added to.  Gradients are those of
a document's summed loss to a gate on the head, ``g_h(t) = <dL/do_h(t), o_h(t)>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from sinkwise.errors import RowError
from sinkwise.rowdata import HeadId

__all__ = ["GateGradients", "HeadOutputSums", "HeadOutputs"]


@dataclass(frozen=True)
class GateGradients:
    """Second and first moments of the gradients to gates on the heads.

    Attributes
    ----------
    token_fisher
        ``(H, H)``: mean over documents of ``sum_t g_h(t) g_k(t)``.
    document_fisher
        ``(H, H)``: mean over documents of ``(sum_t g_h(t)) (sum_t g_k(t))``.
    importance
        ``(H,)``: mean over documents of ``|sum_t g_h(t)|`` (Michel et al., 2019).
    """

    token_fisher: np.ndarray
    document_fisher: np.ndarray
    importance: np.ndarray


@dataclass(frozen=True)
class HeadOutputs:
    """Means over tokens and documents; heads layer-major, H of them.

    Attributes
    ----------
    heads
        The heads.
    gram
        ``(H, H)``: mean over tokens of ``<y_h, y_k>`` within a layer, 0 across layers.  The
        first token of a document is left out.
    constant_gram
        ``(H, H)``: ``<mean y_h, mean y_k>`` within a layer, the part of `gram` that a constant
        would give.
    relative_norm
        ``(H,)``: mean of ``|y_h|``.
    norm
        ``(H,)``: mean of ``|W_O,h o_h|``, in units of the residual stream.
    mean_output
        ``(H, D)``: mean of ``o_h``, the head's slice of the output projection's input; NaN beyond
        a head's own width where layers differ.
    gradients
        By label: ``"true"`` (the text's own next tokens; text models alone) and ``"sampled"``
        (drawn from the model's own prediction).  Empty where none were computed.
    leave_one_out
        ``(H,)`` rise of the loss with the head alone switched off, or ``None``.
    objective
        What the loss was.
    """

    heads: tuple[HeadId, ...]
    gram: np.ndarray
    constant_gram: np.ndarray
    relative_norm: np.ndarray
    norm: np.ndarray
    mean_output: np.ndarray
    gradients: Mapping[str, GateGradients] = field(default_factory=dict)
    leave_one_out: np.ndarray | None = None
    objective: str = ""


@dataclass(frozen=True)
class HeadOutputSums:
    """Sums behind :class:`HeadOutputs`; any split of the documents merges to the same.

    Attributes
    ----------
    heads
        The heads, layer-major.
    tokens, documents
        How many the sums hold; a document's first token isn't counted.
    gram
        ``(H, H)`` sum over tokens.
    writes
        By layer, ``(heads of the layer, d_model)`` sum over tokens of ``y_h``.
    relative_norm, norm
        ``(H,)`` sums over tokens.
    output
        ``(H, D)`` sum over tokens of ``o_h``; NaN beyond a head's width.
    gradients
        Sums over documents of what :class:`GateGradients` holds.
    """

    heads: tuple[HeadId, ...]
    tokens: int
    documents: int
    gram: np.ndarray
    writes: Mapping[int, np.ndarray]
    relative_norm: np.ndarray
    norm: np.ndarray
    output: np.ndarray
    gradients: Mapping[str, GateGradients] = field(default_factory=dict)

    def merge(self, other: HeadOutputSums) -> HeadOutputSums:
        """Return the sums over the documents of both.

        Raises
        ------
        RowError
            If they are of other heads or other gradients.
        """
        if self.heads != other.heads or self.gradients.keys() != other.gradients.keys():
            raise RowError(
                f"outputs of {len(self.heads)} heads with gradients {sorted(self.gradients)} can't "
                f"be merged with those of {len(other.heads)} heads with gradients "
                f"{sorted(other.gradients)}: calibrate both on one model in one way"
            )
        return replace(
            self,
            tokens=self.tokens + other.tokens,
            documents=self.documents + other.documents,
            gram=self.gram + other.gram,
            writes={layer: sums + other.writes[layer] for layer, sums in self.writes.items()},
            relative_norm=self.relative_norm + other.relative_norm,
            norm=self.norm + other.norm,
            output=self.output + other.output,
            gradients={
                label: _added(found, other.gradients[label])
                for label, found in self.gradients.items()
            },
        )

    def finish(self, *, objective: str) -> HeadOutputs:
        """Return the means.

        Raises
        ------
        RowError
            If no token was counted.
        """
        if not self.tokens:
            raise RowError(
                "no token was calibrated on: a document needs two tokens or more, the first one is "
                "left out"
            )
        constant = np.zeros_like(self.gram)
        layers = np.array([head.layer for head in self.heads])
        for layer, sums in self.writes.items():
            own = np.flatnonzero(layers == layer)
            mean = sums / self.tokens
            constant[np.ix_(own, own)] = mean @ mean.T
        return HeadOutputs(
            heads=self.heads,
            gram=self.gram / self.tokens,
            constant_gram=constant,
            relative_norm=self.relative_norm / self.tokens,
            norm=self.norm / self.tokens,
            mean_output=self.output / self.tokens,
            gradients={
                label: GateGradients(
                    sums.token_fisher / self.documents,
                    sums.document_fisher / self.documents,
                    sums.importance / self.documents,
                )
                for label, sums in self.gradients.items()
            },
            objective=objective,
        )


def _added(first: GateGradients, second: GateGradients) -> GateGradients:
    return GateGradients(
        first.token_fisher + second.token_fisher,
        first.document_fisher + second.document_fisher,
        first.importance + second.importance,
    )
