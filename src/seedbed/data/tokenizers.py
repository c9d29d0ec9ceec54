"""Tokenizers: the base classes, and those of characters and bytes; `word_tokenizer.py` and `bpe.py` have the others.

Every tokenizer reserves id 0 for padding, so that sequences of unequal length fit in one array. Ids are stable because
vocabularies are sorted or predefined.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seedbed.data.documents import Corpus, Document, iter_bytes, iter_line_chunks, iter_text
from seedbed.errors import UsageError

TokenIds: TypeAlias = NDArray[np.unsignedinteger[Any]]  # in the smallest unsigned dtype that holds the vocabulary
Counts: TypeAlias = NDArray[np.int64]

PAD_ID, PAD_TOKEN = 0, "<pad>"
UNKNOWN_ID, UNKNOWN_TOKEN = 1, "<unk>"  # of the tokenizers that have one
N_CODEPOINTS = 0x110000


class StreamDecoder(ABC):
    """Decodes ids incrementally."""

    @abstractmethod
    def feed(self, ids: Iterable[int]) -> str:
        """Returns the text of these ids, as far as it is complete."""

    def flush(self) -> str:
        """Returns the text of what was held back until the next ids."""
        return ""


@dataclass(frozen=True)
class Tokenizer(ABC):
    """Converts text to ids and back; a subclass says what a token is."""

    kind: ClassVar[str]
    texts: tuple[str, ...]  # of each token, by id

    @property
    def size(self) -> int:
        """The size of the vocabulary, padding included."""
        return len(self.texts)

    @property
    def readable_texts(self) -> tuple[str, ...]:
        """The text of each token as a person reads it; `texts` of a BPE are the symbols that its merges are made of."""
        return self.texts

    @cached_property
    def digest(self) -> str:
        """Identifies the vocabulary and its rules."""
        return compute_vocabulary_digest(self.kind, self.texts)

    @property
    @abstractmethod
    def character_counts(self) -> Counts:
        """Characters per token, for bits per character."""

    @property
    @abstractmethod
    def byte_counts(self) -> Counts:
        """UTF-8 bytes per token, for bits per byte."""

    @abstractmethod
    def encode(self, text: str) -> TokenIds:
        """Returns the ids of a text."""

    def encode_lines(self, lines: Sequence[str]) -> TokenIds:
        """Returns the ids of complete lines with their ends."""
        return self.encode("".join(lines))

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        """Yields the ids of a document in chunks; the chunk boundaries do not change the ids."""
        return (self.encode_lines(lines) for lines in iter_line_chunks(document) if lines)

    @abstractmethod
    def decoder(self) -> StreamDecoder:
        """Returns a decoder at the start of a text."""

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of these ids."""
        decoder = self.decoder()
        return decoder.feed(ids) + decoder.flush()


# ---- tokens that are text ----


