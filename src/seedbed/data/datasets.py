"""Tokenized corpora by split, the tokenizer of a corpus, and the digest of a dataset.

    tokenizer = load_tokenizer("shakespeare", "characters")

How a corpus is split is decided by the tasks that use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from seedbed.data.bpe import ByteLevelBPETokenizer
from seedbed.data.catalogue import CATALOGUE, CorpusPart
from seedbed.data.corpora import load_gpt1_tokenizer, open_corpus
from seedbed.data.documents import Corpus
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, TokenIds, Tokenizer
from seedbed.data.windows import Spans
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import UsageError

TokenizerKind = Literal["characters", "words", "bytes", "bpe"]
Ints = NDArray[np.int64]
SPLIT_SEED = 0  # of the permutation of documents and labelled texts


@dataclass(frozen=True)
class TextSplit:
    """One split of a corpus: the flat array of token ids, and the spans of it that belong to this split."""

    ids: TokenIds
    spans: Spans

    def span_ids(self) -> list[TokenIds]:
        """Returns the ids of each span."""
        ends = self.spans.starts + self.spans.lengths
        return [self.ids[start:end] for start, end in zip(self.spans.starts, ends, strict=True)]


@dataclass(frozen=True)
class TextDataset:
    """A tokenized corpus by split: `train`, `val`, `test`, and `test[NAME]` for its named test sets."""

    tokenizer: Tokenizer
    splits: Mapping[str, TextSplit]


@dataclass(frozen=True)
class LabelledSplit:
    """Samples padded or truncated to one length, with their label ids."""

    rows: Ints  # (N, T)
    lengths: Ints  # (N,) tokens that are not padding
    labels: Ints  # (N,)


@dataclass(frozen=True)
class LabelledDataset:
    """Tokenized labelled texts by split: `train`, `val`, `test`."""

    tokenizer: Tokenizer
    label_names: tuple[str, ...]  # by label id
    splits: Mapping[str, LabelledSplit]


@cache
def load_tokenizer(corpus: str, kind: TokenizerKind, vocab_size: int | None = None) -> Tokenizer:
    """Returns a tokenizer built on the whole corpus except its named test sets, as in report B."""
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "bpe" and vocab_size is None:
        return load_gpt1_tokenizer()
    corpora = list(_open_training_corpora(corpus))
    if kind == "bpe":
        assert vocab_size is not None
        return ByteLevelBPETokenizer.train(*corpora, vocab_size=vocab_size)
    return CharTokenizer.from_corpora(*corpora) if kind == "characters" else WordTokenizer.from_corpora(*corpora)


def _open_training_corpora(corpus: str) -> Iterator[Corpus]:
    if corpus not in CATALOGUE:
        yield open_corpus(corpus)
    for part in CATALOGUE[corpus].parts if corpus in CATALOGUE else ():
        if part.kind == "ids":
            raise UsageError(f"task.corpus = {corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe")
        if is_training_part(part):
            yield open_corpus(corpus, part.name)


def is_training_part(part: CorpusPart) -> bool:
    """Whether a part of a corpus is the text to train on."""
    return part.name == "train" or part.name.endswith("/train")


def data_digest(version: str, tokenizer_digest: str, arrays: Iterable[NDArray[Any]]) -> str:
    """Returns the generator's version and a hash of the tokenizer and all arrays."""
    hasher = blake2b(tokenizer_digest.encode(), digest_size=16)
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return f"{version}/{hasher.hexdigest()}"
