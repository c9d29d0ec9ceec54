"""Word tokenizer for English, in the style of the Penn Treebank; decoding puts words and punctuation together again.

Rules, applied to each line:

1. White space separates words. Case is kept.
2. Each of `; @ # $ % & ? ! *`, brackets and typographic quotes is a word; so are `--`, two or more dots, and backticks.
   An em dash, a hyphen or a slash stays inside its word (`state-of-the-art`, `America—the`).
3. A comma or colon is a word unless a digit follows (`1,200`, `9:30`).
4. A straight double quote becomes ``` `` ``` where it opens (line start, after white space or a bracket), else `''`.
5. The clitics `'s 'm 'd 'll 're 've` and `n't` at the end of a word are words (`do n't`); so is an apostrophe before
   white space or before a single other letter (`Shi ' a`). Elsewhere an apostrophe stays (`'em`, `o'clock`).
6. A period at the end of a sentence is a word, even before closing quotes or brackets; after initials and the
   ABBREVIATIONS it stays (`D.C.`, `Dr.`). A sentence ends with its line, and where white space and a capital follow
   the period and straight closing quotes or brackets (a typographic closing quote there keeps the period in its word,
   as in the reference vocabulary of report B: `lot.`).
7. `cannot`, `gonna`, `gotta`, `wanna`, `lemme`, `gimme` are two words.

>>> split_words('"We cannot wait," Dr. King said. They didn\\'t.')
['``', 'We', 'can', 'not', 'wait', ',', "''", 'Dr.', 'King', 'said', '.', 'They', 'did', "n't", '.']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np

from seedbed.data.documents import Corpus, iter_line_chunks
from seedbed.data.tokenizers import (
    PAD_ID,
    PAD_TOKEN,
    UNKNOWN_ID,
    UNKNOWN_TOKEN,
    PieceTokenizer,
    StreamDecoder,
    TokenIds,
    WordStreamDecoder,
    check_ids,
    smallest_id_dtype,
)

ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "Jr", "Sr", "St", "Gen", "Sen", "Rep", "Gov", "Prof", "Rev", "Hon", "vs", "v")
# by the length of the first word
SPLIT_CONTRACTIONS = dict.fromkeys(("cannot", "gonna", "gotta", "wanna", "lemme", "gimme"), 3)

_PUNCTUATION = r"""[;@\#$%&?!*\[\](){}<>«»„“”‘’] | -- | \.{2,} | `+ | [:,](?!\d)"""
_CLITIC = r"""(?<=[^\s'])(?: '(?:[smdSMD]|ll|LL|re|RE|ve|VE)(?!\w) | (?:n't|N'T)(?!\w) | '(?!\S) )"""
_LONE_APOSTROPHE = r"""'(?=[^\W_mtsdnMTSDN]\b)"""
_NOT_ABBREVIATION = r"(?<!\b[A-Z])" + "".join(rf"(?<!\b{word})" for word in ABBREVIATIONS)
_SENTENCE_PERIOD = rf"""{_NOT_ABBREVIATION}(?<!\.)\.(?=[\])}}>"'»”’]*\s*$ | [\])}}>"']*\s+[“‘"'(\[]*[A-Z])"""
_OPENING_QUOTE = r"""(?:^|(?<=[\s(\[{<]))(?:"|\'\')"""
_WORD_PATTERN = re.compile(
    rf"""(?P<opening>{_OPENING_QUOTE}) | (?P<closing>"|\'\')
       | {_PUNCTUATION} | {_CLITIC} | {_LONE_APOSTROPHE} | {_SENTENCE_PERIOD}
       | (?: (?! \s | " | \'\' | {_PUNCTUATION} | {_CLITIC} | {_LONE_APOSTROPHE} | {_SENTENCE_PERIOD} ) . )+""",
    re.VERBOSE,
)

_CLOSING_MARKS = frozenset([*",.;:?!%)]}>»”’'…", "''", "..."])  # stand directly after a word
_OPENING_MARKS = frozenset([*"([{<«„“‘$#", "``"])  # stand directly before a word
_CLITICS = re.compile(r"'(?:[smd]|ll|re|ve)|n't", re.IGNORECASE)
_APOSTROPHES = ("’", "'")  # words of their own before these endings (`it ’ s`, `Shi ' a`)
_AFTER_APOSTROPHE = re.compile(r"[a-z]|ll|re|ve", re.IGNORECASE)
_CONTRACTION_HALVES = {(word[:n], word[n:]) for word, n in SPLIT_CONTRACTIONS.items()}
_QUOTES = {"``": '"', "''": '"'}


def join_words(words: Iterable[str], before: str = "") -> str:
    """The words as running text; `before` is the word that the text goes on from.

    >>> print(join_words(["``", "We", "can", "not", "wait", ",", "''", "he", "said", "(", "they", "did", "n't", ")"]))
    "We cannot wait," he said (they didn't)
    """
    pieces = []
    for word in words:
        pieces.append((" " if _is_separated(before, word) else "") + _QUOTES.get(word, word))
        before = word
    return "".join(pieces)


def _is_separated(left: str, right: str) -> bool:
    """Whether a space stands between two words."""
    if not left or left in _OPENING_MARKS or right in _CLOSING_MARKS or _CLITICS.fullmatch(right):
        return False
    if left in _APOSTROPHES and _AFTER_APOSTROPHE.fullmatch(right):
        return False
    return (left.lower(), right.lower()) not in _CONTRACTION_HALVES


def split_words(text: str) -> list[str]:
    """Returns the words and punctuation marks of a text."""
    return [word for line in text.split("\n") for word in _split_line(line)]


def _split_line(line: str) -> Iterator[str]:
    for match in _WORD_PATTERN.finditer(line):
        word = match.group()
        if match.lastgroup:
            yield "``" if match.lastgroup == "opening" else "''"
        elif n := SPLIT_CONTRACTIONS.get(word.lower()):
            yield from (word[:n], word[n:])
        else:
            yield word


class WordTokenizer(PieceTokenizer):
    """One id per word: padding, unknown, then the sorted distinct words."""

    kind: ClassVar[str] = "words"

    @classmethod
    def from_corpora(cls, *corpora: Corpus) -> WordTokenizer:
        """Builds the vocabulary of these corpora; other words encode as unknown."""
        words: set[str] = set()
        for corpus in corpora:
            for document in corpus.documents:
                for lines in iter_line_chunks(document):
                    words.update(word for line in lines for word in _split_line(line))
        return cls((PAD_TOKEN, UNKNOWN_TOKEN, *sorted(words - {PAD_TOKEN, UNKNOWN_TOKEN})))

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """Words, each with one space after it; exact for single-spaced text."""
        return ("", *(f"{text} " for text in self.texts[1:]))

    @cached_property
    def _token_to_id(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts) if i > UNKNOWN_ID}

    def encode(self, text: str) -> TokenIds:
        return self.encode_lines(text.split("\n"))

    def encode_lines(self, lines: Iterable[str]) -> TokenIds:
        ids = [self._token_to_id.get(word, UNKNOWN_ID) for line in lines for word in _split_line(line)]
        return np.array(ids, dtype=smallest_id_dtype(self.size))

    def decoder(self) -> StreamDecoder:
        return WordStreamDecoder(self._words, join_words)

    def _words(self, ids: Iterable[int]) -> list[str]:
        return [self.texts[i] for i in check_ids(ids, self.size) if i != PAD_ID]
