"""What tasks on a corpus have in common: tokenizer, BPE vocabulary, and samples of one length; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from seedbed.data.datasets import TokenizerKind, load_tokenizer
from seedbed.data.tokenizers import Tokenizer
from seedbed.settings import setting, when
from seedbed.tasks.base import Task


def tokenizer_setting(default: TokenizerKind) -> Any:
    """The setting `tokenizer`."""
    return setting(default, "what a token is", former_names=("task.tokens",))


def vocabulary_setting() -> Any:
    """The setting `vocabulary`."""
    return setting(
        None,
        "tokens of a BPE trained on the corpus; unset: GPT-1's vocabulary",
        unit="tokens",
        active_when=when("task.tokenizer", "bpe"),
        ge=300,
        le=60_000,
    )


class CorpusTask(Task):
    """A task on a named corpus or a file; its kinds declare these settings among their own."""

    has_corpus: ClassVar[bool] = True
    if TYPE_CHECKING:
        corpus: str
        tokenizer: TokenizerKind
        vocabulary: int | None
        length: int

    def mean_sample_tokens(self) -> float:
        return float(self.length)

    def load_tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.corpus, self.tokenizer, self.vocabulary)
