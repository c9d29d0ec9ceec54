"""Character and byte tokenizers: round trips, incremental decoding, error messages and speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.datasets import encode_corpus
from seedbed.data.documents import corpus_from_path, corpus_from_text
from seedbed.data.tokenizers import ByteTokenizer, CharTokenizer
from seedbed.errors import UsageError


@given(st.text(min_size=1))
def test_the_character_tokenizer_round_trips_any_text(text):
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", text))
    normalized = text.replace("\r\n", "\n")
    ids = encode_corpus(corpus_from_text("t", text), tokenizer).ids
    assert tokenizer.decode(ids) == normalized
    assert np.array_equal(ids, tokenizer.encode(normalized))
    assert tokenizer.size == 1 + len(set(normalized))
    assert list(tokenizer.texts[1:]) == sorted(set(normalized))
    assert ids.min() >= 1


@given(st.text())
def test_the_byte_tokenizer_round_trips_any_text(text):
    ids = ByteTokenizer().encode(text)
    assert ByteTokenizer().decode(ids) == text
    assert (ids - 1).astype("u1").tobytes() == text.encode()


@given(st.text(), st.lists(st.integers(1, 5)))
def test_stream_decoding_never_yields_an_incomplete_character(text, sizes):
    ids, decoder, chunks = ByteTokenizer().encode(text), ByteTokenizer().decoder(), []
    for size in [*sizes, len(ids) + 1]:
        chunks.append(decoder.feed(ids[:size]))
        ids = ids[size:]
    assert all("\ufffd" not in chunk for chunk in chunks) or "\ufffd" in text
    assert "".join(chunks) + decoder.flush() == text


@given(st.binary())
def test_invalid_bytes_decode_to_the_replacement_character(data):
    ids = np.frombuffer(data, np.uint8).astype(int) + 1
    assert ByteTokenizer().decode(ids) == data.decode("utf-8", "replace")


@given(st.text(min_size=1))
def test_character_and_byte_counts_match_the_text(text):
    for tokenizer in (CharTokenizer.from_corpora(corpus_from_text("t", text)), ByteTokenizer()):
        ids = tokenizer.encode(text.replace("\r\n", "\n"))
        assert tokenizer.byte_counts[ids].sum() == len(text.replace("\r\n", "\n").encode())
        assert tokenizer.character_counts[ids].sum() == len(text.replace("\r\n", "\n"))


def test_padding_decodes_to_nothing():
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", "ab"))
    assert tokenizer.decode([0, 1, 0, 2, 0]) == "ab"
    assert ByteTokenizer().decode([0, 98, 0]) == "a"


def test_an_unknown_character_is_reported_with_line_and_column(tmp_path):
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", "abc\n"))
    (tmp_path / "test.txt").write_text("ab\nca\u00e9b\n")
    with pytest.raises(UsageError, match=r"test\.txt:2: '\\xe9' \(U\+00E9, column 3\) is not among the 4 characters"):
        encode_corpus(corpus_from_path(tmp_path / "test.txt"), tokenizer)
    with pytest.raises(UsageError, match=r"U\+D800"):
        tokenizer.encode("a\ud800")


@pytest.mark.parametrize("bad", [-1, 3, 10**12])
def test_an_id_outside_the_vocabulary_is_reported_with_its_position(bad):
    with pytest.raises(UsageError, match=f"id {bad} at position 1 is outside the vocabulary of 3"):
        CharTokenizer.from_corpora(corpus_from_text("t", "ab")).decode([1, bad])


def test_document_boundaries_are_kept(tmp_path):
    for name, text in (("1.txt", "abc"), ("2.txt", ""), ("3.txt", "cab!")):
        (tmp_path / name).write_text(text)
    corpus = corpus_from_path(tmp_path)
    tokenizer = CharTokenizer.from_corpora(corpus)
    encoded = encode_corpus(corpus, tokenizer)
    assert encoded.spans.starts.tolist() == [0, 3, 3]
    assert encoded.spans.lengths.tolist() == [3, 0, 4]
    assert tokenizer.decode(encoded.ids[3:]) == "cab!"


def test_an_empty_corpus_is_rejected_and_the_smallest_ones_work():
    with pytest.raises(UsageError, match="nothing holds no tokens"):
        encode_corpus(corpus_from_text("nothing", ""), ByteTokenizer())
    assert CharTokenizer.from_corpora(corpus_from_text("t", "a")).size == 2
    assert encode_corpus(
        corpus_from_text("t", "aaaa"), CharTokenizer.from_corpora(corpus_from_text("t", "aaaa"))
    ).ids.tolist() == [1, 1, 1, 1]


def test_nul_and_bidirectional_text_round_trip():
    text = "\x00\u202e\u05d0b\u0301 \x00"
    tokenizer = CharTokenizer.from_corpora(corpus_from_text("t", text))
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_equal_vocabularies_have_equal_digests():
    one, same, other = (CharTokenizer.from_corpora(corpus_from_text("t", text)) for text in ("abc", "cab", "abd"))
    assert one.digest == same.digest
    assert len({one.digest, other.digest, ByteTokenizer().digest}) == 3


@pytest.mark.parametrize("text", ["to be or not " * 400_000, "\u05d0\u05d1\u05d2 \u05d3" * 600_000])
def test_characters_and_bytes_are_encoded_at_20_mb_per_second(text):
    for tokenizer in (CharTokenizer.from_corpora(corpus_from_text("t", text[:100])), ByteTokenizer()):
        tokenizer.encode(text[:10])
        began = time.process_time()
        tokenizer.encode(text)
        assert len(text.encode()) / 1e6 / (time.process_time() - began) > 20
