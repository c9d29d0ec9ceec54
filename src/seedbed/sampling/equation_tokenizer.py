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

from seedbed.data.arithmetic import SPECIAL_TOKENS, context_length, vocabulary
from seedbed.data.tokenizers import Counts, StreamDecoder, WordStreamDecoder, check_ids, utf8_lengths
from seedbed.errors import UsageError
from seedbed.settings import ArithmeticSettings

VISIBLE_SPECIAL_TOKEN = "="  # of the special tokens; the others are marks that a reader does without
_TOKEN_PATTERN = re.compile(r"\d+|[A-Z]+|\S")


class EquationTokenizer:
    """The vocabulary of modular arithmetic."""

    kind = "equations"

    def __init__(self, task: ArithmeticSettings) -> None:
        self.task, self.texts = task, tuple(vocabulary(task))
        self.max_length = context_length(task)

    @property
    def size(self) -> int:
        return len(self.texts)

    @property
    def bos_id(self) -> int:
        return self.texts.index("BOS")

    @property
    def eos_id(self) -> int:
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
        words = [(match.group(), match.start()) for match in _TOKEN_PATTERN.finditer(text)]
        ids = [self._token_id(word, at, text) for word, at in words]
        ids = ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]
        if len(ids) > self.max_length + 1:
            raise UsageError(
                f"{text!r} has {len(ids)} tokens, BOS included; an equation of this task has at most {self.max_length + 1}"
            )
        return np.array(ids, dtype=np.int64)

    def _token_id(self, word: str, at: int, text: str) -> int:
        name = str(int(word)) if word.isdecimal() else word
        if name not in self.texts:
            p, operator = self.task.p, self.task.operator
            raise UsageError(
                f"{text!r}: {word!r} (column {at + 1}) is no token of this task; expected 0 … {p - 1}, {operator} or ="
            )
        return self.texts.index(name)

    def decode(self, ids: Iterable[int]) -> str:
        texts = (self.texts[i] for i in check_ids(ids, self.size))
        return " ".join(text for text in texts if text == VISIBLE_SPECIAL_TOKEN or text not in SPECIAL_TOKENS)

    def decoder(self) -> StreamDecoder:
        return WordStreamDecoder(self.decode)
