"""Tokenizer for equations as a person types them: `12 + 8 =` to ids and back, with the text tokenizers' interface.

>>> tokenizer = EquationTokenizer(ArithmeticSettings(p=31))
>>> tokenizer.encode("12 + 8 =").tolist()
[33, 12, 31, 8, 32]
>>> tokenizer.decode([33, 12, 31, 8, 32, 20, 34])
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
from seedbed.kind_settings import ArithmeticSettings

VISIBLE_SPECIAL_TOKEN = "="  # the other special tokens (BOS, EOS, PAD) are left out of decoded text
_TOKEN_PATTERN = re.compile(r"\d+|[A-Z]+|\S")


class EquationTokenizer:
    """The tokens of a modular arithmetic task: numbers, the operator and special tokens."""

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
        """Length of each token with the space after it."""
        return np.array([len(text) + 1 for text in self.texts], dtype=np.int64)

    @cached_property
    def byte_counts(self) -> Counts:
        return utf8_lengths(self.texts) + 1

    def encode(self, text: str) -> NDArray[np.int64]:
        """Token ids of an equation or the beginning of one; a missing `BOS` is added."""
        ids = [self._token_id(match.group(), match.start(), text) for match in _TOKEN_PATTERN.finditer(text)]
        ids = ids if ids[:1] == [self.bos_id] else [self.bos_id, *ids]
        if len(ids) > self.max_length + 1:
            raise UsageError(
                f"{text!r} has {len(ids)} tokens, BOS included; "
                f"an equation of this task has at most {self.max_length + 1}"
            )
        return np.array(ids, dtype=np.int64)

    def _token_id(self, word: str, start: int, text: str) -> int:
        name = str(int(word)) if word.isdecimal() else word
        if name not in self.texts:
            p, operator = self.task.p, self.task.operator
            raise UsageError(
                f"{text!r}: {word!r} (column {start + 1}) is not a token of this task; "
                f"expected 0 … {p - 1}, {operator} or ="
            )
        return self.texts.index(name)

    def decode(self, ids: Iterable[int]) -> str:
        texts = (self.texts[i] for i in check_ids(ids, self.size))
        return " ".join(text for text in texts if text == VISIBLE_SPECIAL_TOKEN or text not in SPECIAL_TOKENS)

    def decoder(self) -> StreamDecoder:
        return WordStreamDecoder(self.decode)
