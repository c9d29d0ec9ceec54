"""What tasks on a corpus have in common: tokenizer, BPE vocabulary, columns, and samples of one length; no torch.

Also the kinds of tokens of running text that analyses tell apart: spaces, sentence starts and ends, and the word of
each token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seedbed.data.datasets import CorpusSource, TokenizerKind, VocabularySize, load_tokenizer
from seedbed.data.table_files import ColumnName, ColumnRole, Columns
from seedbed.data.tokenizers import PAD_ID, Tokenizer
from seedbed.settings import setting, when
from seedbed.tasks.base import Bools, Ints, Task

SENTENCE_END_CHARACTERS = frozenset(".!?")


def tokenizer_setting(default: TokenizerKind) -> Any:
    """The setting `tokenizer`."""
    return setting(default, "what a token is", former_names=("task.tokens",))


def vocabulary_setting() -> Any:
    """The setting `vocabulary`."""
    return setting(
        "auto",
        "BPE: how many tokens are trained on the corpus; auto: one for each 400 bytes of its text, from 300 to 32,000; "
        "gpt1: GPT-1's 40,478",
        born=None,
        former_values=((None, "gpt1"),),
        unit="tokens",
        active_when=when("task.tokenizer", "bpe"),
    )


def column_setting(role: ColumnRole) -> Any:
    """The setting `text_column` or `label_column`."""
    return setting(
        None,
        f"the column with the {role} in a table of your own (CSV, TSV, JSON Lines, Parquet): its name, or its number "
        "from 1 in a file without a header; unset: found by its name",
    )


class CorpusTask(Task):
    """A task on a named corpus or a file; its kinds declare these settings among their own."""

    has_corpus: ClassVar[bool] = True
    if TYPE_CHECKING:
        corpus: str
        tokenizer: TokenizerKind
        vocabulary: VocabularySize
        text_column: ColumnName
        length: int

    def corpus_source(self) -> CorpusSource:
        """Which texts are read."""
        return CorpusSource(self.corpus, Columns(text=self.text_column))

    def mean_sample_tokens(self) -> float:
        return float(self.length)

    def load_tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.corpus_source(), self.tokenizer, self.vocabulary)


# ---- kinds of tokens ----


def text_token_kinds(texts: tuple[str, ...], tokens: Ints, non_padding: Bools) -> dict[str, Bools]:
    """Masks of spaces, sentence starts and ends, and padding; only kinds that occur."""
    is_space = np.array([bool(text) and text.isspace() for text in texts])[tokens] & non_padding
    ends_sentence = [text.strip()[-1:] in SENTENCE_END_CHARACTERS and i != PAD_ID for i, text in enumerate(texts)]
    is_end = np.array(ends_sentence)[tokens] & non_padding
    kinds = {
        "spaces": is_space,
        "sentence starts": _first_tokens_after(is_end, is_space) & non_padding,
        "sentence ends": is_end,
        "padding": ~non_padding,
    }
    return {name: mask for name, mask in kinds.items() if mask.any()}


def word_index_per_token(texts: tuple[str, ...], tokens: Ints) -> Ints:
    """Index of each token's word in its row; white space belongs to the word before it."""
    has_leading_space = np.array([bool(text) and text[0].isspace() and bool(text.strip()) for text in texts])[tokens]
    ends_with_space = np.array([text[-1:].isspace() for text in texts])[tokens]
    starts_with_space = np.array([text[:1].isspace() for text in texts])[tokens]
    starts = has_leading_space.copy()
    starts[:, 1:] |= ends_with_space[:, :-1] & ~starts_with_space[:, 1:]
    return starts.cumsum(1)


def sentence_boundary_words(
    texts: tuple[str, ...], tokens: Ints, non_padding: Bools, words: Ints | None
) -> dict[str, Bools]:
    """Masks of all tokens of the first and last words of sentences; none if every token is a word."""
    if words is None:
        return {}
    kinds = text_token_kinds(texts, tokens, non_padding)
    pairs = {"first words": "sentence starts", "last words": "sentence ends"}
    in_same_word = words[:, :, None] == words[:, None, :]
    return {
        name: (in_same_word & kinds[kind][:, None, :]).any(-1) & non_padding
        for name, kind in pairs.items()
        if kind in kinds
    }


def _first_tokens_after(ends: Bools, spaces: Bools) -> Bools:
    """Mask of the first token after each sentence end that is neither a space nor an end itself."""
    firsts, is_pending = np.zeros_like(ends), np.zeros(len(ends), dtype=bool)
    for position in range(ends.shape[1]):
        firsts[:, position] = is_pending & ~spaces[:, position] & ~ends[:, position]
        is_pending = (is_pending | ends[:, position]) & ~firsts[:, position]
    return firsts
