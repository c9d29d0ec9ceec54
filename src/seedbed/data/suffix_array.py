"""Suffix array of a text, to find which spans of other texts are verbatim copies from it.

    index = SuffixArray(training_text)
    find_copied_spans(index, ["a text", "another"])   # per text, matches of 20 characters or more

For every position of a query text, the index gives the length of the longest match that starts there; the n-gram at a
position occurs in the indexed text if that length is at least n.

>>> index = SuffixArray("to be or not to be")
>>> index.longest_match_lengths("not to go")
array([7, 6, 5, 4, 3, 2, 1, 0, 1])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seedbed.data.tokenizers import text_to_codepoints

MIN_COPIED_CHARACTERS = 20  # shorter matches do not count as copied, since many occur by chance
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*")
_PACKED_BITS = 63  # of an int64 without its sign

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CopiedSpan:
    """Characters start … end − 1 of a sample, which occur verbatim in the training text."""

    start: int
    end: int


def find_copied_spans(index: SuffixArray, texts: Sequence[str]) -> tuple[tuple[CopiedSpan, ...], ...]:
    """Returns the maximal copied spans of each text."""
    return tuple(tuple(maximal_spans(lengths)) for lengths in match_lengths_by_text(index, texts))


def match_lengths_by_text(index: SuffixArray, texts: Sequence[str]) -> list[Ints]:
    """Returns, for every position of each text, the length of the longest match that starts there."""
    if not texts:
        return []
    ends = np.cumsum([len(text) for text in texts])
    by_text = np.split(index.longest_match_lengths("".join(texts)), ends[:-1])
    # All texts are matched at once; a match must not extend into the next text.
    return [np.minimum(lengths, np.arange(lengths.size, 0, -1)) for lengths in by_text]


def maximal_spans(match_lengths: Ints) -> Iterator[CopiedSpan]:
    """Yields the copied spans that are not contained in another."""
    ends = np.arange(match_lengths.size) + match_lengths
    starts = np.flatnonzero((match_lengths >= MIN_COPIED_CHARACTERS) & (ends > np.concatenate([[0], ends[:-1]])))
    for start in starts.tolist():
        yield CopiedSpan(start, int(ends[start]))


class SuffixArray:
    """A text with its sorted suffixes, for longest-match queries against other texts."""

    def __init__(self, text: str) -> None:
        self._text = text
        codes = text_to_codepoints(text).astype(np.int64)
        self._alphabet = np.unique(codes)
        bits = max(1, int(self._alphabet.size + 1).bit_length())
        self._bits_per_character, self._characters_per_int = bits, _PACKED_BITS // bits
        self._packed_text = self._pack_characters(codes)
        self._suffixes = _build_suffix_array(self._packed_text[: len(text)], self._characters_per_int)

    @cached_property
    def casefolded_words(self) -> frozenset[str]:
        """The distinct words of the text, case-folded."""
        return frozenset(word.casefold() for word in WORD_PATTERN.findall(self._text))

    def longest_match_lengths(self, text: str) -> Ints:
        """Returns, for every position of a query text, the length of the longest match that starts there."""
        codes = text_to_codepoints(text).astype(np.int64)
        if not codes.size or not self._suffixes.size:
            return np.zeros(codes.size, dtype=np.int64)
        packed = self._pack_characters(codes)
        points = self._insertion_points(packed, codes.size)
        # The longest common prefix is with one of the two neighbours in sorted order.
        previous = self._suffixes[np.maximum(points - 1, 0)]
        following = self._suffixes[np.minimum(points, self._suffixes.size - 1)]
        query = np.arange(codes.size)
        return np.maximum(
            self._common_prefix_lengths(packed, query, previous), self._common_prefix_lengths(packed, query, following)
        )

    def _pack_characters(self, codes: Ints) -> Ints:
        """Packs the characters that follow each position into one integer, so that one comparison orders them all.

        Characters are numbered from 1; 0 pads past the end, and characters unknown to the indexed text sort last.
        """
        rank = np.searchsorted(self._alphabet, codes)
        known = self._alphabet[np.minimum(rank, self._alphabet.size - 1)] == codes if self._alphabet.size else False
        digits = np.where(known, rank + 1, self._alphabet.size + 1).astype(np.int64)
        padded = np.concatenate([digits, np.zeros(self._characters_per_int, dtype=np.int64)])
        packed = np.zeros(codes.size + 1, dtype=np.int64)
        for offset in range(self._characters_per_int):
            packed = (packed << self._bits_per_character) | padded[offset : offset + packed.size]
        return packed

    def _insertion_points(self, packed: Ints, n: int) -> Ints:
        """Returns where each suffix of the query sorts among the indexed ones, by one vectorized binary search."""
        low, high = np.zeros(n, dtype=np.int64), np.full(n, self._suffixes.size, dtype=np.int64)
        query = np.arange(n)
        for _ in range(int(self._suffixes.size).bit_length()):
            middle = (low + high) // 2
            active = low < high
            suffix = self._suffixes[np.minimum(middle, self._suffixes.size - 1)]
            precedes = self._suffix_precedes(packed, query, suffix)
            low = np.where(active & precedes, middle + 1, low)
            high = np.where(active & ~precedes, middle, high)
        return low

    def _suffix_precedes(self, packed: Ints, query: Ints, suffix: Ints) -> NDArray[np.bool_]:
        """Returns whether each indexed suffix sorts before the query's suffix."""
        result = np.zeros(query.size, dtype=bool)
        pending = np.arange(query.size)  # pairs that are equal so far
        while pending.size:
            theirs, ours = _packed_at(packed, query), _packed_at(self._packed_text, suffix)
            result[pending] = ours < theirs
            equal = (ours == theirs) & (suffix < self._suffixes.size) & (query < packed.size - 1)
            pending, query, suffix = pending[equal], query[equal], suffix[equal]
            query, suffix = query + self._characters_per_int, suffix + self._characters_per_int
        return result

    def _common_prefix_lengths(self, packed: Ints, query: Ints, suffix: Ints) -> Ints:
        """Returns the length of the common prefix of each query suffix and indexed suffix."""
        lengths = np.zeros(query.size, dtype=np.int64)
        pending = np.arange(query.size)  # pairs that are equal so far
        n_query, n_indexed = packed.size - 1, self._suffixes.size
        while pending.size:
            difference = _packed_at(packed, query) ^ _packed_at(self._packed_text, suffix)
            n_equal = np.zeros(pending.size, dtype=np.int64)
            for k in range(1, self._characters_per_int + 1):  # are the first k characters equal?
                n_equal += (difference >> (self._bits_per_character * (self._characters_per_int - k))) == 0
            n_left = np.minimum(n_query - query, n_indexed - suffix)  # equal padding past an end is no match
            lengths[pending] += np.minimum(n_equal, np.maximum(n_left, 0))
            full = (n_equal == self._characters_per_int) & (n_left > self._characters_per_int)
            pending, query, suffix = pending[full], query[full], suffix[full]
            query, suffix = query + self._characters_per_int, suffix + self._characters_per_int
        return lengths


