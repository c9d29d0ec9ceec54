"""Tokens: text to ids and back, by characters or bytes here, by words in `words.py`, by merged pieces in `bpe.py`.

Every kind keeps id 0 for padding, so sequences of unequal length share one array; ids are stable because texts are
sorted or given. `encode_corpus` streams documents of any size into one array of ids.

>>> from seedbed.data.documents import from_text
>>> letters = Characters.of(from_text("line", "to be"))
>>> letters.size, letters.encode("bet").tolist()
(6, [2, 3, 5])
>>> letters.decode([5, 4, 0])
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

from seedbed.data.documents import Corpus, Document, byte_pieces, text_pieces
from seedbed.errors import UsageError

Ids: TypeAlias = NDArray[np.unsignedinteger[Any]]  # the smallest unsigned type that holds the vocabulary
Counts: TypeAlias = NDArray[np.int64]

PAD, PAD_TEXT = 0, "<pad>"
UNKNOWN, UNKNOWN_TEXT = 1, "<unk>"  # of the vocabularies that have one
N_CODEPOINTS = 0x110000
IN_MEMORY = 1 << 28  # bytes of ids; more are kept in an unnamed temporary file and mapped


class StreamDecoder(Protocol):
    """Decodes ids as they come; what is not yet a whole character waits for the next ids."""

    def feed(self, ids: Iterable[int]) -> str: ...

    def end(self) -> str: ...


class Spaced:
    """Decodes tokens that are whole words as they come, with a space between any two."""

    def __init__(self, decode: Callable[[Iterable[int]], str]) -> None:
        self._decode, self._between = decode, ""

    def feed(self, ids: Iterable[int]) -> str:
        text = self._decode(ids)
        if not text:
            return ""
        text, self._between = self._between + text, " "
        return text

    def end(self) -> str:
        return ""


class Tokens(Protocol):
    """A vocabulary with its rules: `texts[id]` is a token's text, `digest` names the vocabulary and its rules."""

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
        """Characters that each token stands for, for bits per character."""
        ...

    @property
    def byte_counts(self) -> Counts:
        """UTF-8 bytes that each token stands for, for bits per byte."""
        ...

    def encode(self, text: str) -> Ids: ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def decoder(self) -> StreamDecoder: ...

    def pieces(self, document: Document) -> Iterator[Ids]:
        """The ids of a document, streamed."""
        ...


@dataclass(frozen=True)
class Encoded:
    """The ids of all documents of a corpus, one after the other."""

    ids: Ids
    starts: Counts  # (documents,) where each begins
    lengths: Counts  # (documents,) tokens of each


def encode_corpus(corpus: Corpus, tokens: Tokens) -> Encoded:
    """All documents as ids; memory stays bounded, since beyond IN_MEMORY bytes they go to a temporary file."""
    store = _Growing(id_type(tokens.size))
    lengths = []
    for document in corpus.documents:
        before = store.n
        for ids in tokens.pieces(document):
            store.add(ids)
        lengths.append(store.n - before)
    if store.n == 0:
        raise UsageError(f"{corpus.name} holds no tokens (empty, or only white space); a corpus needs some text")
    ends = np.cumsum(lengths, dtype=np.int64)
    return Encoded(store.all(), ends - np.array(lengths), np.array(lengths, dtype=np.int64))


def id_type(size: int) -> np.dtype[Any]:
    """The smallest unsigned type for this many ids."""
    return np.dtype(np.min_scalar_type(size - 1))


