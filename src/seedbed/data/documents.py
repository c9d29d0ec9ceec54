"""Documents as streams: files opened safely, decoded in chunks and hashed, in bounded memory.

    corpus = corpus_from_path(Path("poems"))         # a file, or a folder with one document per *.txt
    for text in iter_text(corpus.documents[0]): …    # chunks of at most CHUNK_BYTES bytes

Text is UTF-8. A byte order mark is dropped and CRLF becomes LF, so a file gives the same tokens whichever system saved
it; a lone CR, NUL and all other characters are kept. `iter_bytes` yields the raw bytes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seedbed.errors import MissingData, UsageError

CHUNK_BYTES = 1 << 22  # read at a time
_UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One text: a file, or bytes in memory."""

    name: str  # for messages
    path: Path | None = None
    content: bytes = b""


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order."""

    name: str
    documents: tuple[Document, ...]


def corpus_from_path(path: Path) -> Corpus:
    """Returns a file as one document, or a folder as one document per *.txt in byte order of names."""
    if path.is_dir():
        names = sorted((os.fsencode(entry.name), entry) for entry in path.iterdir() if entry.suffix == ".txt")
        if not names:
            raise MissingData(f"{path}: no *.txt in this folder; name a file, or a folder of .txt files")
        return Corpus(str(path), tuple(Document(str(entry), entry) for _, entry in names))
    with _open_regular_file(path):
        return Corpus(str(path), (Document(str(path), path),))


def corpus_from_text(name: str, text: str) -> Corpus:
    """Returns a string as a corpus of one document."""
    return Corpus(name, (Document(name, content=text.encode("utf-8")),))


def concatenate_corpora(name: str, corpora: Iterable[Corpus]) -> Corpus:
    """Returns several corpora as one, with their documents in the given order."""
    return Corpus(name, tuple(document for corpus in corpora for document in corpus.documents))


def iter_bytes(document: Document) -> Iterator[bytes]:
    """Yields the raw bytes of a document, at most CHUNK_BYTES at a time."""
    if document.path is None:
        yield from (document.content[i : i + CHUNK_BYTES] for i in range(0, len(document.content), CHUNK_BYTES))
        return
    with _open_regular_file(document.path) as file:
        before = os.fstat(file.fileno())
        n_left = before.st_size
        while n_left and (chunk := file.read(min(CHUNK_BYTES, n_left))):
            n_left -= len(chunk)
            yield chunk
        after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise UsageError(f"{document.path} changed while it was read; wait until it is written, then try again")


def iter_text(document: Document) -> Iterator[str]:
    """Yields the decoded text in chunks that never split a character or a CRLF."""
    remainder, offset = b"", 0  # incomplete bytes of the last chunk; bytes decoded so far
    for chunk in iter_bytes(document):
        data = remainder + chunk
        if offset == 0 and data.startswith(_UTF8_BOM):
            data, offset = data[3:], 3
        n_complete = len(data) - _count_incomplete_bytes(data)
        yield _decode_utf8(document.name, data[:n_complete], offset)
        offset, remainder = offset + n_complete, data[n_complete:]
    if remainder:
        yield _decode_utf8(document.name, remainder, offset)


def iter_line_chunks(document: Document) -> Iterator[list[str]]:
    """Yields lists of complete lines with their ends; lines beyond CHUNK_BYTES are split, if possible at a space."""
    remainder = ""
    for chunk in iter_text(document):
        lines, remainder = split_complete_lines(remainder + chunk)
        if len(remainder) > CHUNK_BYTES:
            end = max(remainder.rfind(" "), remainder.rfind("\t")) + 1 or len(remainder)
            lines.append(remainder[:end])
            remainder = remainder[end:]
        yield lines
    if remainder:
        yield [remainder]


def split_complete_lines(text: str) -> tuple[list[str], str]:
    """Returns the complete lines with their ends, and the text after the last line end."""
    *lines, remainder = text.split("\n")
    return [f"{line}\n" for line in lines], remainder


def corpus_digest(corpus: Corpus) -> str:
    """Returns the SHA-256 of the concatenated contents of all documents; names are not hashed."""
    hasher = hashlib.sha256()
    for document in corpus.documents:
        for chunk in iter_bytes(document):
            hasher.update(chunk)
    return hasher.hexdigest()


def normalization_notes(corpus: Corpus) -> tuple[str, ...]:
    """Describes what decoding silently normalizes: byte order marks and CRLF line ends."""
    n_boms = n_crlf = 0
    for document in corpus.documents:
        last_byte = b""
        for i, chunk in enumerate(iter_bytes(document)):
            n_boms += i == 0 and chunk.startswith(_UTF8_BOM)
            n_crlf += chunk.count(b"\r\n") + (last_byte == b"\r" and chunk.startswith(b"\n"))
            last_byte = chunk[-1:]
    notes = [
        (n_boms, "a byte order mark at the start of {n} of the files was dropped"),
        (n_crlf, "{n} CRLF line ends were read as LF"),
    ]
    return tuple(f"{corpus.name}: {note.format(n=n)}" for n, note in notes if n)


@contextmanager
def _open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a regular file for reading; pipes, devices, folders and link loops raise an error instead of blocking."""
    try:
        _require_regular_file(path, os.stat(path).st_mode)
        # Without O_NONBLOCK, a pipe put in place after the check would block the open.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MissingData(
            f"{path} cannot be read ({reason}); name a UTF-8 text file or a folder of .txt files"
        ) from None
    with os.fdopen(descriptor, "rb") as file:
        _require_regular_file(path, os.fstat(file.fileno()).st_mode)
        yield file


