"""Let heads attend with other heads' patterns for as long as a context lasts.

A borrowing head keeps its values and its output projection and takes its donor's attention
pattern: whole, or split, where it keeps its own sink mass and takes the content pattern alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from sinkwise.capture.faithful import too_far_off
from sinkwise.capture.interface import AttentionCall, listening
from sinkwise.capture.queries import check_sink
from sinkwise.errors import CaptureError, InputTypeError, RowError
from sinkwise.rowdata import HeadId
from sinkwise.surgery.attention_order import AttentionOrder, Place, attention_order
from sinkwise.surgery.attention_patterns import (
    Scores,
    only_heads,
    own_pattern,
    scores_of,
    split_pattern,
    whole_pattern,
)
from sinkwise.surgery.output_projections import head_ids

if TYPE_CHECKING:
    import torch

__all__ = ["MODES", "Borrowers", "exchange_patterns", "exchanging"]

MODES = ("whole", "split")

Borrowers = Mapping[HeadId, HeadId] | Mapping[tuple[int, int], tuple[int, int]]
"""From each borrowing head to its donor."""


@contextmanager
def exchange_patterns(
    model: torch.nn.Module,
    borrowers: Borrowers,
    *,
    mode: Literal["whole", "split"] = "whole",
    sink: str | int | Sequence[int] = "first",
) -> Iterator[torch.nn.Module]:
    """Let heads attend with other heads' patterns inside the context.

    Works under the attention implementation the model was loaded with: only the borrowing heads'
    outputs are replaced, all others keep what their kernel gave, bit for bit.  Inside, the model
    is in evaluation mode and gradients are off; afterwards it is as it was found.

    Parameters
    ----------
    model
        A ``transformers.PreTrainedModel``: decoder, encoder or vision model.
    borrowers
        From each borrowing head to its donor, as ``HeadId`` or ``(layer, index)``; query heads
        under grouped-query attention.  A donor runs no later than its borrower.  It lends the
        pattern of its own logits in the running model, whether it borrows itself or not.
    mode
        ``"whole"``: the borrower attends with the donor's row.  ``"split"``: it keeps its own
        weights on the sink, and spreads the rest of its mass as the donor does, over content
        re-closed.
    sink
        For ``"split"``: ``"first"`` (the first real token), a position or several, counted in
        each document's real tokens.  A learned sink logit belongs to the sink as well; in a whole
        row it is borrowed with the rest.

    Yields
    ------
    torch.nn.Module
        `model` itself.

    Raises
    ------
    RowError
        If there is no such head, none at all, or an option is wrong; inside, if a document has
        no token at the sink's position.
    CaptureError
        If a donor would run after its borrower; inside, if donor and borrower attend over
        different numbers of queries or keys, if the logits don't give the attention's own output,
        or a row's donor sees none of the borrower's keys; and on leaving, if a borrower's layer
        was never run.

    Notes
    -----
    Patterns are read as float32 logits (masks, soft-cap, position bias, learned sinks, grouped
    key heads, padding on either side).  Where the donor sees keys that its borrower doesn't, a
    full layer beside a sliding window, its row is restricted to the borrower's keys and
    re-closed; keys that the donor doesn't see get no weight.  Attention weights that the model
    returns (``output_attentions``) stay its own.  Whole sequences only: pass
    ``use_cache=False`` to ``generate()``.

    Each donor and borrower costs one map of ``queries * keys`` float32 numbers a document; a
    donor's is kept until its last borrower has run.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2Model
    >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=11)).eval()
    >>> ids = torch.tensor([[1, 2, 3]])
    >>> dense = model(ids).last_hidden_state
    >>> with exchange_patterns(model, {(1, 0): (0, 1)}, mode="split"):
    ...     other = model(ids).last_hidden_state
    >>> with exchange_patterns(model, {(1, 0): (1, 0)}):
    ...     same = model(ids).last_hidden_state
    >>> bool((other - dense).abs().max() > 1e-6), bool((same - dense).abs().max() < 1e-5)
    (True, True)
    """
    with exchanging(model, attention_order(model), borrowers, mode=mode, sink=sink):
        yield model


@contextmanager
def exchanging(
    model: torch.nn.Module,
    order: AttentionOrder,
    borrowers: Borrowers,
    *,
    mode: str = "whole",
    sink: str | int | Sequence[int] = "first",
) -> Iterator[None]:
    """Do what :func:`exchange_patterns` does where the order of the calls is known already."""
    if mode not in MODES:
        raise RowError(f'mode={mode!r} arrived, expected "whole" or "split"')
    if sink == "found":
        raise RowError(
            'sink="found" is another set of keys in every document, known only after all heads '
            'have run: name positions instead, such as sink="first" or sink=(0, 4)'
        )
    exchange = _Exchange(order, _places(order, borrowers), mode, check_sink(sink))
    with listening(model, exchange):
        yield
        exchange.require_applied()


def _places(order: AttentionOrder, borrowers: Mapping[Any, Any]) -> dict[Place, Place]:
    """The exchange by places in the order of the calls, checked."""
    if not isinstance(borrowers, Mapping):
        raise InputTypeError(
            f"borrowers of class {type(borrowers).__name__} arrived, expected a mapping from "
            "borrowing heads to donors, such as {(5, 1): (3, 2)}"
        )
    if not borrowers:
        raise RowError("no head arrived that borrows: name one, such as {(5, 1): (3, 2)}")
    found: dict[Place, Place] = {}
    for first, second in borrowers.items():
        (borrower,), (donor,) = head_ids([first]), head_ids([second])
        place, lender = order.place(borrower), order.place(donor)
        if lender[0] > place[0]:
            raise CaptureError(
                f"{borrower.label} can't borrow from {donor.label}, whose pattern isn't there yet "
                f"when {borrower.label} attends: let {donor.label} borrow from {borrower.label}"
            )
        found[place] = lender
    return found


class _Exchange:
    """Listener that keeps what donors lend and puts the borrowers' outputs in place."""

    def __init__(
        self,
        order: AttentionOrder,
        lender_of: Mapping[Place, Place],
        mode: str,
        sink: tuple[int, ...],
    ) -> None:
        self._order = order
        self._lender_of = lender_of
        self._mode = mode
        self._sink = sink
        self._last_use = {
            lender: max(b[0] for b, other in lender_of.items() if other == lender)
            for lender in lender_of.values()
        }
        self._lent: dict[tuple[Place, int], Scores] = {}
        self._previous = -1
        self._applied: set[int] = set()

    def __call__(self, call: AttentionCall) -> torch.Tensor | None:
        number = self._call_number(call)
        if number is None:
            return None
        borrowing = sorted(head for at, head in self._lender_of if at == number)
        lending = [p for p in self._last_use if p[0] == number]
        heads = sorted({*borrowing, *(head for _, head in lending)})
        if not heads:
            return None
        self._require_same_heads(call, number)
        narrowed = only_heads(call, heads)
        output = call.output.clone() if borrowing else None
        for item in range(call.query.shape[0]):
            scores = scores_of(narrowed, item)
            for place in lending:
                self._lent[place, item] = scores.head(heads.index(place[1]))
            for head in borrowing:
                own = scores.head(heads.index(head))
                only = only_heads(narrowed, [heads.index(head)])
                self._write(only, (number, head), item, own, output)
        self._lent = {key: s for key, s in self._lent.items() if self._last_use[key[0]] > number}
        if borrowing:
            self._applied.add(number)
        return output

    def require_applied(self) -> None:
        """Raise if a layer that borrows was never run."""
        missing = [place for place in self._lender_of if place[0] not in self._applied]
        if missing:
            names = ", ".join(self._name(place) for place in missing[:4])
            raise CaptureError(
                f"{names} never borrowed a pattern: no layer of theirs was run inside the "
                "context. Run the model that was given inside it, and the model as it was before "
                "torch.compile"
            )

    def _write(
        self, call: AttentionCall, place: Place, item: int, own: Scores, output: Any
    ) -> None:
        """Put what one head gives with its donor's pattern in the place of its own output."""
        donor = self._lent.get((self._lender_of[place], item))
        if donor is None or donor.logits.shape != own.logits.shape:
            shape = None if donor is None else tuple(donor.logits.shape[1:])
            raise CaptureError(
                f"{self._name(place)} attends over {tuple(own.logits.shape[1:])} queries and keys "
                f"and its donor {self._name(self._lender_of[place])} over {shape}: only rows over "
                "the same tokens can be exchanged"
            )
        value = call.value[item, 0].float()
        if place[0] not in self._applied and item == 0:
            self._refuse_unfaithful(call, place, own, value)
        if self._mode == "whole":
            pattern = whole_pattern(own, donor)
        else:
            pattern = split_pattern(own, donor, self._sink_keys(own))
        output[item, :, place[1]] = (pattern[0] @ value).to(output.dtype)

    def _sink_keys(self, own: Scores) -> torch.Tensor:
        """The sink's columns, bool ``(keys,)``, counted from the first token that is seen."""
        import torch

        real = own.visible[0].any(0)
        sink = torch.zeros_like(real)
        start = int(real.int().argmax())
        columns = [start + position for position in self._sink if start + position < len(real)]
        sink[columns] = True
        if not bool((sink & real).any()) and own.learned is None:
            raise RowError(
                f"a document of {int(real.sum())} tokens has none at the sink's positions "
                f'{self._sink}: pass longer documents, or sink="first"'
            )
        return sink

    def _refuse_unfaithful(
        self, call: AttentionCall, place: Place, own: Scores, value: torch.Tensor
    ) -> None:
        """Hold the head's own pattern against the output that the model really used."""
        sees = own.visible[0].any(-1)  # rows of padding see no key
        told = (own_pattern(own)[0] @ value)[sees]
        off = too_far_off(call, told, call.output[0, :, 0].float()[sees], value)
        if off:
            raise CaptureError(
                f"{self._name(place)} ({type(call.module).__name__}): its logits don't give the "
                f"attention's own output ({off}), so what it would borrow isn't all that forms its "
                "pattern"
            )

    def _call_number(self, call: AttentionCall) -> int | None:
        """Which call of the pass this is; a pass that begins drops what the last one lent."""
        number = self._order.number(call.module, self._previous)
        if number is None:
            return None
        if number <= self._previous:
            self._lent.clear()
        self._previous = number
        return number

    def _require_same_heads(self, call: AttentionCall, number: int) -> None:
        if call.query.shape[1] != self._order.n_heads[number]:
            raise CaptureError(
                f"layer {self._order.layers[number]} attends with {call.query.shape[1]} heads, it "
                f"had {self._order.n_heads[number]}: ask for the order of its calls again"
            )
        if call.query.shape[2] != call.key.shape[2]:
            raise CaptureError(
                f"layer {self._order.layers[number]} attends from {call.query.shape[2]} queries to "
                f"{call.key.shape[2]} keys: patterns are exchanged over whole sequences, so pass "
                "use_cache=False"
            )

    def _name(self, place: Place) -> str:
        return HeadId(self._order.layers[place[0]], place[1]).label
