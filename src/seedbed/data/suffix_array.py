"""What of one text stands verbatim in another: an index of the one, and the spans of the other.

    index = TextIndex(training_text)
    verbatim_spans(index, ["a text", "another"])      # stretches of 20 characters or more, text by text

The index is a suffix array. From it comes, for every position of a text, the longest run of characters from there on
that stands verbatim in the indexed one; an n-gram was seen where that run is at least n.

>>> index = TextIndex("to be or not to be")
>>> index.longest_from("not to go")
array([7, 6, 5, 4, 3, 2, 1, 0, 1])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

MIN_COPIED_CHARACTERS = 20  # characters; a shorter run is not called a copied span, since many occur by chance
WORD_PATTERN = re.compile(r"\w+(?:['’]\w+)*")
_PACKED_BITS = 63

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CopiedSpan:
    """Characters start … end − 1 of a sample, which stand verbatim in the training text."""

    start: int
    end: int


def find_copied_spans(index: SuffixArray, texts: Sequence[str]) -> tuple[tuple[CopiedSpan, ...], ...]:
    """What of each text stands in the indexed one."""
    return tuple(tuple(maximal_spans(run)) for run in match_lengths_by_text(index, texts))


def match_lengths_by_text(index: SuffixArray, texts: Sequence[str]) -> list[Ints]:
    """For every position of each text, how many characters from there on stand in the indexed one."""
    runs = _split_by_text(index.longest_match_lengths("".join(texts)), texts)
    return [np.minimum(run, np.arange(run.size, 0, -1)) for run in runs]  # a match does not reach into the next text


def _split_by_text(values: Ints, texts: Sequence[str]) -> list[Ints]:
    return np.split(values, np.cumsum([len(text) for text in texts])[:-1]) if texts else []


def maximal_spans(match_lengths: Ints) -> Iterator[CopiedSpan]:
    """The copied spans that no other one contains."""
    ends = np.arange(match_lengths.size) + match_lengths
    starts = np.flatnonzero((match_lengths >= MIN_COPIED_CHARACTERS) & (ends > np.concatenate([[0], ends[:-1]])))
    for start in starts.tolist():
        yield CopiedSpan(start, int(ends[start]))


class SuffixArray:
    """A text sorted by its suffixes, to look up what of another text stands in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        codes = _to_codepoints(text)
        self._alphabet = np.unique(codes)
        bits = max(1, int(self._alphabet.size + 1).bit_length())
        self._bits_per_character, self._characters_per_int = bits, _PACKED_BITS // bits
        self._packed_text = self._pack_characters(codes)
        self._suffixes = _build_suffix_array(self._packed_text[: len(text)], self._characters_per_int)

    @cached_property
    def casefolded_words(self) -> frozenset[str]:
        """Every word of the text, whatever its case."""
        return frozenset(word.casefold() for word in WORD_PATTERN.findall(self._text))

    def longest_match_lengths(self, text: str) -> Ints:
        """For every position of a text, how many characters from there on stand verbatim in the indexed one."""
        codes = _to_codepoints(text)
        if not codes.size or not self._suffixes.size:
            return np.zeros(codes.size, dtype=np.int64)
        words = self._pack_characters(codes)
        places = self._insertion_points(words, codes.size)
        above = self._suffixes[np.maximum(places - 1, 0)]
        below = self._suffixes[np.minimum(places, self._suffixes.size - 1)]
        at = np.arange(codes.size)
        return np.maximum(self._common_prefix_lengths(words, at, above), self._common_prefix_lengths(words, at, below))

    def _pack_characters(self, codes: Ints) -> Ints:
        """Each position's next characters as one number, so that one comparison compares them all in order.

        Characters count from 1; 0 pads after the end, and a character that the indexed text lacks is above all others.
        """
        place = np.searchsorted(self._alphabet, codes)
        known = self._alphabet[np.minimum(place, self._alphabet.size - 1)] == codes if self._alphabet.size else False
        digits = np.where(known, place + 1, self._alphabet.size + 1).astype(np.int64)
        padded = np.concatenate([digits, np.zeros(self._characters_per_int, dtype=np.int64)])
        words = np.zeros(codes.size + 1, dtype=np.int64)
        for offset in range(self._characters_per_int):
            words = (words << self._bits_per_character) | padded[offset : offset + words.size]
        return words

    def _insertion_points(self, packed: Ints, n: int) -> Ints:
        """Where each suffix of the other text would stand among ours: one binary search for all of them."""
        low, high = np.zeros(n, dtype=np.int64), np.full(n, self._suffixes.size, dtype=np.int64)
        at = np.arange(n)
        for _ in range(int(self._suffixes.size).bit_length()):
            middle = (low + high) // 2
            open_ = low < high
            ours_first = self._suffix_precedes(packed, at, self._suffixes[np.minimum(middle, self._suffixes.size - 1)])
            low = np.where(open_ & ours_first, middle + 1, low)
            high = np.where(open_ & ~ours_first, middle, high)
        return low

    def _suffix_precedes(self, packed: Ints, at: Ints, ours: Ints) -> NDArray[np.bool_]:
        """Whether our suffix comes before theirs."""
        result = np.zeros(at.size, dtype=bool)
        left = np.arange(at.size)
        here, there = at, ours
        while left.size:
            their, our = _packed_at(packed, here), _packed_at(self._packed_text, there)
            result[left] = our < their
            same = (our == their) & (there < self._suffixes.size) & (here < packed.size - 1)
            left, here, there = (
                left[same],
                here[same] + self._characters_per_int,
                there[same] + self._characters_per_int,
            )
        return result

    def _common_prefix_lengths(self, packed: Ints, at: Ints, ours: Ints) -> Ints:
        """How many characters two suffixes have in common."""
        lengths = np.zeros(at.size, dtype=np.int64)
        left = np.arange(at.size)
        here, there = at, ours
        n_theirs, n_ours = packed.size - 1, self._suffixes.size
        while left.size:
            differing = _packed_at(packed, here) ^ _packed_at(self._packed_text, there)
            equal = np.zeros(left.size, dtype=np.int64)
            for kept in range(1, self._characters_per_int + 1):
                equal += (differing >> (self._bits_per_character * (self._characters_per_int - kept))) == 0
            room = np.minimum(n_theirs - here, n_ours - there)
            lengths[left] += np.minimum(equal, np.maximum(room, 0))
            full = (equal == self._characters_per_int) & (room > self._characters_per_int)
            left, here, there = (
                left[full],
                here[full] + self._characters_per_int,
                there[full] + self._characters_per_int,
            )
        return lengths


