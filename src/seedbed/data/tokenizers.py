"""Tokenizers: the protocol, and character and byte tokenizers; `word_tokenizer.py` and `bpe.py` have the others.

Every tokenizer reserves id 0 for padding, so that sequences of unequal length fit in one array. Ids are stable because
vocabularies are sorted or predefined. `encode_corpus` streams documents of any size into one array of ids.

>>> from seedbed.data.documents import corpus_from_text
>>> tokenizer = CharTokenizer.from_corpora(corpus_from_text("line", "to be"))
>>> tokenizer.size, tokenizer.encode("bet").tolist()
(6, [2, 3, 5])
>>> tokenizer.decode([5, 4, 0])
'to'
"""

from __future__ import annotations

import codecs
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.data.documents import Corpus, Document, iter_bytes, iter_text
from seedbed.errors import UsageError

TokenIds: TypeAlias = NDArray[np.unsignedinteger[Any]]  # in the smallest unsigned dtype that holds the vocabulary
Counts: TypeAlias = NDArray[np.int64]

PAD_ID, PAD_TOKEN = 0, "<pad>"
UNKNOWN_ID, UNKNOWN_TOKEN = 1, "<unk>"  # of the tokenizers that have one
N_CODEPOINTS = 0x110000
MAX_IN_MEMORY_BYTES = 1 << 28  # of ids; more go to an unnamed temporary file, which is memory-mapped


class StreamDecoder(Protocol):
    """Decodes ids incrementally; the bytes of an incomplete character are held back until the next ids."""

    def feed(self, ids: Iterable[int]) -> str: ...

    def flush(self) -> str: ...


class WordStreamDecoder:
    """Decodes word tokens incrementally, separated by single spaces."""

    def __init__(self, decode: Callable[[Iterable[int]], str]) -> None:
        self._decode, self._separator = decode, ""

    def feed(self, ids: Iterable[int]) -> str:
        text = self._decode(ids)
        if not text:
            return ""
        text, self._separator = self._separator + text, " "
        return text

    def flush(self) -> str:
        return ""


