"""Documents: decoding and normalization, rejected files, and bounded memory."""

from __future__ import annotations

import hashlib
import os
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedbed.data import documents
from seedbed.data.corpus_stats import compute_corpus_stats
from seedbed.data.datasets import encode_corpus
from seedbed.data.documents import (
    Corpus,
    Document,
    corpus_digest,
    corpus_from_path,
    corpus_from_text,
    iter_line_chunks,
    iter_text,
    normalization_notes,
)
from seedbed.data.table_files import read_labelled_texts
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import MissingData, SeedbedError, UsageError


def read_text(path) -> str:
    return "".join(iter_text(corpus_from_path(path).documents[0]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_chunks_of_any_size_join_to_the_whole_text(monkeypatch, tmp_path, size):
    text = "a\u05d0\u20ac\U0001f600\r\nb\r\n\r\r\n\x00\rz\U0010ffff"
    (tmp_path / "t.txt").write_bytes(text.encode())
    monkeypatch.setattr(documents, "CHUNK_BYTES", size)
    assert read_text(tmp_path / "t.txt") == text.replace("\r\n", "\n")


def test_a_byte_order_mark_is_dropped_and_reported(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xef\xbb\xbfab\r\ncd\r\n")
    assert read_text(path) == "ab\ncd\n"
    assert [note.split(": ")[-1] for note in normalization_notes(corpus_from_path(path))] == [
        "a byte order mark at the start of 1 of the files was dropped",
        "2 CRLF line ends were read as LF",
    ]


def test_the_byte_tokenizer_reads_files_unchanged(tmp_path):
    path = tmp_path / "t.bin"
    content = b"\xef\xbb\xbfa\r\n\x00\xff\xfe"
    path.write_bytes(content)
    assert (encode_corpus(corpus_from_path(path), ByteTokenizer()).ids - 1).astype("u1").tobytes() == content


@pytest.mark.parametrize(
    ("content", "offset", "bytes_found", "guess"),
    [
        ("caf\u00e9 au lait".encode("latin-1"), "byte 3", "e9 20 61 75", "Latin-1"),
        ("\u201cquoted\u201d".encode("cp1252"), "byte 0", "93 71 75 6f", "Windows-1252"),
        ("hello".encode("utf-16"), "byte 0", "ff fe 68 00", "UTF-16"),
        (b"ends in the middle \xe2\x82", "byte 19", "e2 82", "8-bit"),
        (b"half a pair \xed\xa0\x80", "byte 12", "ed a0 80", "8-bit"),
    ],
)
def test_invalid_utf8_is_reported_with_offset_hex_and_a_likely_encoding(tmp_path, content, offset, bytes_found, guess):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_text(tmp_path / "t.txt")
    for expected in ("t.txt", offset, bytes_found, guess, "UTF-8", "bytes"):
        assert expected in str(error.value)


def test_the_offset_of_an_invalid_byte_is_relative_to_the_start_of_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(documents, "CHUNK_BYTES", 10)
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbf" + "\u05d0".encode() * 50 + b"\xff")
    with pytest.raises(UsageError, match=r"byte 103 \(ff\)"):
        read_text(tmp_path / "t.txt")


def test_pipes_devices_folders_loops_and_missing_files_are_rejected_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.txt").mkdir()
    began = time.process_time()
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path / "loop", tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(SeedbedError, match=str(path)):
            corpus_from_path(type(tmp_path)(path))
    with pytest.raises(UsageError, match="is a folder"):
        read_texts(tmp_path)
    assert time.process_time() - began < 2


def read_texts(folder) -> list[str]:
    return ["".join(iter_text(document)) for document in corpus_from_path(folder).documents]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_rejected(tmp_path):
    (tmp_path / "t.txt").write_text("a")
    (tmp_path / "t.txt").chmod(0)
    with pytest.raises(MissingData, match="Permission denied"):
        corpus_from_path(tmp_path / "t.txt")


def test_a_file_that_changes_while_it_is_read_is_rejected(monkeypatch, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("abcdef")
    monkeypatch.setattr(documents, "CHUNK_BYTES", 2)
    chunks = iter_text(Document("t.txt", path))
    next(chunks)
    path.write_text("abcdefgh")
    with pytest.raises(UsageError, match="changed while it was read"):
        list(chunks)


def test_documents_of_a_folder_are_in_byte_order_of_names(tmp_path):
    for name in ("b.txt", "B.txt", "\u00e9.txt", "z.txt", "a.md"):
        (tmp_path / name).write_text(name)
    assert read_texts(tmp_path) == ["B.txt", "b.txt", "z.txt", "\u00e9.txt"]
    expected = hashlib.sha256("B.txtb.txtz.txt\u00e9.txt".encode()).hexdigest()
    assert corpus_digest(corpus_from_path(tmp_path)) == expected


def test_lines_are_complete_and_only_an_overlong_one_is_split(monkeypatch):
    monkeypatch.setattr(documents, "CHUNK_BYTES", 8)
    lines = [
        line
        for chunk in iter_line_chunks(corpus_from_text("t", "ab\nc\n\nwords of a long line\nend").documents[0])
        for line in chunk
    ]
    assert "".join(lines) == "ab\nc\n\nwords of a long line\nend"
    assert lines[:3] == ["ab\n", "c\n", "\n"]
    assert all(line.endswith((" ", "\n")) for line in lines[:-1])


def test_a_large_file_is_encoded_in_bounded_memory(monkeypatch, tmp_path):
    """64 MB on one line; ids go to a temporary file, so that memory holds only a few chunks."""
    monkeypatch.setattr("seedbed.data.datasets.MAX_IN_MEMORY_BYTES", 1 << 20)
    path = tmp_path / "large.txt"
    block = ("\u05d0b c" * 200_000).encode()
    with path.open("wb") as file:
        for _ in range(64):
            file.write(block)
    tracemalloc.start()
    corpus = corpus_from_path(path)
    tokenizer = CharTokenizer.from_corpora(corpus)
    encoded = encode_corpus(corpus, tokenizer)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(encoded.ids) == 64 * 800_000
    assert tokenizer.decode(encoded.ids[-4:]) == "\u05d0b c"
    assert peak < 60e6


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from(["t.txt", "t.csv", "t.tsv"]))
def test_any_bytes_are_read_or_rejected_with_a_message(content, name):
    corpus = Corpus(name, (Document(name, content=content),))
    for use in (compute_corpus_stats, read_labelled_texts, _encode_characters, _encode_words, _encode_bytes):
        assert name in _message(use, corpus)


def _message(use, corpus) -> str:
    """Returns the error message, or the corpus' name if it is accepted; any other exception propagates."""
    try:
        use(corpus)
    except SeedbedError as error:
        return str(error)
    return corpus.name


def _encode_characters(corpus):
    return encode_corpus(corpus, CharTokenizer.from_corpora(corpus))


def _encode_words(corpus):
    return encode_corpus(corpus, WordTokenizer.from_corpora(corpus))


def _encode_bytes(corpus):
    return encode_corpus(corpus, ByteTokenizer())


def test_a_binary_file_is_called_binary(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\xff\xfe\x9c" + bytes(range(256)) * 20)
    with pytest.raises(UsageError, match=r"picture\.png is a binary file \(it holds NUL bytes\), not text"):
        list(iter_text(corpus_from_path(path).documents[0]))
    path.write_bytes("caf\u00e9 in UTF-16, without a mark".encode("utf-16-le"))
    with pytest.raises(UsageError, match="UTF-16 or UTF-32"):
        list(iter_text(corpus_from_path(path).documents[0]))
