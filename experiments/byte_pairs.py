"""A small byte-pair tokenizer that can write any text and puts its beginning token first."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

__all__ = ["BOS", "token_stream", "train_tokenizer"]

BOS, PAD = "<s>", "<pad>"


def train_tokenizer(
    texts: Iterable[str], *, vocabulary: int = 512, beginning: bool = True, max_length: int = 256
) -> PreTrainedTokenizerFast:
    """Train byte-pair merges on `texts`.

    Parameters
    ----------
    vocabulary
        Tokens in all: 256 bytes, two special tokens, the rest merges.
    beginning
        Whether each text is given a beginning token.
    max_length
        Longest input that the model takes, beginning token included.

    Returns
    -------
    PreTrainedTokenizerFast
        Every byte has a token, so no text is unknown and decoding gives it back.

    Examples
    --------
    >>> tokenizer = train_tokenizer(["to be or not to be"], vocabulary=262)
    >>> tokenizer.convert_ids_to_tokens(tokenizer("to be")["input_ids"])
    ['<s>', 'to', 'Ġbe']
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if beginning:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A",
            pair=f"{BOS} $A {BOS} $B",
            special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
        )
    special = {"pad_token": PAD} | ({"bos_token": BOS} if beginning else {})
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        **special,
    )


def token_stream(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> list[int]:
    """Return the tokens of all texts in a row, uncut and without special tokens.

    Examples
    --------
    >>> tokenizer = train_tokenizer(["to be or not to be"], vocabulary=262, max_length=2)
    >>> tokenizer.convert_ids_to_tokens(token_stream(tokenizer, ["to be", "be"]))
    ['to', 'Ġbe', 'be']
    """
    encode = tokenizer.backend_tokenizer.encode
    return [token for text in texts for token in encode(text, add_special_tokens=False).ids]
