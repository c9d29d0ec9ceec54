"""Words: English text cut into words and signs, and the vocabulary of a corpus; samples join words by one space.

The rules, line by line (a line, or a sentence inside it, is where a full stop can stand):

1. White space separates. Case is kept.
2. Each of `; @ # $ % & ? ! *`, brackets and typographic quotes is a word; so are `--`, two or more dots, and backticks.
   An em dash, a hyphen or a slash stays inside its word (`state-of-the-art`, `America—the`).
3. A comma or colon is a word unless a digit follows (`1,200`, `9:30`).
4. A straight double quote becomes ``` `` ``` where it opens (line start, after white space or a bracket), else `''`.
5. `'s 'm 'd 'll 're 've` and `n't` at the end of a word are words (`do n't`); so is an apostrophe before white space,
   and one before a single other letter (`Shi ' a`). Elsewhere an apostrophe stays (`'em`, `o'clock`).
6. A full stop at the end of a sentence is a word, even if quotes or brackets close after it; after initials and the
   ABBREVIATIONS it stays (`D.C.`, `Dr.`). A sentence ends with its line, and where white space and a capital follow
   the stop and straight closing signs (a typographic closing quote there keeps the stop in its word, as in the
   vocabulary that report B was counted with: `lot.`).
7. `cannot`, `gonna`, `gotta`, `wanna`, `lemme`, `gimme` are two words.

>>> cut_words('"We cannot wait," Dr. King said. They didn\\'t.')
['``', 'We', 'can', 'not', 'wait', ',', "''", 'Dr.', 'King', 'said', '.', 'They', 'did', "n't", '.']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seedbed.data.documents import Corpus, Document, line_pieces
from seedbed.data.text import (
    PAD,
    PAD_TEXT,
    UNKNOWN,
    UNKNOWN_TEXT,
    Counts,
    Ids,
    Spaced,
    StreamDecoder,
    checked,
    digest_of,
    id_type,
    utf8_lengths,
)

ABBREVIATIONS = ("Mr", "Mrs", "Ms", "Dr", "Jr", "Sr", "St", "Gen", "Sen", "Rep", "Gov", "Prof", "Rev", "Hon", "vs", "v")
TWO_WORDS = {"cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "lemme": 3, "gimme": 3}  # where they part

_SIGN = r"""[;@\#$%&?!*\[\](){}<>«»„“”‘’] | -- | \.{2,} | `+ | [:,](?!\d)"""
_TAIL = r"""(?<=[^\s'])(?: '(?:[smdSMD]|ll|LL|re|RE|ve|VE)(?!\w) | (?:n't|N'T)(?!\w) | '(?!\S) )"""
_LONE = r"""'(?=[^\W_mtsdnMTSDN]\b)"""
_KEPT = r"(?<!\b[A-Z])" + "".join(rf"(?<!\b{word})" for word in ABBREVIATIONS)
_STOP = rf"""{_KEPT}(?<!\.)\.(?=[\])}}>"'»”’]*\s*$ | [\])}}>"']*\s+[“‘"'(\[]*[A-Z])"""
_OPENING = r"""(?:^|(?<=[\s(\[{<]))(?:"|\'\')"""
_WORD = re.compile(
    rf"""(?P<opening>{_OPENING}) | (?P<closing>"|\'\') | {_SIGN} | {_TAIL} | {_LONE} | {_STOP}
       | (?: (?! \s | " | \'\' | {_SIGN} | {_TAIL} | {_LONE} | {_STOP} ) . )+""",
    re.VERBOSE,
)


def cut_words(text: str) -> list[str]:
    """The words and signs of a text."""
    return [word for line in text.split("\n") for word in _cut_line(line)]


def _cut_line(line: str) -> Iterator[str]:
    for match in _WORD.finditer(line):
        word = match.group()
        if match.lastgroup:
            yield "``" if match.lastgroup == "opening" else "''"
        elif part := TWO_WORDS.get(word.lower()):
            yield from (word[:part], word[part:])
        else:
            yield word


@dataclass(frozen=True)
class Words:
    """One id per word: padding, unknown, then the sorted distinct words."""

    texts: tuple[str, ...]
    kind: str = "words"

    @classmethod
    def of(cls, *corpora: Corpus) -> Words:
        """Every word of these corpora; words of other texts are unknown."""
        seen: set[str] = set()
        for corpus in corpora:
            for document in corpus.documents:
                for lines in line_pieces(document):
                    seen.update(word for line in lines for word in _cut_line(line))
        return cls((PAD_TEXT, UNKNOWN_TEXT, *sorted(seen - {PAD_TEXT, UNKNOWN_TEXT})))

    @property
    def size(self) -> int:
        return len(self.texts)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.kind, self.texts)

    @cached_property
    def character_counts(self) -> Counts:
        """A word and the space after it; exact but for other spacing."""
        return np.array([0] + [len(text) + 1 for text in self.texts[1:]], dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        """As for characters."""
        lengths = utf8_lengths(self.texts)
        lengths[PAD + 1 :] += 1
        return lengths

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts) if i > UNKNOWN}

    def encode(self, text: str) -> Ids:
        return self._ids(text.split("\n"))

    def pieces(self, document: Document) -> Iterator[Ids]:
        return map(self._ids, line_pieces(document))

    def _ids(self, lines: Iterable[str]) -> Ids:
        ids = [self._id_of.get(word, UNKNOWN) for line in lines for word in _cut_line(line)]
        return np.array(ids, dtype=id_type(self.size))

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.texts[i] for i in checked(ids, self.size) if i != PAD)

    def decoder(self) -> StreamDecoder:
        return Spaced(self.decode)
