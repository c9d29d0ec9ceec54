"""Tokenizers as vocabularies, which the store keeps with the runs that use them, and back.

>>> from seedbed.data.tokenizers import CharTokenizer
>>> vocabulary = tokenizer_to_vocabulary(CharTokenizer(("<pad>", "a", "b")))
>>> tokenizer_from_vocabulary(vocabulary).encode("ba").tolist()
[2, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seedbed.data.bpe import ByteLevelBPETokenizer, GPT1Tokenizer
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, Tokenizer
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import MissingData
from seedbed.records import Vocabulary

TOKENIZERS: dict[str, Callable[[Vocabulary], Tokenizer]] = {  # by `Tokenizer.kind`
    "characters": lambda vocabulary: CharTokenizer(vocabulary.tokens),
    "words": lambda vocabulary: WordTokenizer(vocabulary.tokens),
    "bytes": lambda _: ByteTokenizer(),
    "bpe": lambda vocabulary: ByteLevelBPETokenizer(vocabulary.tokens, vocabulary.merges),
    "gpt1-bpe": lambda vocabulary: GPT1Tokenizer(vocabulary.tokens, vocabulary.merges),
}


def tokenizer_to_vocabulary(tokenizer: Tokenizer, label_names: Sequence[str] = ()) -> Vocabulary | None:
    """Returns what restores a tokenizer without its corpus; None for a kind that is not in TOKENIZERS."""
    if tokenizer.kind not in TOKENIZERS:
        return None
    return Vocabulary(tokenizer.kind, tuple(tokenizer.texts), getattr(tokenizer, "merges", ()), tuple(label_names))


def tokenizer_from_vocabulary(vocabulary: Vocabulary) -> Tokenizer:
    """Returns the tokenizer that a vocabulary describes."""
    if vocabulary.tokenizer not in TOKENIZERS:
        raise MissingData(f"this version has no tokenizer {vocabulary.tokenizer!r}; it has {', '.join(TOKENIZERS)}")
    return TOKENIZERS[vocabulary.tokenizer](vocabulary)
