"""Texts from a bigram table with copy triggers, and a one-layer model in which a sink forms.

After a trigger the token *before* it comes again, so the model needs attention there, and only
there; everywhere else its table is enough, and attention wants a place to go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

__all__ = [
    "BOS",
    "HELD_OUT",
    "LENGTH",
    "TRIGGERS",
    "VOCABULARY",
    "Bigrams",
    "is_trigger",
    "new_model",
    "tokenizer",
]

VOCABULARY, LENGTH = 64, 48
BOS = 0
TRIGGERS = range(1, 9)
"""Token ids after which the token before them is copied."""
HEADS, WIDTH, HIDDEN = 4, 128, 256
HELD_OUT = 1 << 32
"""Batches from this number on are for measuring: no training run gets so far."""


@dataclass(frozen=True)
class Bigrams:
    """A process over 64 tokens.

    Attributes
    ----------
    table
        float64 ``(64, 64)``: the chance of each next token after each token that is no trigger.
        No row leads to the beginning token.
    seed
        What table and texts are drawn from.
    """

    table: np.ndarray
    seed: int

    @classmethod
    def drawn(cls, seed: int, *, spread: float = 2.0) -> Bigrams:
        """Draw a table: the softmax of normal numbers of standard deviation `spread`."""
        logits = np.random.default_rng([seed, 0]).normal(0, spread, (VOCABULARY, VOCABULARY))
        weights = np.exp(logits)
        weights[:, BOS] = 0
        return cls(weights / weights.sum(1, keepdims=True), seed)

    def batch(self, number: int, size: int = 64) -> torch.Tensor:
        """Token ids ``(size, 48)``: the beginning token, a token that is no trigger, and so on."""
        rng = np.random.default_rng([self.seed, 1, number])
        ids = np.full((size, LENGTH), BOS)
        ids[:, 1] = rng.integers(TRIGGERS.stop, VOCABULARY, size)
        ladder = self.table.cumsum(1)
        for place in range(2, LENGTH):
            before, now = ids[:, place - 2], ids[:, place - 1]
            drawn = (ladder[now] < rng.random((size, 1))).sum(1).clip(max=VOCABULARY - 1)
            ids[:, place] = np.where(is_trigger(now), before, drawn)
        return torch.from_numpy(ids)

    def least_loss(self, ids: torch.Tensor) -> float:
        """Mean loss in nats of whoever knows the table and the triggers."""
        x = ids.numpy()
        chances = self.table[x[:, :-1], x[:, 1:]]
        chances[is_trigger(x[:, :-1])] = 1.0
        chances[:, 0] = 1 / (VOCABULARY - TRIGGERS.stop)
        return float(-np.log(chances).mean())

    def save_texts(self, file: Path, *, documents: int = 16) -> None:
        """Write documents that nothing is trained on, parted by blank lines, without BOS."""
        ids = self.batch(HELD_OUT, documents)
        lines = [" ".join(WORDS[i] for i in row[1:]) for row in ids.tolist()]
        file.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def is_trigger(ids: np.ndarray) -> np.ndarray:
    """Which ids are triggers."""
    return (ids >= TRIGGERS.start) & (ids < TRIGGERS.stop)


WORDS = [
    "<s>" if i == BOS else f"again{i}" if i in TRIGGERS else f"word{i}" for i in range(VOCABULARY)
]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: one token a word, the beginning token put first.

    Examples
    --------
    >>> tokenizer()("word9 again1 word9")["input_ids"]
    [0, 9, 1, 9]
    """
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", BOS)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words, model_max_length=LENGTH, bos_token="<s>", pad_token="<s>"
    )


def new_model(seed: int) -> GPT2LMHeadModel:
    """Return the untrained model: one layer, four heads, width 128, no dropout."""
    torch.manual_seed(seed)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=1,
            n_head=HEADS,
            n_inner=HIDDEN,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            tie_word_embeddings=False,
            bos_token_id=BOS,
            eos_token_id=BOS,
        )
    )