class Tokenizer(Protocol):
    """Converts text to ids and back: `texts[id]` is a token's text, `size` the vocabulary size with padding.

    `digest` identifies the vocabulary and its merge rules.
    """

    @property
    def kind(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def texts(self) -> tuple[str, ...]: ...

    @property
    def digest(self) -> str: ...

    @property
    def character_counts(self) -> Counts:
        """Characters per token, for bits per character."""
        ...

    @property
    def byte_counts(self) -> Counts:
        """UTF-8 bytes per token, for bits per byte."""
        ...

    def encode(self, text: str) -> TokenIds: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def decoder(self) -> StreamDecoder: ...

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        """Yields the ids of a document in chunks."""
        ...


def readable_texts(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The text of each token as a person reads it; `texts` of a BPE are the symbols that its merges are made of."""
    readable: tuple[str, ...] = getattr(tokenizer, "readable_texts", tokenizer.texts)
    return readable


@dataclass(frozen=True)
class EncodedCorpus:
    """The concatenated token ids of all documents of a corpus."""

    ids: TokenIds
    starts: Counts  # (documents,)
    lengths: Counts  # (documents,) in tokens


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer) -> EncodedCorpus:
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
    ends = np.cumsum(lengths, dtype=np.int64)
    return EncodedCorpus(encoded.to_array(), ends - np.array(lengths), np.array(lengths, dtype=np.int64))


def smallest_id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Returns the smallest unsigned dtype for this many ids."""
    return np.dtype(np.min_scalar_type(vocab_size - 1))


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


@dataclass(frozen=True)
class CharTokenizer:
    """One id per character: padding, then the sorted distinct characters."""

    texts: tuple[str, ...]
    kind: str = "characters"

    @classmethod
    def from_corpora(cls, *corpora: Corpus) -> CharTokenizer:
        """Builds the vocabulary of these corpora; other texts may only use its characters."""
        seen = np.zeros(N_CODEPOINTS, dtype=bool)
        for corpus in corpora:
            for document in corpus.documents:
                for text in iter_text(document):
                    seen[text_to_codepoints(text)] = True
        return cls((PAD_TOKEN, *map(chr, np.flatnonzero(seen))))

    @property
    def size(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        return compute_vocabulary_digest(self.kind, self.texts)

    @cached_property
    def character_counts(self) -> Counts:
        return np.array([0] + [1] * (self.size - 1), dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        return utf8_lengths(self.texts)

    @cached_property
    def _codepoint_to_id(self) -> TokenIds:
        """Maps codepoints to ids; PAD_ID marks an unknown character, since padding never occurs in a text."""
        table = np.zeros(N_CODEPOINTS, dtype=smallest_id_dtype(self.size))
        table[[ord(text) for text in self.texts[1:]]] = np.arange(1, self.size)
        return table

    def encode(self, text: str) -> TokenIds:
        ids = self._codepoint_to_id[text_to_codepoints(text)]
        if not ids.all():
            self._raise_unknown_character("the text", text, int(np.argmin(ids != 0)), line=1)
        return ids

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        line = 1
        for text in iter_text(document):
            ids = self._codepoint_to_id[text_to_codepoints(text)]
            if not ids.all():
                self._raise_unknown_character(document.name, text, int(np.argmin(ids != 0)), line)
            line += text.count("\n")
            yield ids

    def _raise_unknown_character(self, source: str, text: str, index: int, line: int) -> None:
        """Raises UsageError with the position of `text[index]`; `text` starts at this line of its source."""
        line += text.count("\n", 0, index)
        column = index - text.rfind("\n", 0, index)
        raise UsageError(
            f"{source}:{line}: {text[index]!a} (U+{ord(text[index]):04X}, column {column}) is not among the "
            f"{self.size - 1} characters of the vocabulary; remove it, or build the vocabulary on this text too"
        )

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.texts[i] for i in check_ids(ids, self.size) if i != PAD_ID)

    def decoder(self) -> StreamDecoder:
        return _CharStreamDecoder(self.decode)


@dataclass(frozen=True)
class ByteTokenizer:
    """One id per byte: padding, then byte 0 … 255; files need not be valid UTF-8."""

    kind: str = "bytes"

    @property
    def size(self) -> int:
        return 257

    @property
    def texts(self) -> tuple[str, ...]:
        return (PAD_TOKEN, *(chr(i) if 0x20 <= i < 0x7F else f"<{i:02x}>" for i in range(256)))

    @property
    def digest(self) -> str:
        return compute_vocabulary_digest(self.kind, self.texts)

    @property
    def character_counts(self) -> Counts:
        """1 for a character's first byte, 0 for UTF-8 continuation bytes."""
        is_continuation = [0x80 <= byte < 0xC0 for byte in range(256)]
        return np.array([0] + [0 if continues else 1 for continues in is_continuation], dtype=np.int64)

    @property
    def byte_counts(self) -> Counts:
        return np.array([0] + [1] * 256, dtype=np.int64)

    def encode(self, text: str) -> TokenIds:
        return _encode_bytes(text.encode("utf-8", "surrogatepass"))

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        return map(_encode_bytes, iter_bytes(document))

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text; invalid bytes become U+FFFD."""
        decoder = self.decoder()
        return decoder.feed(ids) + decoder.flush()

    def decoder(self) -> StreamDecoder:
        token_bytes = [b"", *(bytes([i]) for i in range(256))]
        return ByteStreamDecoder(lambda ids: b"".join(token_bytes[i] for i in check_ids(ids, 257)))


class ByteStreamDecoder:
    """Decodes byte tokens incrementally, holding back the bytes of an incomplete character."""

    def __init__(self, ids_to_bytes: Callable[[Iterable[int]], bytes]) -> None:
        self._ids_to_bytes = ids_to_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        return self._decoder.decode(self._ids_to_bytes(ids))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class _CharStreamDecoder:
    """Decodes tokens that are complete characters, so that nothing is held back."""

    def __init__(self, decode: Callable[[Iterable[int]], str]) -> None:
        self.feed = decode

    def flush(self) -> str:
        return ""


def _encode_bytes(data: bytes) -> TokenIds:
    return np.frombuffer(data, dtype=np.uint8).astype(np.uint16) + np.uint16(1)


def text_to_codepoints(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def utf8_lengths(texts: Sequence[str]) -> Counts:
    """Returns the UTF-8 bytes of each token's text; 0 for the first, padding."""
    return np.array([0] + [len(text.encode("utf-8", "surrogatepass")) for text in texts[1:]], dtype=np.int64)


def check_ids(ids: Iterable[int], vocab_size: int) -> Iterator[int]:
    """Yields the ids as ints; UsageError for one outside the vocabulary, with its position."""
    for position, token in enumerate(map(int, ids)):
        if not 0 <= token < vocab_size:
            raise UsageError(
                f"id {token} at position {position} is outside the vocabulary of {vocab_size} (0 to {vocab_size - 1})"
            )
        yield token


def compute_vocabulary_digest(kind: str, *parts: Sequence[Any]) -> str:
    """Returns the SHA-256 that identifies a vocabulary and its rules."""
    return hashlib.sha256(json.dumps([kind, *map(list, parts)]).encode()).hexdigest()
