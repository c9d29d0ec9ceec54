"""Byte-pair tokens: any text comes back from a trained one; GPT-1's agrees with the stored ids of WikiText-2."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbed.data.bpe import ByteLevelBPETokenizer, GPT1Tokenizer, read_token_ids
from seedbed.data.documents import corpus_from_text
from seedbed.data.tokenizers import encode_corpus
from seedbed.errors import MissingData, UsageError

TEXT = "the cat sat on the mat, the cat sat; \u05e9\u05dc\u05d5\u05dd \u05e9\u05dc\u05d5\u05dd \U0001f600\n" * 20
TRAINED = ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)


@given(st.text())
def test_a_trained_vocabulary_gives_any_text_back(text):
    assert TRAINED.decode(TRAINED.encode(text)) == text


@given(st.text())
def test_its_counts_of_characters_and_bytes_are_those_of_the_text(text):
    ids = TRAINED.encode(text)
    assert TRAINED.byte_counts[ids].sum() == len(text.encode())
    assert TRAINED.character_counts[ids].sum() == len(text)


@given(st.text(min_size=1))
def test_streamed_pieces_never_show_half_a_character(text):
    decoder = TRAINED.decoder()
    shown = [decoder.feed([one]) for one in TRAINED.encode(text)]
    assert "".join(shown) + decoder.flush() == text
    assert all("\ufffd" not in piece for piece in shown) or "\ufffd" in text


def test_merges_make_texts_shorter_and_ids_leave_room_for_padding():
    ids = TRAINED.encode(TEXT)
    assert len(ids) < len(TEXT) / 2
    assert ids.min() >= 1
    assert TRAINED.size <= 300
    assert TRAINED.texts[0] == "<pad>"


def test_a_document_gives_the_ids_of_its_text():
    text = "the  cat\n  sat \n\n on"
    assert np.array_equal(encode_corpus(corpus_from_text("t", text), TRAINED).ids, TRAINED.encode(text))


def test_training_twice_gives_the_same_vocabulary():
    again = ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)
    assert again.digest == TRAINED.digest
    assert ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=262).digest != TRAINED.digest


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(UsageError, match="at least 257"):
        ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=256)


def test_without_the_extra_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingData, match=r"pip install 'seedbed\[bpe\]'"):
        ByteLevelBPETokenizer.train(corpus_from_text("t", TEXT), vocab_size=300)


@pytest.fixture
def small(tmp_path) -> GPT1Tokenizer:
    """A vocabulary in GPT-1's form: letters, letters that end a word, and two merges."""
    texts = ["<unk>", "a", "b", "a</w>", "b</w>", "ab", "ab</w>"]
    (tmp_path / "encoder.json").write_text(json.dumps({text: i for i, text in enumerate(texts)}))
    (tmp_path / "merges.bpe").write_text("#version: 0.2\na b\na b</w>\n")
    return GPT1Tokenizer.from_files(tmp_path / "encoder.json", tmp_path / "merges.bpe")


def test_gpt1_lower_cases_and_maps_what_it_cannot_spell_to_unknown(small):
    ids = small.encode("AB ba x")
    assert [small.texts[i] for i in ids] == ["ab</w>", "b", "a</w>", "<unk>"]
    assert small.decode(ids) == "ab ba <unk>"
    assert small.size == 8


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', '{"a": 0, "b": 0}'])
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path, content):
    (tmp_path / "encoder.json").write_text(content)
    (tmp_path / "merges.bpe").write_text("#version\n")
    with pytest.raises(MissingData, match=r"encoder\.json"):
        GPT1Tokenizer.from_files(tmp_path / "encoder.json", tmp_path / "merges.bpe")


def stored(path, tokens, sizes):
    np.savez(path, tokens=np.array(tokens, np.uint16), sizes=np.array(sizes))
    return path


def test_stored_ids_are_taken_as_they_are(tmp_path):
    encoded = read_token_ids(stored(tmp_path / "t.npz", [5, 1, 7], [2, 0, 1]), vocab_size=8)
    assert encoded.ids.tolist() == [5, 1, 7]
    assert encoded.starts.tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("tokens", "sizes", "message"),
    [([5, 8], [2], "id 8 at place 1"), ([5, 0, 1], [3], "id 0 at place 1"), ([5, 1], [3], "add up")],
)
def test_stored_ids_that_do_not_fit_are_refused(tmp_path, tokens, sizes, message):
    with pytest.raises(UsageError, match=message):
        read_token_ids(stored(tmp_path / "t.npz", tokens, sizes), vocab_size=8)


def test_a_file_that_holds_no_ids_is_refused(tmp_path):
    (tmp_path / "t.npz").write_bytes(b"not a zip")
    with pytest.raises(MissingData, match=r"t\.npz holds no stored ids"):
        read_token_ids(tmp_path / "t.npz", vocab_size=8)