def _require_regular_file(path: Path, mode: int) -> None:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(mode):
        kind = kinds.get(stat.S_IFMT(mode), "not a regular file")
        raise UsageError(f"{path} is {kind}; name a regular UTF-8 text file or a folder of .txt files")


def _count_incomplete_bytes(data: bytes) -> int:
    """Counts the trailing bytes that need the next chunk: an unfinished character, or a CR that may start a CRLF."""
    if data.endswith(b"\r"):
        return 1
    for n in range(1, min(4, len(data)) + 1):
        byte = data[-n]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4 bytes
            return n if n < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            return 0
    return 0


def _decode_utf8(name: str, data: bytes, offset: int) -> str:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        if _is_binary(data, offset):
            raise UsageError(
                f"{name} is a binary file (it holds NUL bytes), not text; name a text file, or read it as bytes "
                "(task.tokenizer = bytes)"
            ) from None
        invalid = data[error.start : error.start + 4]
        raise UsageError(
            f"{name}: byte {offset + error.start:,} ({invalid.hex(' ')}) is not UTF-8{_guess_encoding(data, offset)}; "
            "save it as UTF-8, or read it as bytes (task.tokenizer = bytes)"
        ) from None


def _has_regular_nulls(sample: bytes) -> bool:
    """Whether most characters are followed or preceded by NUL bytes, as ASCII in UTF-16 and UTF-32 is."""
    by_phase = [sample[phase::2].count(0) for phase in (0, 1)]
    return max(by_phase) > len(sample) // 2 * 0.4 and min(by_phase) < max(by_phase) * 0.6


def _is_binary(data: bytes, offset: int) -> bool:
    """Whether text that is not UTF-8 holds NUL bytes, unless it looks like UTF-16 or UTF-32."""
    return b"\0" in data[: 1 << 16] and "UTF" not in _guess_encoding(data, offset)


def _guess_encoding(data: bytes, offset: int) -> str:
    """Returns a phrase with the likely encoding of text that is not UTF-8."""
    if offset == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return ", it looks like UTF-16"
    sample = data[: 1 << 16]
    if _has_regular_nulls(sample):
        return ", it looks like UTF-16 or UTF-32"
    if any(0x80 <= byte < 0xA0 for byte in sample):
        return ", it looks like Windows-1252 or another 8-bit encoding"
    return ", it looks like Latin-1 (ISO 8859-1) or another 8-bit encoding"