class PieceTokenizer(Tokenizer):
    """A tokenizer whose tokens are complete characters."""

    @property
    @abstractmethod
    def pieces(self) -> tuple[str, ...]:
        """What each token adds to a text, with the space after it where tokens are words; nothing for padding."""

    @cached_property
    def character_counts(self) -> Counts:
        return np.array([len(piece) for piece in self.pieces], dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        return np.array([len(piece.encode("utf-8", "surrogatepass")) for piece in self.pieces], dtype=np.int64)

    def decoder(self) -> StreamDecoder:
        return _PieceStreamDecoder(self.pieces)


class _PieceStreamDecoder(StreamDecoder):
    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    def feed(self, ids: Iterable[int]) -> str:
        return "".join(self._pieces[i] for i in check_ids(ids, len(self._pieces)))


class WordStreamDecoder(StreamDecoder):
    """Decodes tokens that are words; the last word says whether a space stands before the next."""

    def __init__(
        self, ids_to_words: Callable[[Iterable[int]], list[str]], join_words: Callable[[Sequence[str], str], str]
    ) -> None:
        """`join_words(words, before)` returns the text of words that follow the word `before`."""
        self._ids_to_words, self._join_words, self._last = ids_to_words, join_words, ""

    def feed(self, ids: Iterable[int]) -> str:
        words = self._ids_to_words(ids)
        text = self._join_words(words, self._last)
        self._last = words[-1] if words else self._last
        return text


class CharTokenizer(PieceTokenizer):
    """One id per character: padding, then the sorted distinct characters."""

    kind: ClassVar[str] = "characters"

    @classmethod
    def from_corpora(cls, *corpora: Corpus) -> CharTokenizer:
        """Builds the vocabulary of these corpora; other texts may only use its characters."""
        seen = np.zeros(N_CODEPOINTS, dtype=bool)
        for corpus in corpora:
            for document in corpus.documents:
                for text in iter_text(document):
                    seen[text_to_codepoints(text)] = True
        return cls((PAD_TOKEN, *map(chr, np.flatnonzero(seen))))

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return ("", *self.texts[1:])

    @cached_property
    def _codepoint_to_id(self) -> TokenIds:
        """Maps codepoints to ids; PAD_ID marks an unknown character, since padding never occurs in a text."""
        table = np.zeros(N_CODEPOINTS, dtype=smallest_id_dtype(self.size))
        table[[ord(text) for text in self.texts[1:]]] = np.arange(1, self.size)
        return table

    def encode(self, text: str) -> TokenIds:
        return self._encode(text, "the text", first_line=1)

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        line = 1
        for text in iter_text(document):
            yield self._encode(text, document.name, line)
            line += text.count("\n")

    def _encode(self, text: str, source: str, first_line: int) -> TokenIds:
        """Returns the ids of a text that starts at this line of its source, which an error names."""
        ids = self._codepoint_to_id[text_to_codepoints(text)]
        if not ids.all():
            index = int(np.argmin(ids != 0))
            line = first_line + text.count("\n", 0, index)
            column = index - text.rfind("\n", 0, index)
            raise UsageError(
                f"{source}:{line}: {text[index]!a} (U+{ord(text[index]):04X}, column {column}) is not among the "
                f"{self.size - 1} characters of the vocabulary; remove it, or build the vocabulary on this text too"
            )
        return ids


# ---- tokens that are bytes ----


class ByteSequenceTokenizer(Tokenizer):
    """A tokenizer whose tokens are sequences of bytes, which need not be complete characters."""

    @property
    @abstractmethod
    def token_bytes(self) -> tuple[bytes, ...]:
        """The bytes of each token; none for padding."""

    @cached_property
    def byte_counts(self) -> Counts:
        return np.array([len(token) for token in self.token_bytes], dtype=np.int64)

    @cached_property
    def character_counts(self) -> Counts:
        """Characters per token, each counted at its first byte: UTF-8 continuation bytes count 0."""
        n_first_bytes = [sum(not 0x80 <= byte < 0xC0 for byte in token) for token in self.token_bytes]
        return np.array(n_first_bytes, dtype=np.int64)

    def decoder(self) -> StreamDecoder:
        return _ByteStreamDecoder(self.token_bytes)


class _ByteStreamDecoder(StreamDecoder):
    """Holds back the bytes of an incomplete character; invalid bytes become U+FFFD."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        return self._decoder.decode(b"".join(self._token_bytes[i] for i in check_ids(ids, len(self._token_bytes))))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


@dataclass(frozen=True)
class ByteTokenizer(ByteSequenceTokenizer):
    """One id per byte: padding, then byte 0 … 255; files need not be valid UTF-8."""

    kind: ClassVar[str] = "bytes"
    texts: tuple[str, ...] = (PAD_TOKEN, *(chr(i) if 0x20 <= i < 0x7F else f"<{i:02x}>" for i in range(256)))

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        return (b"", *(bytes([i]) for i in range(256)))

    def encode(self, text: str) -> TokenIds:
        return _encode_bytes(text.encode("utf-8", "surrogatepass"))

    def encode_document(self, document: Document) -> Iterator[TokenIds]:
        return map(_encode_bytes, iter_bytes(document))


def _encode_bytes(data: bytes) -> TokenIds:
    return np.frombuffer(data, dtype=np.uint8).astype(np.uint16) + np.uint16(1)


# ---- what tokenizers share ----


def text_to_codepoints(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def smallest_id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Returns the smallest unsigned dtype for this many ids."""
    return np.dtype(np.min_scalar_type(vocab_size - 1))


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
