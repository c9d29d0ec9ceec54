"""Tokenized corpora by split, the tokenizer of a corpus, and the digest of a dataset.

    tokenizer = load_tokenizer(CorpusSource("shakespeare"), "characters")

How a corpus is split is decided by the tasks that use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbed.data.bpe import MAX_BPE_VOCABULARY, MIN_BPE_VOCABULARY, ByteLevelBPETokenizer, suitable_vocab_size
from seedbed.data.catalogue import CATALOGUE, CorpusPart
from seedbed.data.corpora import load_gpt1_tokenizer, open_corpus, open_labelled_texts, resolve_user_path
from seedbed.data.documents import Corpus, Document, iter_bytes
from seedbed.data.labelled_texts import NO_COLUMNS
from seedbed.data.own_corpora import part_names
from seedbed.data.table_files import Columns
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, TokenIds, Tokenizer
from seedbed.data.windows import Spans
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import UsageError

TokenizerKind = Literal["characters", "words", "bytes", "bpe"]
VocabularySize = Annotated[int, Field(ge=MIN_BPE_VOCABULARY, le=MAX_BPE_VOCABULARY)] | Literal["auto", "gpt1"]
Ints = NDArray[np.int64]
SPLIT_SEED = 0  # of the permutation of documents and labelled texts


@dataclass(frozen=True)
class CorpusSource:
    """Which texts a task reads: a named corpus or a path, and the columns of a table."""

    name: str
    columns: Columns = NO_COLUMNS
    is_labelled: bool = False


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
    texts: tuple[str, ...] = ()  # (N,) as they were before they were tokenized


@dataclass(frozen=True)
class LabelledDataset:
    """Tokenized labelled texts by split: `train`, `val`, `test`."""

    tokenizer: Tokenizer
    label_names: tuple[str, ...]  # by label id
    splits: Mapping[str, LabelledSplit]


@cache
def load_tokenizer(source: CorpusSource, kind: TokenizerKind, vocabulary: VocabularySize = "auto") -> Tokenizer:
    """Returns a tokenizer built on the whole corpus except its named test sets, as in report B."""
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "bpe" and vocabulary == "gpt1":
        return load_gpt1_tokenizer()
    corpora = list(_open_training_corpora(source))
    if kind == "bpe":
        n_bytes = sum(len(chunk) for one in corpora for document in one.documents for chunk in iter_bytes(document))
        size = vocabulary if isinstance(vocabulary, int) else suitable_vocab_size(n_bytes)
        return ByteLevelBPETokenizer.train(*corpora, vocab_size=size)
    if kind == "words":
        return WordTokenizer.from_corpora(*corpora)
    # Characters that occur only in a user's own validation or test set cannot be unknown: there is no such token.
    return CharTokenizer.from_corpora(*corpora, *_open_held_out_corpora(source))


def _open_training_corpora(source: CorpusSource) -> Iterator[Corpus]:
    if source.name not in CATALOGUE:
        yield _open_own_part(source, "train")
    for part in CATALOGUE[source.name].parts if source.name in CATALOGUE else ():
        if part.kind == "ids":
            raise stored_ids_error(source.name)
        if is_training_part(part):
            yield open_corpus(source.name, part.name)


def _open_held_out_corpora(source: CorpusSource) -> Iterator[Corpus]:
    if source.name not in CATALOGUE:
        for part in own_parts(source.name):
            if part != "train":
                yield _open_own_part(source, part)


def _open_own_part(source: CorpusSource, part: str) -> Corpus:
    """The texts of a user's own corpus; a labelled file without a header is taken whole, its labels included."""
    if source.is_labelled:
        samples = open_labelled_texts(source.name, part, columns=source.columns)
        if samples.has_header:
            documents = zip(samples.line_numbers, samples.texts, strict=True)
            return Corpus(samples.name, tuple(Document(f"{samples.name}:{n}", None, t.encode()) for n, t in documents))
        return open_corpus(source.name, part)
    return open_corpus(source.name, part, columns=source.columns)


def own_parts(name: str) -> tuple[str, ...]:
    """The parts of a user's own corpus: train, and validation and test where it has them."""
    return part_names(resolve_user_path(name, Path()))


def stored_ids_error(corpus: str) -> UsageError:
    """The error of another tokenizer than GPT-1's on a corpus that is stored as GPT-1's ids."""
    return UsageError(
        f"task.corpus = {corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe and task.vocabulary = gpt1"
    )


def is_training_part(part: CorpusPart) -> bool:
    """Whether a part of a corpus is the text to train on."""
    return part.name == "train" or part.name.endswith("/train")


def data_digest(version: str, tokenizer_digest: str, arrays: Iterable[NDArray[Any]]) -> str:
    """Returns the generator's version and a hash of the tokenizer and all arrays."""
    hasher = blake2b(tokenizer_digest.encode(), digest_size=16)
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return f"{version}/{hasher.hexdigest()}"
