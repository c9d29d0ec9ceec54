"""Copying statistics, against plain substring search."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.corpora import require_corpora

from seedbed.data.suffix_array import CopiedSpan, SuffixArray, find_copied_spans, match_lengths_by_text
from seedbed.stats.copying import NGRAM_LENGTHS, copy_statistics, held_out_pieces, split_evenly


def longest_by_search(text: str, sample: str, start: int) -> int:
    length = 0
    while start + length < len(sample) and sample[start : start + length + 1] in text:
        length += 1
    return length


@given(st.text("ab", max_size=40), st.text("abc", max_size=20))
def test_match_lengths_are_those_of_a_plain_search(text: str, sample: str) -> None:
    expected = [longest_by_search(text, sample, start) for start in range(len(sample))]
    assert SuffixArray(text).longest_match_lengths(sample).tolist() == expected


@given(st.text(max_size=30), st.text(max_size=12))
def test_texts_of_any_script_work(text: str, sample: str) -> None:
    mixed = sample + text[3:9] + sample
    expected = [longest_by_search(text, mixed, start) for start in range(len(mixed))]
    assert SuffixArray(text).longest_match_lengths(mixed).tolist() == expected


def test_matches_longer_than_one_packed_word_are_found_whole() -> None:
    rng = random.Random(3)
    text = "".join(rng.choice("abcdefgh ") for _ in range(3000))
    sample = "zz" + text[1000:1400] + "#" + text[50:70] + text[2990:]
    lengths = SuffixArray(text).longest_match_lengths(sample)
    assert [lengths[index] for index in (0, 2, 3, 402, 403)] == [0, 400, 399, 0, 20]
    assert lengths.tolist() == [longest_by_search(text, sample, start) for start in range(len(sample))]


def test_a_text_of_one_repeated_letter_works() -> None:
    assert SuffixArray("a" * 500).longest_match_lengths("aab" + "a" * 600).tolist()[:4] == [2, 1, 0, 500]


def test_ngram_overlap_spans_and_novel_words_by_hand() -> None:
    index = SuffixArray("the quick brown fox jumps over the lazy dog. ")
    texts = ["the quick brown fox sits", "###"]
    statistics = copy_statistics(index, texts)
    # 'the quick brown fox s' does not occur, so the longest span is 20 characters, with the space after fox
    assert find_copied_spans(index, texts) == ((CopiedSpan(0, 20),), ())
    assert statistics.ngram_overlap[4] == pytest.approx(17 / 21)  # 21 4-grams in the first text, none in the second
    assert statistics.ngram_overlap[20] == pytest.approx(1 / 5)
    assert np.isnan(statistics.ngram_overlap[40])
    assert statistics.novel_word_share == 0.0  # 'sits' touches the end, so it may be cut


def test_novel_words_are_counted_whatever_their_case() -> None:
    index = SuffixArray("Thou art here, don't go")
    assert copy_statistics(index, ["thou ART gone, DON'T gu. "]).novel_word_share == pytest.approx(2 / 5)


def test_a_match_does_not_extend_from_one_sample_into_the_next() -> None:
    index = SuffixArray("abcdefghijklmnopqrstuvwxyz")
    first, second = match_lengths_by_text(index, ["abcdef", "ghijkl"])
    assert (first.max(), second.max()) == (6, 6)


def test_held_out_text_is_cut_into_pieces_of_the_samples_length() -> None:
    assert split_evenly("abcdefghij", 3, 3) == ["abc", "def", "hij"]
    assert split_evenly("abcdefghij", 3, 99) == ["abc", "def", "hij"]
    assert split_evenly("ab", 3, 2) == ["ab"]
    assert split_evenly("", 3, 2) == []


def test_copied_samples_are_distinguished_from_held_out_text() -> None:
    rng = random.Random(4)
    text = "".join(rng.choice("abcdefghij ") for _ in range(20_000))
    train, held_out = text[:16_000], text[16_000:]
    index = SuffixArray(train)
    samples = [train[start : start + 200] for start in range(0, 4000, 400)]
    pieces = held_out_pieces(held_out, samples)
    assert [len(piece) for piece in pieces] == [200] * 10
    assert copy_statistics(index, samples).mean_ngram_overlap == 1.0
    assert copy_statistics(index, pieces).mean_ngram_overlap < 0.2


def test_empty_input_gives_nan_and_no_error() -> None:
    empty = copy_statistics(SuffixArray("abc"), [])
    assert np.isnan(empty.mean_ngram_overlap)
    assert np.isnan(empty.novel_word_share)
    assert held_out_pieces("", ["abcd"]) == []


def test_a_megabyte_and_a_hundred_samples_take_two_seconds_at_most() -> None:
    text = (require_corpora("tinyshakespeare/input.txt") / "tinyshakespeare/input.txt").read_text(encoding="utf-8")
    train, held_out = text[:1_000_000], text[1_000_000:]
    rng = random.Random(0)
    samples = [
        train[start : start + 300] + held_out[start % 90_000 :][:200] for start in rng.choices(range(990_000), k=100)
    ]
    begin = time.process_time()
    index, pieces = SuffixArray(train), held_out_pieces(held_out, samples)
    copied, baseline = copy_statistics(index, samples), copy_statistics(index, pieces)
    assert time.process_time() - begin <= 2.0
    assert len(pieces) == 100
    assert copied.ngram_overlap[40] > 0.5
    assert baseline.ngram_overlap[4] > 0.9 > 0.01 > baseline.ngram_overlap[20]
    assert list(copied.ngram_overlap) == list(NGRAM_LENGTHS)
