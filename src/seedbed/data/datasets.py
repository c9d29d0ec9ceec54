"""Tokenized corpora by split, the tokenizer of a corpus or of a stored vocabulary, and the digest of a dataset.

    tokenizer = load_tokenizer(CorpusSource("shakespeare"), "characters")
    encoded = encode_corpus(open_corpus("shakespeare"), tokenizer)   # documents of any size, in bounded memory

How a corpus is split is decided by the tasks that use it.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from seedbed.data.bpe import (
    MAX_BPE_VOCABULARY,
    MIN_BPE_VOCABULARY,
    ByteLevelBPETokenizer,
    GPT1Tokenizer,
    suitable_vocab_size,
)
from seedbed.data.catalogue import CATALOGUE, ensure_local_file, get_corpus_part
from seedbed.data.corpora import cache_until_edited, load_gpt1_tokenizer, open_corpus, open_labelled_texts, own_parts
from seedbed.data.documents import Corpus, Document, iter_bytes
from seedbed.data.table_files import NO_COLUMNS, Columns
from seedbed.data.tokenizers import PAD_ID, ByteTokenizer, CharTokenizer, TokenIds, Tokenizer, smallest_id_dtype
from seedbed.data.windows import Spans
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import MissingData, UsageError
from seedbed.records import Vocabulary

TokenizerKind = Literal["characters", "words", "bytes", "bpe"]
VocabularySize = Annotated[int, Field(ge=MIN_BPE_VOCABULARY, le=MAX_BPE_VOCABULARY)] | Literal["auto", "gpt1"]
Ints = NDArray[np.int64]
MAX_IN_MEMORY_BYTES = 1 << 28  # of ids; more go to an unnamed temporary file, which is memory-mapped
GPT1_VOCAB_SIZE = 40_479  # GPT-1's tokens plus padding
SPLIT_SEED = 0  # of the permutation of documents and labelled texts


@dataclass(frozen=True)
class CorpusSource:
    """Which texts a task reads: a named corpus or a path, and the columns of a table."""

    corpus: str
    columns: Columns = NO_COLUMNS
    is_labelled: bool = False


@dataclass(frozen=True)
class EncodedText:
    """A flat array of token ids, and the spans of it that count: the documents, or those of one split."""

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
    splits: Mapping[str, EncodedText]


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


# ---- tokenizers ----


@cache_until_edited
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
    if source.corpus not in CATALOGUE:
        yield _open_own_part(source, "train")
    for part in CATALOGUE[source.corpus].parts if source.corpus in CATALOGUE else ():
        if part.kind == "ids":
            raise stored_ids_error(source.corpus)
        if part.is_training:
            yield open_corpus(source.corpus, part.name)


def _open_held_out_corpora(source: CorpusSource) -> Iterator[Corpus]:
    if source.corpus not in CATALOGUE:
        for part in own_parts(source.corpus):
            if part != "train":
                yield _open_own_part(source, part)


def _open_own_part(source: CorpusSource, part: str) -> Corpus:
    """The texts of a user's own corpus; a labelled file without a header is taken whole, its labels included."""
    if source.is_labelled:
        samples = open_labelled_texts(source.corpus, part, columns=source.columns)
        if samples.has_header:
            documents = zip(samples.line_numbers, samples.texts, strict=True)
            return Corpus(samples.name, tuple(Document(f"{samples.name}:{n}", None, t.encode()) for n, t in documents))
        return open_corpus(source.corpus, part)
    return open_corpus(source.corpus, part, columns=source.columns)


def stored_ids_error(corpus: str) -> UsageError:
    """The error of another tokenizer than GPT-1's on a corpus that is stored as GPT-1's ids."""
    return UsageError(
        f"task.corpus = {corpus} is stored as GPT-1's ids; it needs task.tokenizer = bpe and task.vocabulary = gpt1"
    )


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


# ---- token ids ----


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer) -> EncodedText:
    """Encodes all documents in bounded memory: beyond MAX_IN_MEMORY_BYTES, ids go to a temporary file."""
    encoded = _GrowableArray(smallest_id_dtype(tokenizer.size))
    lengths = []
    for document in corpus.documents:
        before = encoded.n
        for ids in tokenizer.encode_document(document):
            encoded.append(ids)
        lengths.append(encoded.n - before)
    if encoded.n == 0:
        raise UsageError(f"{corpus.name} holds no tokens (empty, or only white space); a corpus needs some text")
    return EncodedText(encoded.to_array(), Spans.from_lengths(lengths))


class _GrowableArray:
    """An array that grows by chunks: in memory, and beyond MAX_IN_MEMORY_BYTES in an unnamed temporary file."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.n = dtype, 0
        self._chunks: list[TokenIds] = []
        self._file: Any = None

    def append(self, ids: TokenIds) -> None:
        self.n += len(ids)
        if self._file is None:
            self._chunks.append(ids.astype(self.dtype, copy=False))
            if self.n * self.dtype.itemsize > MAX_IN_MEMORY_BYTES:
                self._file = tempfile.TemporaryFile(prefix="seedbed-")  # noqa: SIM115
                for chunk in self._chunks:
                    self._file.write(chunk.tobytes())
                self._chunks = []
        else:
            self._file.write(ids.astype(self.dtype, copy=False).tobytes())

    def to_array(self) -> TokenIds:
        if self._file is not None:
            self._file.flush()
            return np.memmap(self._file, self.dtype, "r", shape=(self.n,))
        return np.concatenate(self._chunks) if self._chunks else np.zeros(0, self.dtype)


def open_token_ids(name: str, part: str) -> EncodedText:
    """Opens the stored token ids of a named corpus (WikiText-2); each line is a document."""
    corpus_part = get_corpus_part(name, part)
    if corpus_part.kind != "ids":
        raise UsageError(
            f"{name} {part} is {corpus_part.kind}, not stored ids; wikitext2 has train, validation and test"
        )
    return read_token_ids(ensure_local_file(CATALOGUE[name], corpus_part.files[0]), GPT1_VOCAB_SIZE)


def read_token_ids(path: Path, vocab_size: int) -> EncodedText:
    """Reads stored ids from an .npz with `tokens` (never 0, which is padding) and `sizes` (tokens per line)."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            ids, sizes = arrays["tokens"], arrays["sizes"].astype(np.int64)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise MissingData(f"{path} holds no stored ids ({error}); expected an .npz with tokens and sizes") from None
    if ids.ndim != 1 or ids.dtype.kind != "u" or sizes.sum() != len(ids):
        raise UsageError(f"{path}: tokens must be a 1-D array of unsigned ids, and sizes must add up to its length")
    if len(ids) and (ids.max() >= vocab_size or ids.min() == PAD_ID):
        i = int(np.argmax((ids >= vocab_size) | (ids == PAD_ID)))
        raise UsageError(f"{path}: id {ids[i]} at position {i:,} is not in the vocabulary (1 to {vocab_size - 1})")
    return EncodedText(ids, Spans.from_lengths(sizes))


def data_digest(version: str, tokenizer_digest: str, arrays: Iterable[NDArray[Any]]) -> str:
    """Returns the generator's version and a hash of the tokenizer and all arrays."""
    hasher = blake2b(tokenizer_digest.encode(), digest_size=16)
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return f"{version}/{hasher.hexdigest()}"
