"""What a model loses while its heads are off or exchanged, document by document, beside the dense.

Perplexity for language models, 1 - cosine of the states for bare encoders and vision models, and
the divergence from the dense model's labels for classifiers and masked language models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinkwise.capture.documents import TextDocuments, open_documents
from sinkwise.capture.faithful import cause_of_non_finite
from sinkwise.capture.forward import evaluating, model_inputs, whole_document
from sinkwise.capture.interface import require_transformers_model
from sinkwise.capture.memory import default_budget
from sinkwise.errors import MemoryBudgetError, RowError
from sinkwise.surgery.objective import Objective, objective_of, readout

if TYPE_CHECKING:
    import torch

__all__ = ["METRIC_OF", "DocumentResult", "Evaluation"]

METRIC_OF: dict[str, str] = {"next_token": "perplexity", "labels": "kl", "states": "cosine"}
"""The metric of each objective, as ``prune.json`` names it."""


@dataclass(frozen=True)
class DocumentResult:
    """One document under the model as it is.

    Attributes
    ----------
    tokens
        Predicted tokens (a text's first has none), labels, or states.
    loss
        Summed cross-entropy of the text's own tokens, nats; language models only.
    damage
        Mean over tokens of 1 - cosine to the dense state, or of the divergence
        ``KL(dense || now)`` in nats; ``None`` for language models.
    agreement
        Tokens whose most likely label is the dense model's; ``None`` for states.
    """

    tokens: int
    loss: float | None
    damage: float | None
    agreement: int | None

    def record(self) -> dict[str, Any]:
        """Return it as JSON keeps it."""
        values = {"loss": self.loss, "damage": self.damage, "tokens": self.tokens}
        return {name: value for name, value in values.items() if value is not None}


class Evaluation:
    """Held-out documents under the dense model, and under whatever is made of it.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``.
    processor
        Its tokenizer or image processor; ``None`` for token ids or pixel arrays.
    inputs
        Held-out texts or images.
    max_length
        Cut texts to so many tokens; each is one window, with the tokenizer's own special tokens
        and no other.
    documents
        Use the first N of `inputs`.

    Raises
    ------
    RowError
        If no document is usable, or the dense model's loss isn't finite.
    MemoryBudgetError
        If the dense model's labels don't fit the memory.

    Notes
    -----
    One forward pass a document, alone in its batch: no padding, and no result hangs on a batch.

    Examples
    --------
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from sinkwise import switch_off
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11))
    >>> held_out = Evaluation(model, None, [[1, 2, 3, 4, 5], [5, 4, 3, 2]])
    >>> [result.tokens for result in held_out.dense]
    [4, 3]
    >>> with switch_off(model, [(0, 1)]):
    ...     without = held_out.measure()
    >>> [result.loss != dense.loss for result, dense in zip(without, held_out.dense)]
    [True, True]
    """

    def __init__(
        self,
        model: torch.nn.Module,
        processor: Any,
        inputs: Sequence[Any],
        *,
        max_length: int | None = None,
        documents: int | None = None,
    ) -> None:
        require_transformers_model(model)
        self._model = model
        self.objective: Objective = objective_of(model)
        self._documents = open_documents(
            model, processor, inputs, max_length=max_length, documents=documents
        )
        self._references: list[Any] = []
        results = []
        for number in range(len(self._documents)):
            output, ids = self._run(number)
            self._references.append(self._reference(output, number))
            results.append(self._result(output, ids, self._references[-1]))
        self.dense: tuple[DocumentResult, ...] = tuple(results)
        _require_finite(self.dense, model)

    @property
    def metric(self) -> str:
        """``"perplexity"``, ``"kl"`` or ``"cosine"``."""
        return METRIC_OF[self.objective]

    def measure(self) -> tuple[DocumentResult, ...]:
        """Return every document's result under the model as it is now."""
        return tuple(
            self._result(*self._run(number), self._references[number])
            for number in range(len(self._documents))
        )

    def card(self) -> dict[str, Any]:
        """Return the protocol: documents, window, stride and beginning token."""
        found = self._documents.card()
        texts = isinstance(self._documents, TextDocuments)
        return {
            "metric": self.metric,
            "documents": len(self._documents),
            "tokens": sum(result.tokens for result in self.dense),
            "lengths": found["lengths"],
            "window": found["max_length"],
            "stride": None,
            "windows_per_document": 1,
            "bos": found["begins_with"] in ("bos", "cls") if texts else None,
            "begins_with": found["begins_with"],
            "truncated": found["truncated"],
            "skipped_documents": found["skipped_documents"],
            "dtype": str(self._model.dtype).removeprefix("torch."),
        }

    def _run(self, number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        import torch

        with torch.no_grad(), evaluating(self._model):
            inputs = model_inputs(self._model, whole_document(self._documents, number))
            return readout(self.objective, self._model(**inputs))[0], inputs.get("input_ids")

    def _reference(self, output: torch.Tensor, number: int) -> torch.Tensor:
        """What later results of the document are held against."""
        import torch

        if self.objective == "next_token":
            return output[:-1].argmax(-1)
        if number == 0:
            need, budget = output.numel() * 4 * len(self._documents), default_budget()
            if budget is not None and need > budget:
                raise MemoryBudgetError(
                    f"the dense model's output on {len(self._documents)} documents takes about "
                    f"{need:,} bytes, the budget is {budget:,}: evaluate on fewer or shorter ones"
                )
        if self.objective == "labels":
            return torch.log_softmax(output, dim=-1)
        return torch.nn.functional.normalize(output, dim=-1)

    def _result(
        self, output: torch.Tensor, ids: torch.Tensor | None, reference: torch.Tensor
    ) -> DocumentResult:
        import torch

        if self.objective == "next_token":
            assert ids is not None
            losses = torch.nn.functional.cross_entropy(output[:-1], ids[0, 1:], reduction="none")
            same = int((output[:-1].argmax(-1) == reference).sum())
            return DocumentResult(len(losses), float(losses.double().sum()), None, same)
        if self.objective == "labels":
            now = torch.log_softmax(output, dim=-1).double()
            dense = reference.double()
            divergence = (dense.exp() * (dense - now)).sum(-1)
            same = int((now.argmax(-1) == dense.argmax(-1)).sum())
            return DocumentResult(divergence.numel(), None, float(divergence.mean()), same)
        cosine = (torch.nn.functional.normalize(output, dim=-1) * reference).double().sum(-1)
        return DocumentResult(cosine.numel(), None, float((1 - cosine).mean()), None)


def _require_finite(results: Sequence[DocumentResult], model: torch.nn.Module) -> None:
    for number, result in enumerate(results):
        value = result.loss if result.loss is not None else result.damage
        if value is None or value != value or abs(value) == float("inf"):
            raise RowError(
                f"document {number} has a loss of {value} under the dense {type(model).__name__}: "
                "nothing can be held against it. Check that model and tokenizer belong together; "
                f"{cause_of_non_finite(model, model.dtype)}"
            )
