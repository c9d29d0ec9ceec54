"""Addition of decimal numbers, written digit by digit: `BOS 4 7 + 3 8 = 8 5 EOS`.

Operands have one to `digits` digits and no leading zeros, so equations differ in length: shorter ones are padded on the
right, and the number of scored tokens (the digits of the result, and EOS) differs from one to the next.

>>> task = AdditionSettings(digits=1)
>>> [task.vocabulary()[token] for token in task.build_table().tokens[78]]
['BOS', '7', '+', '8', '=', '1', '5', 'EOS']
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

import numpy as np

from seedbed.settings import Conflict, DatasetInfo, PositiveInt, register_settings, setting
from seedbed.tasks.base import Ints
from seedbed.tasks.equations import (
    SPECIAL_TOKENS,
    EquationTable,
    EquationTask,
    EquationTokenizer,
    train_fraction_setting,
)

DRAW_SEED = 0  # of the equations of `task.equations`, the same for every run
PLUS, EQUALS, BOS, EOS, PAD = range(10, 15)  # token ids after the ten digits


@register_settings
class AdditionSettings(EquationTask):
    """Sums of decimal numbers, written digit by digit: `BOS 4 7 + 3 8 = 8 5 EOS`."""

    kind: Literal["addition"] = setting("addition", "which task", born="arithmetic", label="task")
    digits: int = setting(2, "digits of the longest operands", label="digits", ge=1, le=3)
    equations: PositiveInt | None = setting(
        None, "equations drawn from all, the same for every seed; unset: all", unit="equations"
    )
    reverse_result: bool = setting(False, "the result is written from its last digit to its first", per_run=True)
    train_fraction: float = train_fraction_setting()

    def count_train_samples(self) -> int:
        return sum(self._n_train_by_length())

    def mean_sample_tokens(self) -> float:
        """Over the training equations; the same for every seed, since each length is split apart."""
        n_train, lengths = self._n_train_by_length(), np.unique(self._lengths())
        return float(np.dot(n_train, lengths)) / max(1, sum(n_train))

    def _lengths(self) -> Ints:
        """Tokens of each equation that the model reads: all but EOS."""
        return _count_tokens(self.digits, self.equations)

    def _n_train_by_length(self) -> list[int]:
        """Training equations of each length, shortest first, halves rounded to even."""
        _, counts = np.unique(self._lengths(), return_counts=True)
        return [round(int(count) * self.train_fraction) for count in counts]

    def conflicts(self) -> Iterator[Conflict]:
        n_all, n = 10 ** (2 * self.digits), len(self._lengths())
        if self.equations is not None and self.equations > n_all:
            why = f"task.equations = {self.equations:,}: there are {n_all:,} equations of up to {self.digits} digits"
            yield "task.equations", why
        n_train = self.count_train_samples()
        yield from self.split_conflicts(n, n_train)

    def vocabulary(self) -> list[str]:
        return [*map(str, range(10)), "+", *SPECIAL_TOKENS]

    def load_tokenizer(self) -> EquationTokenizer:
        return EquationTokenizer(tuple(self.vocabulary()), self.max_tokens(), by_digit=True)

    def max_tokens(self) -> int:
        """BOS, two operands, +, = and a result that is one digit longer than they are."""
        return 3 * self.digits + 4

    def dataset_info(self) -> DatasetInfo:
        """Settings determine the data, so the digest is the generator's version."""
        return DatasetInfo(
            vocab_size=len(self.vocabulary()),
            context_length=self.max_tokens(),
            n_train=self.count_train_samples(),
            padding_id=PAD,
            digest="addition/1",
            tokens_per_sample=self.mean_sample_tokens(),
            chance=1 / 10**self.digits,  # the most frequent sum is 10^digits − 1, once for every first operand
            eos_id=EOS,
        )

    def shape_key(self) -> tuple[int, ...]:
        return (len(self._lengths()),)

    def n_scored_positions(self, info: DatasetInfo) -> int:
        return self.digits + 2

    def build_table(self) -> EquationTable:
        """Returns the equations sorted by their operands, with metrics for each number of digits."""
        operands = _draw_operands(self.digits, self.equations)
        a, b = operands.T
        tokens = np.full((len(operands), self.max_tokens() + 1), PAD, dtype=np.int64)
        rows, end = np.arange(len(operands)), np.ones(len(operands), dtype=np.int64)
        tokens[:, 0] = BOS
        for number, next_token in ((a, PLUS), (b, EQUALS), (a + b, EOS)):
            start, end = end, end + _n_digits(number)
            for j in range(self.digits + 1):
                has_digit = start + j < end
                power = j if next_token == EOS and self.reverse_result else end - start - 1 - j
                digit = number // 10 ** np.maximum(power, 0) % 10
                tokens[rows[has_digit], (start + j)[has_digit]] = digit[has_digit]
            tokens[rows, end] = next_token
            end = end + 1
        # The first scored position is that of `=`; the last, which reads the last digit, predicts EOS.
        last = self._lengths() - 1
        first_scored = np.argmax(tokens == EQUALS, axis=1)
        positions = first_scored[:, None] + np.arange(self.digits + 2)
        n_digits = _n_digits(operands.max(1))
        groups = {f"[digits={k}]": n_digits == k for k in range(1, self.digits + 1)} if self.digits > 1 else {}
        groups = {suffix: rows for suffix, rows in groups.items() if rows.any()}
        return EquationTable(tokens, np.minimum(positions, last[:, None]), positions <= last[:, None], groups)

    def split_rows(self, seed: int) -> tuple[Ints, Ints]:
        """Returns the rows of the training and validation equations for this seed.

        Equations of each length are shuffled and split apart, so that every seed trains on equally many tokens. When
        every row is a training row, the last one is also the validation set, as in modular arithmetic.
        """
        random, lengths = np.random.RandomState(seed), self._lengths()
        train, val = [], []
        for length, n_train in zip(np.unique(lengths), self._n_train_by_length(), strict=True):
            shuffled = random.permutation(np.flatnonzero(lengths == length))
            train.append(shuffled[:n_train])
            val.append(shuffled[n_train:])
        held_out = np.concatenate(val)
        return np.concatenate(train), held_out if len(held_out) else train[-1][-1:]


@cache
def _draw_operands(digits: int, n: int | None) -> Ints:
    """Returns all pairs of operands (N, 2), or n of them, sorted."""
    n_all = 10 ** (2 * digits)
    rows = np.arange(n_all)
    if n is not None and n < n_all:
        rows = np.sort(np.random.RandomState(DRAW_SEED).permutation(n_all)[:n])
    return np.stack(np.divmod(rows, 10**digits), axis=1)


@cache
def _count_tokens(digits: int, n: int | None) -> Ints:
    """Returns the tokens of each equation without EOS: BOS, + and =, and the digits of the three numbers."""
    a, b = _draw_operands(digits, n).T
    return 3 + _n_digits(a) + _n_digits(b) + _n_digits(a + b)


def _n_digits(numbers: Ints) -> Ints:
    """Returns the number of decimal digits; 0 has one."""
    return 1 + np.searchsorted(10 ** np.arange(1, 7), numbers, side="right")
