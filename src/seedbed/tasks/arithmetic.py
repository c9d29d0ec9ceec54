"""Modular arithmetic as token sequences: the table of all equations and its train/validation split.

A binary equation is `BOS a + b = r EOS`; a ternary one has a third operand. When a task has both, the shorter ones are
padded on the right. Only the tokens after `=` (r and EOS) are scored. Table order and split follow the course's starter
code, so equal seeds reproduce its training sets. Batches are drawn in `equation_batches.py`.

>>> task = ArithmeticSettings(p=3)
>>> [task.vocabulary()[token] for token in task.build_table().tokens[5]]
['BOS', '1', '+', '2', '=', '0', 'EOS']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import gcd, isqrt, log
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from seedbed.settings import Conflict, DatasetInfo, as_tuple, register_settings, setting
from seedbed.tasks.base import Ints, OperandPairs
from seedbed.tasks.equations import SPECIAL_TOKENS, EquationTable, EquationTask, train_fraction_setting

OperandCounts = Annotated[tuple[Literal[2, 3], ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=2)]
N_SCORED_TOKENS = 2  # r and EOS
N_PROMPT_TOKENS = 5  # of an equation with two operands: BOS a + b =


@register_settings
class ArithmeticSettings(EquationTask):
    """Equations modulo p, written as tokens: `BOS a + b = r EOS`."""

    kind: Literal["arithmetic"] = setting("arithmetic", "which task", label="task")
    p: int = setting(31, "modulus; numbers 0 … p−1 are one token each", label="modulus p", ge=2, le=10_000)
    operator: Literal["+", "-", "*", "/"] = setting("+", "operation between the numbers", per_run=True)
    orders: OperandCounts = setting((2,), "numbers of operands: [2], [3] or [2, 3]", label="operands per equation")
    train_fraction: float = train_fraction_setting()

    def n_equations(self, order: int) -> int:
        """All ordered tuples of operands; a divisor is never 0."""
        return int(self.p * (self.p - (self.operator == "/")) ** (order - 1))

    def n_train(self, order: int) -> int:
        """Training equations of one order, halves rounded to even; at train_fraction = 1 all of them also validate."""
        return round(self.n_equations(order) * self.train_fraction)

    def count_train_samples(self) -> int:
        return sum(self.n_train(order) for order in self.orders)

    def mean_sample_tokens(self) -> float:
        """Over the training equations of all orders."""
        n_train = {order: self.n_train(order) for order in self.orders}
        return sum(n * self.n_tokens(order) for order, n in n_train.items()) / max(1, sum(n_train.values()))

    def conflicts(self) -> Iterator[Conflict]:
        if self.operator == "/" and any(self.p % divisor == 0 for divisor in range(2, self.p)):
            yield "task.p", f"task.p = {self.p} is not prime; division by its factors has several answers"
        if len(set(self.orders)) != len(self.orders):
            yield "task.orders", f"task.orders = {list(self.orders)} names an order twice"
        for order in self.orders:
            n, n_train = self.n_equations(order), self.n_train(order)
            if n > 50_000_000:
                yield "task.p", f"task.p = {self.p} makes {n:,} equations of order {order}; at most 50,000,000"
            yield from self.split_conflicts(n, n_train)

    def n_tokens(self, order: int) -> int:
        """Tokens of an equation that the model reads: BOS, operands, operators, = and the result, but not EOS."""
        return 2 * order + 2

    def max_tokens(self) -> int:
        return self.n_tokens(max(self.orders))

    def vocabulary(self) -> list[str]:
        return [*map(str, range(self.p)), self.operator, *SPECIAL_TOKENS]

    def dataset_info(self) -> DatasetInfo:
        """Settings determine the data, so the digest is the generator's version."""
        size = self.p + 1 + len(SPECIAL_TOKENS)
        return DatasetInfo(
            size,
            self.max_tokens(),
            self.count_train_samples(),
            padding_id=size - 1,
            digest="arithmetic/1",
            tokens_per_sample=self.mean_sample_tokens(),
            chance=self._largest_answer_share(),
            eos_id=size - 2,
        )

    def _largest_answer_share(self) -> float:
        """The share of the most frequent result among all equations: 1 / p, but products are 0 more often than that."""
        if self.operator != "*":
            return 1 / self.p
        n_zero = sum(_count_zero_products(self.p, order) for order in self.orders)
        return n_zero / sum(self.n_equations(order) for order in self.orders)

    def chance_loss(self, info: DatasetInfo) -> float:
        """Of the two scored tokens, the result has p values and EOS is certain: ln p / 2."""
        return log(self.p) / N_SCORED_TOKENS

    def shape_key(self) -> tuple[int, ...]:
        """Equations of each order: `/` has fewer than the other operators, though the operator is per run."""
        return tuple(self.n_equations(order) for order in self.orders)

    def n_scored_positions(self, info: DatasetInfo) -> int:
        return N_SCORED_TOKENS

    def computed_fraction(self, n_samples: int) -> float:
        """`BOS a +` is computed once for each a."""
        n_shared, length = N_PROMPT_TOKENS - 2, self.max_tokens()
        return min(1.0, (self.p * n_shared + n_samples * (length - n_shared)) / (n_samples * length))

    def build_table(self) -> EquationTable:
        """Returns every equation of the task, by order as listed, the last operand varying fastest."""
        width = self.max_tokens() + 1
        tables = [_build_equations(self, order) for order in self.orders]
        pad_id = self.p + len(SPECIAL_TOKENS)
        padded = [np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=pad_id) for table in tables]
        n_operands = np.repeat(self.orders, [len(table) for table in tables])
        # `=` follows n operands and n − 1 operators after BOS, so it stands at input position 2n.
        scored_positions = 2 * n_operands[:, None] + np.arange(N_SCORED_TOKENS)
        groups = {f"[order={k}]": n_operands == k for k in self.orders} if len(self.orders) > 1 else {}
        return EquationTable(np.concatenate(padded), scored_positions, groups=groups)

    def split_rows(self, seed: int) -> tuple[Ints, Ints]:
        """Returns the row indices of the training and validation equations for this seed.

        Each order is shuffled and split separately from the same generator state. When every row is a training row, the
        last one is also the validation set, as in the starter code.
        """
        train, val, start = [], [], 0
        for order in self.orders:
            n = self.n_equations(order)
            shuffled = start + np.random.RandomState(seed).permutation(n)
            train.append(shuffled[: self.n_train(order)])
            val.append(shuffled[self.n_train(order) :])
            start += n
        held_out = np.concatenate(val)
        return np.concatenate(train), held_out if len(held_out) else train[-1][-1:]

    def cyclic_order(self) -> tuple[int, ...] | None:
        """0 … p − 1 for + and −; for * and / modulo a prime, 1 … p − 1 by their discrete logarithm."""
        if self.operator in "+-":
            return tuple(range(self.p))
        return powers_of_generator(self.p)

    def operand_pairs(self, seed: int) -> OperandPairs | None:
        order = self.cyclic_order()
        if order is None or 2 not in self.orders:
            return None
        table = self.build_table()
        rows = np.flatnonzero(table.scored_positions[:, 0] == N_PROMPT_TOKENS - 1)  # of the equations with two operands
        row_of_pair = np.zeros((self.p, self.p), dtype=np.int64)
        row_of_pair[table.tokens[rows, 1], table.tokens[rows, 3]] = rows
        selected = row_of_pair[np.ix_(order, order)]
        return OperandPairs(
            prompts=table.tokens[selected.ravel(), :N_PROMPT_TOKENS],
            results=table.tokens[selected, N_PROMPT_TOKENS],
            in_training_set=np.isin(selected, self.split_rows(seed)[0]),
            b_sign=1 if self.operator in "+*" else -1,
        )


