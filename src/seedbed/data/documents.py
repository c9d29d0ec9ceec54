"""Documents as streams: files opened with care, decoded in pieces, hashed on the way; what they mean is left to others.

    corpus = read_path(Path("poems"))                # a file, or a folder with one document per *.txt
    for text in text_pieces(corpus.documents[0]): …  # at most PIECE bytes at a time, whatever the size

Text is UTF-8. A byte order mark is dropped and CRLF is read as LF, so a file gives the same tokens whichever system
saved it; a lone CR, NUL and every other character stay. `byte_pieces` gives the bytes as they are, undecoded.
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

CHUNK_BYTES = 1 << 22  # bytes read at a time
_UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Document:
    """One text: a file, or bytes at hand."""

    name: str  # as messages show it
    path: Path | None = None
    content: bytes = b""


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order."""

    name: str
    documents: tuple[Document, ...]


def corpus_from_path(path: Path) -> Corpus:
    """A file as one document, or a folder with one document per *.txt in byte order of names."""
    if path.is_dir():
        names = sorted((os.fsencode(entry.name), entry) for entry in path.iterdir() if entry.suffix == ".txt")
        if not names:
            raise MissingData(f"{path}: no *.txt in this folder; name a file, or a folder of .txt files")
        return Corpus(str(path), tuple(Document(str(entry), entry) for _, entry in names))
    with _open_regular_file(path):
        return Corpus(str(path), (Document(str(path), path),))


def corpus_from_text(name: str, text: str) -> Corpus:
    """A text at hand as a corpus of one document."""
    return Corpus(name, (Document(name, content=text.encode("utf-8")),))


def concatenate_corpora(name: str, corpora: Iterable[Corpus]) -> Corpus:
    """Several corpora as one, documents in the order given."""
    return Corpus(name, tuple(document for corpus in corpora for document in corpus.documents))


def iter_bytes(document: Document) -> Iterator[bytes]:
    """The bytes of a document as they are, at most PIECE at a time."""
    if document.path is None:
        yield from (document.content[i : i + CHUNK_BYTES] for i in range(0, len(document.content), CHUNK_BYTES))
        return
    with _open_regular_file(document.path) as file:
        before = os.fstat(file.fileno())
        left = before.st_size
        while left and (piece := file.read(min(CHUNK_BYTES, left))):
            left -= len(piece)
            yield piece
        after = os.fstat(file.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise UsageError(f"{document.path} changed while it was read; wait until it is written, then try again")


def iter_text(document: Document) -> Iterator[str]:
    """The decoded text in pieces that never cut a character or a CRLF; joined they are the whole text."""
    held, offset = b"", 0  # what the last piece could not finish; bytes decoded so far
    for piece in iter_bytes(document):
        data = held + piece
        if offset == 0 and data.startswith(_UTF8_BOM):
            data, offset = data[3:], 3
        whole = len(data) - _count_incomplete_bytes(data)
        yield _decode_utf8(document.name, data[:whole], offset)
        offset, held = offset + whole, data[whole:]
    if held:
        yield _decode_utf8(document.name, held, offset)


def iter_line_chunks(document: Document) -> Iterator[list[str]]:
    """Lists of whole lines with their ends; only a line beyond PIECE characters is cut, after white space if any."""
    held = ""
    for piece in iter_text(document):
        lines, held = split_complete_lines(held + piece)
        if len(held) > CHUNK_BYTES:
            cut = max(held.rfind(" "), held.rfind("\t")) + 1 or len(held)
            lines.append(held[:cut])
            held = held[cut:]
        yield lines
    if held:
        yield [held]


def split_complete_lines(text: str) -> tuple[list[str], str]:
    """The lines of a text with their ends, and what follows the last end."""
    *lines, rest = text.split("\n")
    return [f"{line}\n" for line in lines], rest


def corpus_digest(corpus: Corpus) -> str:
    """SHA-256 over the contents of all documents, one after the other; names do not count."""
    total = hashlib.sha256()
    for document in corpus.documents:
        for piece in iter_bytes(document):
            total.update(piece)
    return total.hexdigest()


def normalization_notes(corpus: Corpus) -> tuple[str, ...]:
    """What reading quietly mends, in words: marks dropped, line ends changed."""
    n_marks = n_crlf = 0
    for document in corpus.documents:
        last = b""
        for i, piece in enumerate(iter_bytes(document)):
            n_marks += i == 0 and piece.startswith(_UTF8_BOM)
            n_crlf += piece.count(b"\r\n") + (last == b"\r" and piece.startswith(b"\n"))
            last = piece[-1:]
    found = [
        (n_marks, "a byte order mark at the start of {n} of the files was dropped"),
        (n_crlf, "{n} CRLF line ends were read as LF"),
    ]
    return tuple(f"{corpus.name}: {words.format(n=n)}" for n, words in found if n)


@contextmanager
def _open_regular_file(path: Path) -> Iterator[BinaryIO]:
    """An ordinary file open for reading; pipes, devices, folders and link loops are refused, never waited for."""
    try:
        _require_regular_file(path, os.stat(path).st_mode)
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise MissingData(f"{path} cannot be read ({why}); name a UTF-8 text file or a folder of .txt files") from None
    with os.fdopen(descriptor, "rb") as file:
        _require_regular_file(path, os.fstat(file.fileno()).st_mode)
        yield file


def _require_regular_file(path: Path, mode: int) -> None:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(mode):
        found = kinds.get(stat.S_IFMT(mode), "not an ordinary file")
        raise UsageError(f"{path} is {found}; name an ordinary UTF-8 text file or a folder of .txt files")


def _count_incomplete_bytes(data: bytes) -> int:
    """How many last bytes wait for the next piece: a character begun, or a CR that may be half of a CRLF."""
    if data.endswith(b"\r"):
        return 1
    for n in range(1, min(4, len(data)) + 1):
        byte = data[-n]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            return n if n < 2 + (byte >= 0xE0) + (byte >= 0xF0) else 0
        if byte < 0x80:
            return 0
    return 0


def _decode_utf8(name: str, data: bytes, offset: int) -> str:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        found = data[error.start : error.start + 4]
        raise UsageError(
            f"{name}: byte {offset + error.start:,} ({found.hex(' ')}) is not UTF-8{_guess_encoding(data, offset)}; "
            "save it as UTF-8, or read it as bytes (tokens = bytes)"
        ) from None


def _guess_encoding(data: bytes, offset: int) -> str:
    """A guess at the encoding, in words."""
    if offset == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return ", it looks like UTF-16"
    sample = data[: 1 << 16]
    if sample.count(0) > len(sample) // 4:
        return ", it looks like UTF-16 or UTF-32"
    if any(0x80 <= byte < 0xA0 for byte in sample):
        return ", it looks like Windows-1252 or another 8-bit encoding"
    return ", it looks like Latin-1 (ISO 8859-1) or another 8-bit encoding"
