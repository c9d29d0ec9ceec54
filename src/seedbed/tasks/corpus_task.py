"""What tasks on a corpus have in common: tokenizer, BPE vocabulary, columns, and samples of one length; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from seedbed.data.datasets import CorpusSource, TokenizerKind, VocabularySize, load_tokenizer
from seedbed.data.tables import ColumnName, ColumnRole, Columns
from seedbed.data.tokenizers import Tokenizer
from seedbed.settings import setting, when
from seedbed.tasks.base import Task


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