@cache
def powers_of_generator(p: int) -> tuple[int, ...] | None:
    """g⁰, g¹, … modulo a prime p for its smallest generator g: every number but 0 once; None if p is not an odd prime.

    >>> powers_of_generator(7), powers_of_generator(9)
    ((1, 3, 2, 6, 4, 5), None)
    """
    if p < 3 or any(p % divisor == 0 for divisor in range(2, isqrt(p) + 1)):
        return None
    for generator in range(2, p):
        powers = [1]
        while (power := powers[-1] * generator % p) != 1:
            powers.append(power)
        if len(powers) == p - 1:
            return tuple(powers)
    return None


def _build_equations(task: ArithmeticSettings, order: int) -> Ints:
    """Returns the (N, 2·order + 3) tokens of all equations of one order."""
    p = task.p
    min_operand = 1 if task.operator == "/" else 0  # divisors are never 0
    ranges = [np.arange(p)] + [np.arange(min_operand, p)] * (order - 1)
    operands = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, order)
    operands, result = _compute_results(task.operator, operands, p)
    operator, equals, bos, eos = range(p, p + 4)
    tokens = np.full((len(operands), 2 * order + 3), operator, dtype=np.int64)
    tokens[:, 0], tokens[:, -3], tokens[:, -1] = bos, equals, eos
    tokens[:, 1 : 2 * order : 2] = operands
    tokens[:, -2] = result
    return tokens


@cache
def _count_zero_products(p: int, order: int) -> int:
    """The number of tuples of residues whose product is 0 modulo p.

    A product's greatest common divisor with p follows from those of its factors, so only divisors of p are counted.

    >>> _count_zero_products(5, 2), _count_zero_products(6, 2)  # of 25 and 36 pairs
    (9, 15)
    """
    by_divisor = Counter(gcd(number, p) for number in range(p))
    products = Counter({1: 1})
    for _ in range(order):
        counts: Counter[int] = Counter()
        for first, n_first in products.items():
            for second, n_second in by_divisor.items():
                counts[gcd(first * second, p)] += n_first * n_second
        products = counts
    return products[p]


def _compute_results(operator: str, operands: Ints, p: int) -> tuple[Ints, Ints]:
    """Returns operands and results; for division the first column is the quotient, which determines the dividend."""
    first, rest = operands[:, 0], operands[:, 1:]
    if operator == "+":
        return operands, operands.sum(1) % p
    if operator == "-":
        return operands, (first - rest.sum(1)) % p  # NumPy's remainder is never negative
    product = operands.prod(1) % p
    if operator == "*":
        return operands, product
    return np.column_stack([product, rest]), first