class _Growing:
    """An array that grows by pieces, in memory first, in an unnamed file beyond IN_MEMORY bytes."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.n = dtype, 0
        self._pieces: list[Ids] = []
        self._file: Any = None

    def add(self, ids: Ids) -> None:
        self.n += len(ids)
        if self._file is None:
            self._pieces.append(ids.astype(self.dtype, copy=False))
            if self.n * self.dtype.itemsize > IN_MEMORY:
                self._file = tempfile.TemporaryFile(prefix="seedbed-")  # noqa: SIM115
                for piece in self._pieces:
                    self._file.write(piece.tobytes())
                self._pieces = []
        else:
            self._file.write(ids.astype(self.dtype, copy=False).tobytes())

    def all(self) -> Ids:
        if self._file is not None:
            self._file.flush()
            return np.memmap(self._file, self.dtype, "r", shape=(self.n,))
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, self.dtype)


@dataclass(frozen=True)
class Characters:
    """One id per character: padding, then the sorted distinct characters."""

    texts: tuple[str, ...]
    kind: str = "characters"

    @classmethod
    def of(cls, *corpora: Corpus) -> Characters:
        """The vocabulary of these corpora; what is held out later should be among them."""
        seen = np.zeros(N_CODEPOINTS, dtype=bool)
        for corpus in corpora:
            for document in corpus.documents:
                for text in text_pieces(document):
                    seen[codepoints(text)] = True
        return cls((PAD_TEXT, *map(chr, np.flatnonzero(seen))))

    @property
    def size(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.kind, self.texts)

    @cached_property
    def character_counts(self) -> Counts:
        return np.array([0] + [1] * (self.size - 1), dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        return utf8_lengths(self.texts)

    @cached_property
    def _id_of(self) -> Ids:
        """Codepoint → id; padding where there is none, as padding is never in a text."""
        table = np.zeros(N_CODEPOINTS, dtype=id_type(self.size))
        table[[ord(text) for text in self.texts[1:]]] = np.arange(1, self.size)
        return table

    def encode(self, text: str) -> Ids:
        ids = self._id_of[codepoints(text)]
        if not ids.all():
            self._refuse("the text", text, int(np.argmin(ids != 0)), line=1)
        return ids

    def pieces(self, document: Document) -> Iterator[Ids]:
        line = 1
        for text in text_pieces(document):
            ids = self._id_of[codepoints(text)]
            if not ids.all():
                self._refuse(document.name, text, int(np.argmin(ids != 0)), line)
            line += text.count("\n")
            yield ids

    def _refuse(self, where: str, text: str, at: int, line: int) -> None:
        line += text.count("\n", 0, at)
        column = at - text.rfind("\n", 0, at)
        raise UsageError(
            f"{where}:{line}: {text[at]!a} (U+{ord(text[at]):04X}, column {column}) is not among the "
            f"{self.size - 1} characters of the vocabulary; remove it, or build the vocabulary on this text too"
        )

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self.texts[i] for i in checked(ids, self.size) if i != PAD)

    def decoder(self) -> StreamDecoder:
        return _EachAlone(self.decode)


@dataclass(frozen=True)
class Bytes:
    """One id per byte: padding, then byte 0 … 255; files are taken as they are, whatever they hold."""

    kind: str = "bytes"

    @property
    def size(self) -> int:
        return 257

    @property
    def texts(self) -> tuple[str, ...]:
        return (PAD_TEXT, *(chr(i) if 0x20 <= i < 0x7F else f"<{i:02x}>" for i in range(256)))

    @property
    def digest(self) -> str:
        return digest_of(self.kind, self.texts)

    @property
    def character_counts(self) -> Counts:
        """A character is counted at its first byte."""
        follows = [0x80 <= byte < 0xC0 for byte in range(256)]
        return np.array([0] + [0 if one else 1 for one in follows], dtype=np.int64)

    @property
    def byte_counts(self) -> Counts:
        return np.array([0] + [1] * 256, dtype=np.int64)

    def encode(self, text: str) -> Ids:
        return _byte_ids(text.encode("utf-8", "surrogatepass"))

    def pieces(self, document: Document) -> Iterator[Ids]:
        return map(_byte_ids, byte_pieces(document))

    def decode(self, ids: Iterable[int]) -> str:
        """The text; bytes that are no character become U+FFFD, which can be seen."""
        decoder = self.decoder()
        return decoder.feed(ids) + decoder.end()

    def decoder(self) -> StreamDecoder:
        spelled = [b"", *(bytes([i]) for i in range(256))]
        return ByteDecoder(lambda ids: b"".join(spelled[i] for i in checked(ids, 257)))


class ByteDecoder:
    """Holds back the bytes of a character that is not whole yet."""

    def __init__(self, spell: Callable[[Iterable[int]], bytes]) -> None:
        self._spell = spell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        return self._decoder.decode(self._spell(ids))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


class _EachAlone:
    """For tokens that are whole characters by themselves."""

    def __init__(self, decode: Callable[[Iterable[int]], str]) -> None:
        self.feed = decode

    def end(self) -> str:
        return ""


def _byte_ids(data: bytes) -> Ids:
    return np.frombuffer(data, dtype=np.uint8).astype(np.uint16) + np.uint16(1)


def codepoints(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def utf8_lengths(texts: Sequence[str]) -> Counts:
    """UTF-8 bytes of each text; 0 for padding."""
    return np.array([0] + [len(text.encode("utf-8", "surrogatepass")) for text in texts[1:]], dtype=np.int64)


def checked(ids: Iterable[int], size: int) -> Iterator[int]:
    """The ids as plain numbers; one outside the vocabulary is named with its place."""
    for place, one in enumerate(ids):
        if not 0 <= int(one) < size:
            raise UsageError(f"id {int(one)} at place {place} is outside the vocabulary of {size} (0 to {size - 1})")
        yield int(one)


def digest_of(kind: str, *parts: Sequence[Any]) -> str:
    """SHA-256 that names a vocabulary and its rules."""
    return hashlib.sha256(json.dumps([kind, *map(list, parts)]).encode()).hexdigest()
