"""Equations as tokens that a person can type: `12 + 8 =` to ids and back, with the methods of the texts' vocabularies.

>>> sums = Equations(Arithmetic(p=31))
>>> sums.encode("12 + 8 =").tolist()
[33, 12, 31, 8, 32]
>>> sums.decode([33, 12, 31, 8, 32, 20, 34])
'12 + 8 = 20'
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seedbed.data.arithmetic import SPECIAL, context_length, vocabulary
from seedbed.data.text import Counts, Spaced, StreamDecoder, checked, utf8_lengths
from seedbed.errors import UsageError
from seedbed.settings import Arithmetic

SHOWN = "="  # of the special tokens; the others are marks that a reader does without
_WORD = re.compile(r"\d+|[A-Z]+|\S")


class Equations:
    """The vocabulary of modular arithmetic."""

    kind = "equations"

    def __init__(self, task: Arithmetic) -> None:
        self.task, self.texts = task, tuple(vocabulary(task))
        self.longest = context_length(task)

    @property
    def size(self) -> int:
        return len(self.texts)

    @property
    def begin(self) -> int:
        return self.texts.index("BOS")

    @property
    def end(self) -> int:
        return self.texts.index("EOS")

    @cached_property
    def character_counts(self) -> Counts:
        """A token and the space after it."""
        return np.array([len(text) + 1 for text in self.texts], dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        return utf8_lengths(self.texts) + 1

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of an equation or its beginning; `BOS` may be left out."""
        words = [(match.group(), match.start()) for match in _WORD.finditer(text)]
        ids = [self._id_of(word, at, text) for word, at in words]
        ids = ids if ids[:1] == [self.begin] else [self.begin, *ids]
        if len(ids) > self.longest + 1:
            raise UsageError(
                f"{text!r} has {len(ids)} tokens, BOS included; an equation of this task has at most {self.longest + 1}"
            )
        return np.array(ids, dtype=np.int64)

    def _id_of(self, word: str, at: int, text: str) -> int:
        name = str(int(word)) if word.isdecimal() else word
        if name not in self.texts:
            p, operator = self.task.p, self.task.operator
            raise UsageError(
                f"{text!r}: {word!r} (column {at + 1}) is no token of this task; expected 0 … {p - 1}, {operator} or ="
            )
        return self.texts.index(name)

    def decode(self, ids: Iterable[int]) -> str:
        texts = (self.texts[i] for i in checked(ids, self.size))
        return " ".join(text for text in texts if text == SHOWN or text not in SPECIAL)

    def decoder(self) -> StreamDecoder:
        return Spaced(self.decode)
