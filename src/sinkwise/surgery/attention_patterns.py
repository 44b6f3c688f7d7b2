"""Attention patterns of some heads of one call, float32: whole, or parted into sink and content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sinkwise.capture.faithful import cause_of_non_finite, working_dtype
from sinkwise.capture.interface import AttentionCall
from sinkwise.capture.logits import learned_sink, visibility, write_logits
from sinkwise.errors import CaptureError

if TYPE_CHECKING:
    import torch

__all__ = ["Scores", "only_heads", "own_pattern", "scores_of", "split_pattern", "whole_pattern"]


@dataclass(frozen=True)
class Scores:
    """Logits of some heads on one document of a batch.

    Attributes
    ----------
    logits
        float32 ``(heads, queries, keys)``, ``-inf`` where a query doesn't see a key.
    learned
        float32 ``(heads,)``: the logit of a learned sink, a key that is no token; ``None`` for
        heads without one.
    """

    logits: torch.Tensor
    learned: torch.Tensor | None

    @property
    def visible(self) -> torch.Tensor:
        """Which keys are seen, bool ``(heads, queries, keys)``."""
        return self.logits > -float("inf")

    def head(self, number: int) -> Scores:
        """Return one head's, copied, so that the others' memory can go."""
        learned = None if self.learned is None else self.learned[number : number + 1]
        return Scores(self.logits[number : number + 1].clone(), learned)


def only_heads(call: AttentionCall, heads: Sequence[int]) -> AttentionCall:
    """Return the call as if it had been made by some of its query heads alone.

    Each head gets the key head of its group, so that the heads of the result are not grouped.
    """
    import torch

    index = torch.tensor(list(heads), device=call.query.device)
    n_heads = call.query.shape[1]
    groups = index // (n_heads // call.key.shape[1])
    options: dict[str, Any] = dict(call.options)
    bias = options.get("position_bias")
    if bias is not None:
        options["position_bias"] = bias[:, index] if bias.shape[1] == n_heads else bias
    sink = learned_sink(call)
    if sink is not None:
        options["s_aux"] = sink[index.cpu()]
    mask = call.mask
    if isinstance(mask, torch.Tensor) and mask.ndim == 4 and mask.shape[1] == n_heads:
        mask = mask[:, index]
    return replace(
        call,
        query=call.query[:, index],
        key=call.key[:, groups],
        value=call.value[:, groups],
        mask=mask,
        options=options,
        output=call.output[:, :, index],
    )


def scores_of(call: AttentionCall, item: int) -> Scores:
    """Return the logits of a call on batch element `item`, padding and all.

    ``heads * queries * keys`` numbers on the call's device.

    Raises
    ------
    CaptureError
        If a visible logit isn't finite.
    """
    import torch

    n_heads, n_queries, n_keys = call.query.shape[1], call.query.shape[2], call.key.shape[2]
    queries = torch.arange(n_queries, device=call.query.device)
    seen = visibility(call, item, queries, 0, n_keys)
    logits = torch.empty((n_heads, n_queries, n_keys), device=call.query.device)
    write_logits(call, item, queries, 0, n_keys, seen, logits)
    visible = seen.visible.to(logits.device).expand_as(logits)
    if not bool(torch.isfinite(logits).logical_or_(~visible).all()):
        raise CaptureError(
            f"{type(call.module).__name__} has a logit that isn't finite: "
            f"{cause_of_non_finite(call.module, working_dtype(call))}"
        )
    sink = learned_sink(call)
    learned = None if sink is None else sink.to(logits.device)
    return Scores(logits.masked_fill_(~visible, -torch.inf), learned)


def own_pattern(own: Scores) -> torch.Tensor:
    """Return attention weights ``(heads, queries, keys)``; rows that see no key are 0."""
    return _softmax(own.logits, own.learned)


def whole_pattern(own: Scores, donor: Scores) -> torch.Tensor:
    """Return the donor's weights over the keys that the borrower sees too, re-closed.

    A learned sink is part of the donor's row: its mass is borrowed with the rest.

    Raises
    ------
    CaptureError
        If on some row the donor sees none of the borrower's keys.
    """
    lent = _lent(own.logits, donor.logits)
    return _softmax(lent, donor.learned)


def split_pattern(own: Scores, donor: Scores, sink: torch.Tensor) -> torch.Tensor:
    """Return the borrower's own weights on its sink, and the donor's content pattern for the rest.

    Parameters
    ----------
    own, donor
        Scores of one head each, over the same queries and keys.
    sink
        bool ``(keys,)``; a learned sink of the borrower is part of its sink as well.

    Returns
    -------
    torch.Tensor
        ``(1, queries, keys)``: the borrower's weights at the sink keys; elsewhere the donor's
        weights over the content keys that both see, closed to 1, times the borrower's own mass on
        content.  Rows that see no content keep what they have.

    Raises
    ------
    CaptureError
        If on some row the donor sees none of the borrower's content keys.
    """
    weights = own_pattern(own)
    content = weights.masked_fill(sink, 0.0)
    hidden = -float("inf")
    lent = _lent(own.logits.masked_fill(sink, hidden), donor.logits.masked_fill(sink, hidden))
    return weights - content + content.sum(-1, keepdim=True) * _softmax(lent, None)


def _lent(own: torch.Tensor, donor: torch.Tensor) -> torch.Tensor:
    """The donor's logits where the borrower sees the key too."""
    hidden = -float("inf")
    shared = donor.masked_fill(own == hidden, hidden)
    empty = (shared == hidden).all(-1) & (own > hidden).any(-1)
    if bool(empty.any()):
        query = int(empty.nonzero()[0, -1])
        raise CaptureError(
            f"at query {query} the donor sees none of the keys that the borrower attends to, so "
            "there is no pattern to borrow: exchange heads whose layers see the same keys"
        )
    return shared


def _softmax(logits: torch.Tensor, learned: torch.Tensor | None) -> torch.Tensor:
    """Softmax over keys, with a learned sink in the sum; rows of ``-inf`` alone become 0."""
    import torch

    n_keys = logits.shape[-1]
    if learned is not None:
        column = learned.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
        logits = torch.cat([logits, column], -1)
    weights = torch.softmax(logits, -1)[..., :n_keys]
    return weights.masked_fill((logits == -torch.inf).all(-1, keepdim=True), 0.0)
