"""BPE tokenizers: trained ones round-trip any text; GPT-1's format, stored ids and their errors."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.bpe import ByteLevelBPETokenizer, GPT1Tokenizer
from seedbed.data.datasets import encode_corpus, read_token_ids
from seedbed.data.documents import corpus_from_text
from seedbed.errors import MissingData, UsageError

TEXT = "the cat sat on the mat, the cat sat; \u05e9\u05dc\u05d5\u05dd \u05e9\u05dc\u05d5\u05dd \U0001f600\n" * 20
TOKENIZER = ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)


@given(st.text())
def test_any_text_round_trips(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text())
def test_character_and_byte_counts_match_the_text(text):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.byte_counts[ids].sum() == len(text.encode())
    assert TOKENIZER.character_counts[ids].sum() == len(text)


@given(st.text(min_size=1))
def test_stream_decoding_never_yields_an_incomplete_character(text):
    decoder = TOKENIZER.decoder()
    chunks = [decoder.feed([token]) for token in TOKENIZER.encode(text)]
    assert "".join(chunks) + decoder.flush() == text
    assert all("\ufffd" not in chunk for chunk in chunks) or "\ufffd" in text


def test_merges_shorten_texts_and_id_0_is_reserved_for_padding():
    ids = TOKENIZER.encode(TEXT)
    assert len(ids) < len(TEXT) / 2
    assert ids.min() >= 1
    assert TOKENIZER.size <= 300
    assert TOKENIZER.texts[0] == "<pad>"


def test_a_document_encodes_like_its_text():
    text = "the  cat\n  sat \n\n on"
    assert np.array_equal(encode_corpus(corpus_from_text("t", text), TOKENIZER).ids, TOKENIZER.encode(text))


def test_training_twice_gives_the_same_vocabulary():
    again = ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)
    assert again.digest == TOKENIZER.digest
    assert ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=262).digest != TOKENIZER.digest


def test_too_small_a_vocabulary_is_rejected():
    with pytest.raises(UsageError, match="at least 257"):
        ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=256)


def test_without_the_extra_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingData, match=r"pip install 'seedbed\[bpe\]'"):
        ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)


@pytest.fixture
def small(tmp_path) -> GPT1Tokenizer:
    """A vocabulary in GPT-1's format: letters, letters that end a word, and two merges."""
    texts = ["<unk>", "a", "b", "a</w>", "b</w>", "ab", "ab</w>"]
    (tmp_path / "encoder.json").write_text(json.dumps({text: i for i, text in enumerate(texts)}))
    (tmp_path / "merges.bpe").write_text("#version: 0.2\na b\na b</w>\n")
    return GPT1Tokenizer.from_files(tmp_path / "encoder.json", tmp_path / "merges.bpe")


def test_gpt1_lower_cases_and_maps_unknown_characters_to_unk(small):
    ids = small.encode("AB ba x")
    assert [small.texts[i] for i in ids] == ["ab</w>", "b", "a</w>", "<unk>"]
    assert small.decode(ids) == "ab ba <unk>"
    assert small.size == 8


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', '{"a": 0, "b": 0}'])
def test_a_malformed_vocabulary_file_is_rejected(tmp_path, content):
    (tmp_path / "encoder.json").write_text(content)
    (tmp_path / "merges.bpe").write_text("#version\n")
    with pytest.raises(MissingData, match=r"encoder\.json"):
        GPT1Tokenizer.from_files(tmp_path / "encoder.json", tmp_path / "merges.bpe")


def save_ids(path, tokens, sizes):
    np.savez(path, tokens=np.array(tokens, np.uint16), sizes=np.array(sizes))
    return path


def test_stored_ids_are_read_unchanged(tmp_path):
    encoded = read_token_ids(save_ids(tmp_path / "t.npz", [5, 1, 7], [2, 0, 1]), vocab_size=8)
    assert encoded.ids.tolist() == [5, 1, 7]
    assert encoded.spans.starts.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("tokens", "sizes", "message"),
    [([5, 8], [2], "id 8 at position 1"), ([5, 0, 1], [3], "id 0 at position 1"), ([5, 1], [3], "add up")],
)
def test_stored_ids_outside_the_vocabulary_or_of_wrong_length_are_rejected(tmp_path, tokens, sizes, message):
    with pytest.raises(UsageError, match=message):
        read_token_ids(save_ids(tmp_path / "t.npz", tokens, sizes), vocab_size=8)


def test_a_file_without_ids_is_rejected(tmp_path):
    (tmp_path / "t.npz").write_bytes(b"not a zip")
    with pytest.raises(MissingData, match=r"t\.npz holds no stored ids"):
        read_token_ids(tmp_path / "t.npz", vocab_size=8)


def test_tokens_are_readable_without_the_symbols_of_the_library():
    tokenizer = ByteLevelBPETokenizer.train(corpus_from_text("t", "the cat\nthe dog " * 50), vocab_size=300)
    readable = tokenizer.readable_texts
    ids = tokenizer.encode("the cat\nthe dog").tolist()
    assert "".join(readable[token] for token in ids) == "the cat\nthe dog"
    assert "Ġ" not in "".join(readable[token] for token in ids)
    assert readable[tokenizer.texts.index("Ã")] == "<c3>"  # one byte of two
