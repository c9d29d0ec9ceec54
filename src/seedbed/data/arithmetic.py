"""Modular arithmetic as token sequences: the table of all equations and its train/validation split.

A binary equation is `BOS a + b = r EOS`; a ternary one has a third operand. When a task has both, the shorter ones are
padded on the right. Only the tokens after `=` (r and EOS) are scored. Table order and split follow the course's starter
code, so equal seeds reproduce its training sets. Batches are drawn in `equation_batches.py`.

>>> task = ArithmeticSettings(p=3)
>>> [vocabulary(task)[token] for token in build_equation_table(task).tokens[5]]
['BOS', '1', '+', '2', '=', '0', 'EOS']
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.kind_settings import ArithmeticSettings

SPECIAL_TOKENS = ("=", "BOS", "EOS", "PAD")  # after the numbers and the operator, in this order
N_SCORED_TOKENS = 2  # r and EOS


@dataclass(frozen=True)
class EquationTable:
    """All equations of a task: N rows of context + 1 tokens."""

    tokens: NDArray[np.int64]  # (N, T + 1)
    scored_positions: NDArray[np.int64]  # (N, 2) input positions whose next token is scored: `=` and r
    n_operands: NDArray[np.int64]  # (N,)


def vocabulary(task: ArithmeticSettings) -> list[str]:
    """Returns the token strings, indexed by id."""
    return [*map(str, range(task.p)), task.operator, *SPECIAL_TOKENS]


def vocabulary_size(task: ArithmeticSettings) -> int:
    return task.p + 1 + len(SPECIAL_TOKENS)


def context_length(task: ArithmeticSettings) -> int:
    """Returns the number of input tokens: the longest equation without its EOS."""
    return 2 * max(task.orders) + 2


def build_equation_table(task: ArithmeticSettings) -> EquationTable:
    """Returns every equation of the task, by order as listed, the last operand varying fastest."""
    width = context_length(task) + 1
    tables = [_build_equations(task, order) for order in task.orders]
    pad_id = vocabulary_size(task) - 1
    padded = [np.pad(table, ((0, 0), (0, width - table.shape[1])), constant_values=pad_id) for table in tables]
    n_operands = np.repeat(task.orders, [len(table) for table in tables])
    # `=` follows n operands and n − 1 operators after BOS, so it stands at input position 2n.
    scored_positions = 2 * n_operands[:, None] + np.arange(N_SCORED_TOKENS)
    return EquationTable(np.concatenate(padded), scored_positions, n_operands)


def _build_equations(task: ArithmeticSettings, order: int) -> NDArray[np.int64]:
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


def _compute_results(operator: str, operands: NDArray[np.int64], p: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def split_equations(task: ArithmeticSettings, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the row indices of the training and validation equations for this seed.

    Each order is shuffled and split separately from the same generator state. When every row is a training row, the
    last one is also the validation set, as in the starter code.
    """
    train, val, start = [], [], 0
    for order in task.orders:
        n = task.n_equations(order)
        shuffled = start + np.random.RandomState(seed).permutation(n)
        train.append(shuffled[: task.n_train(order)])
        val.append(shuffled[task.n_train(order) :])
        start += n
    held_out = np.concatenate(val)
    return np.concatenate(train), held_out if len(held_out) else train[-1][-1:]