def _packed_at(packed: Ints, positions: Ints) -> Ints:
    """Returns the packed characters from each position on; 0 past the end."""
    return packed[np.minimum(positions, packed.size - 1)]


def _build_suffix_array(packed: Ints, n_sorted: int) -> Ints:
    """Builds the suffix array by prefix doubling (Manber and Myers 1993); only tied suffixes are sorted again.

    The packed integers already order suffixes by their first `n_sorted` characters.
    """
    order = np.argsort(packed, kind="stable")
    ranks = _initial_ranks(packed[order], order)
    while True:
        sorted_ranks = ranks[order]
        edges = np.flatnonzero(np.diff(sorted_ranks)) + 1
        group_sizes = np.diff(np.concatenate([[0], edges, [order.size]]))
        tied = np.flatnonzero(np.repeat(group_sizes, group_sizes) > 1) if order.size else np.array([], dtype=np.int64)
        if not tied.size:
            return order
        suffixes = order[tied]
        continuation = suffixes + n_sorted  # the rank of what follows the sorted prefix breaks the tie
        next_rank = np.where(continuation < order.size, ranks[np.minimum(continuation, order.size - 1)] + 1, 0)
        keys = ranks[suffixes] * (order.size + 1) + next_rank
        key_order = np.argsort(keys, kind="stable")
        order[tied] = suffixes[key_order]
        ranks[order[tied]] = _ranks_of_sorted_keys(keys[key_order], tied)
        n_sorted *= 2


def _initial_ranks(sorted_packed: Ints, order: Ints) -> Ints:
    """Returns each suffix's rank: the position of the first suffix tied with it."""
    ranks = np.empty(order.size, dtype=np.int64)
    ranks[order] = _ranks_of_sorted_keys(sorted_packed, np.arange(order.size))
    return ranks


def _ranks_of_sorted_keys(sorted_keys: Ints, positions: Ints) -> Ints:
    """Returns, for each sorted key, the position of the first key equal to it."""
    is_first = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])[: sorted_keys.size]
    return np.maximum.accumulate(np.where(is_first, positions, 0))