def _packed_at(packed: Ints, positions: Ints) -> Ints:
    """The packed characters from each place on; nothing after the end."""
    return packed[np.minimum(positions, packed.size - 1)]


def _to_codepoints(text: str) -> Ints:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)


def _build_suffix_array(packed: Ints, n_sorted: int) -> Ints:
    """The suffix array by prefix doubling (Manber and Myers 1993); only suffixes not yet alone are sorted again."""
    order = np.argsort(packed, kind="stable")
    ranks = _initial_ranks(packed[order], order)
    while True:
        ordered = ranks[order]
        edges = np.flatnonzero(np.diff(ordered)) + 1
        sizes = np.diff(np.concatenate([[0], edges, [order.size]]))
        crowded = np.flatnonzero(np.repeat(sizes, sizes) > 1) if order.size else np.array([], dtype=np.int64)
        if not crowded.size:
            return order
        members = order[crowded]
        later = members + n_sorted
        next_rank = np.where(later < order.size, ranks[np.minimum(later, order.size - 1)] + 1, 0)
        keys = ranks[members] * (order.size + 1) + next_rank
        within = np.argsort(keys, kind="stable")
        order[crowded] = members[within]
        ranks[order[crowded]] = _ranks_of_sorted_keys(keys[within], crowded)
        n_sorted *= 2


def _initial_ranks(ordered_words: Ints, order: Ints) -> Ints:
    """Each suffix's rank: the place of the first one that is equal to it so far."""
    ranks = np.empty(order.size, dtype=np.int64)
    ranks[order] = _ranks_of_sorted_keys(ordered_words, np.arange(order.size))
    return ranks


def _ranks_of_sorted_keys(ordered_keys: Ints, positions: Ints) -> Ints:
    starts = np.concatenate([[True], ordered_keys[1:] != ordered_keys[:-1]])[: ordered_keys.size]
    return np.maximum.accumulate(np.where(starts, positions, 0))
