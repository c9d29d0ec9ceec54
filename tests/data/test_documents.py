"""Files as documents: what is read, what is mended, what is refused, and how much memory it takes."""

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
from seedbed.data.labelled_texts import read_labelled_texts
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer, encode_corpus
from seedbed.data.word_tokenizer import WordTokenizer
from seedbed.errors import MissingData, SeedbedError, UsageError


def text_of(path) -> str:
    return "".join(iter_text(corpus_from_path(path).documents[0]))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7])
def test_pieces_of_any_size_join_to_the_whole_text(monkeypatch, tmp_path, size):
    text = "a\u05d0\u20ac\U0001f600\r\nb\r\n\r\r\n\x00\rz\U0010ffff"
    (tmp_path / "t.txt").write_bytes(text.encode())
    monkeypatch.setattr(documents, "PIECE", size)
    assert text_of(tmp_path / "t.txt") == text.replace("\r\n", "\n")


def test_a_byte_order_mark_is_dropped_and_told(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xef\xbb\xbfab\r\ncd\r\n")
    assert text_of(path) == "ab\ncd\n"
    assert [note.split(": ")[-1] for note in normalization_notes(corpus_from_path(path))] == [
        "a byte order mark at the start of 1 of the files was dropped",
        "2 CRLF line ends were read as LF",
    ]


def test_bytes_take_a_file_as_it_is(tmp_path):
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
def test_what_is_not_utf8_is_told_with_offset_hex_and_a_guess(tmp_path, content, offset, bytes_found, guess):
    (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(UsageError) as error:
        text_of(tmp_path / "t.txt")
    for words in ("t.txt", offset, bytes_found, guess, "UTF-8", "bytes"):
        assert words in str(error.value)


def test_the_offset_of_a_bad_byte_counts_from_the_start_of_the_file(monkeypatch, tmp_path):
    monkeypatch.setattr(documents, "PIECE", 10)
    (tmp_path / "t.txt").write_bytes(b"\xef\xbb\xbf" + "\u05d0".encode() * 50 + b"\xff")
    with pytest.raises(UsageError, match=r"byte 103 \(ff\)"):
        text_of(tmp_path / "t.txt")


def test_pipes_devices_folders_loops_and_missing_files_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.txt").mkdir()
    began = time.monotonic()
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path / "loop", tmp_path / "empty", tmp_path / "none"):
        with pytest.raises(SeedbedError, match=str(path)):
            corpus_from_path(type(tmp_path)(path))
    with pytest.raises(UsageError, match="is a folder"):
        text_of_all(tmp_path)
    assert time.monotonic() - began < 2


def text_of_all(folder) -> list[str]:
    return ["".join(iter_text(document)) for document in corpus_from_path(folder).documents]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(tmp_path):
    (tmp_path / "t.txt").write_text("a")
    (tmp_path / "t.txt").chmod(0)
    with pytest.raises(MissingData, match="Permission denied"):
        corpus_from_path(tmp_path / "t.txt")


def test_a_file_that_changes_while_it_is_read_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("abcdef")
    monkeypatch.setattr(documents, "PIECE", 2)
    pieces = iter_text(Document("t.txt", path))
    next(pieces)
    path.write_text("abcdefgh")
    with pytest.raises(UsageError, match="changed while it was read"):
        list(pieces)


def test_a_folder_is_its_texts_in_byte_order_of_names(tmp_path):
    for name in ("b.txt", "B.txt", "\u00e9.txt", "z.txt", "a.md"):
        (tmp_path / name).write_text(name)
    assert text_of_all(tmp_path) == ["B.txt", "b.txt", "z.txt", "\u00e9.txt"]
    expected = hashlib.sha256("B.txtb.txtz.txt\u00e9.txt".encode()).hexdigest()
    assert corpus_digest(corpus_from_path(tmp_path)) == expected


def test_lines_are_whole_and_only_an_endless_one_is_cut(monkeypatch):
    monkeypatch.setattr(documents, "PIECE", 8)
    lines = [
        line
        for piece in iter_line_chunks(corpus_from_text("t", "ab\nc\n\nwords of a long line\nend").documents[0])
        for line in piece
    ]
    assert "".join(lines) == "ab\nc\n\nwords of a long line\nend"
    assert lines[:3] == ["ab\n", "c\n", "\n"]
    assert all(line.endswith((" ", "\n")) for line in lines[:-1])


def test_a_large_file_is_encoded_in_bounded_memory(monkeypatch, tmp_path):
    """64 MB on one line; ids go to a temporary file, so that what is held is a few pieces whatever the size."""
    monkeypatch.setattr("seedbed.data.tokenizers.IN_MEMORY", 1 << 20)
    path = tmp_path / "large.txt"
    block = ("\u05d0b c" * 200_000).encode()
    with path.open("wb") as file:
        for _ in range(64):
            file.write(block)
    tracemalloc.start()
    corpus = corpus_from_path(path)
    letters = CharTokenizer.from_corpora(corpus)
    encoded = encode_corpus(corpus, letters)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(encoded.ids) == 64 * 800_000
    assert letters.decode(encoded.ids[-4:]) == "\u05d0b c"
    assert peak < 60e6


@settings(max_examples=300)
@given(st.binary(max_size=60), st.sampled_from(["t.txt", "t.csv", "t.tsv"]))
def test_any_bytes_are_read_or_refused_in_words(content, name):
    corpus = Corpus(name, (Document(name, content=content),))
    for use in (compute_corpus_stats, read_labelled_texts, _as_characters, _as_words, _as_bytes):
        assert name in _refusal(use, corpus)


def _refusal(use, corpus) -> str:
    """The words it is refused with, or its name where it is not; any other error passes through."""
    try:
        use(corpus)
    except SeedbedError as error:
        return str(error)
    return corpus.name


def _as_characters(corpus):
    return encode_corpus(corpus, CharTokenizer.from_corpora(corpus))


def _as_words(corpus):
    return encode_corpus(corpus, WordTokenizer.from_corpora(corpus))


def _as_bytes(corpus):
    return encode_corpus(corpus, ByteTokenizer())
