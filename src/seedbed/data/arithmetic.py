"""Modular arithmetic as token sequences: the table of all equations and its split; batches are drawn elsewhere.

A binary equation is `BOS a + b = r EOS`, a ternary one has a third operand; where both are asked for, the shorter is
padded on the right. Only the tokens after `=` (r and EOS) are scored. The order of the table and the split are those
of the course's starter code, so equal seeds give its training sets.

>>> [vocabulary(Arithmetic(p=3))[token] for token in table(Arithmetic(p=3)).tokens[5]]
['BOS', '1', '+', '2', '=', '0', 'EOS']
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seedbed.settings import ArithmeticSettings

SPECIAL_TOKENS = ("=", "BOS", "EOS", "PAD")  # after the numbers and the operator, in this order
N_SCORED_TOKENS = 2  # r and EOS


@dataclass(frozen=True)
class EquationTable:
    """All equations of a task: N rows of context + 1 tokens."""

    tokens: NDArray[np.int64]  # (N, T + 1)
    scored_positions: NDArray[np.int64]  # (N, 2) input positions whose next token counts: those of `=` and r
    n_operands: NDArray[np.int64]  # (N,) number of operands


def vocabulary(task: ArithmeticSettings) -> list[str]:
    """Token texts by id."""
    return [*map(str, range(task.p)), task.operator, *SPECIAL_TOKENS]


def vocabulary_size(task: ArithmeticSettings) -> int:
    return task.p + 1 + len(SPECIAL_TOKENS)


def context_length(task: ArithmeticSettings) -> int:
    """Tokens the model sees: the longest equation without its EOS."""
    return 2 * max(task.orders) + 2


def build_equation_table(task: ArithmeticSettings) -> EquationTable:
    """Every equation of the task, orders as listed, operands counting up with the last one fastest."""
    width = context_length(task) + 1
    parts = [_build_equations(task, order) for order in task.orders]
    pad = vocabulary_size(task) - 1
    tokens = np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=pad) for part in parts])
    order = np.repeat(task.orders, [len(part) for part in parts])
    return EquationTable(tokens, 2 * order[:, None] + np.arange(N_SCORED_TOKENS), order)


def _build_equations(task: ArithmeticSettings, order: int) -> NDArray[np.int64]:
    """The (N, 2·order + 3) tokens of all equations of one order."""
    p = task.p
    first = 1 if task.operator == "/" else 0
    ranges = [np.arange(p)] + [np.arange(first, p)] * (order - 1)
    operands = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, order)
    operands, result = _compute_results(task.operator, operands, p)
    operator, equals, bos, eos = range(p, p + 4)
    tokens = np.full((len(operands), 2 * order + 3), operator, dtype=np.int64)
    tokens[:, 0], tokens[:, -3], tokens[:, -1] = bos, equals, eos
    tokens[:, 1 : 2 * order : 2] = operands
    tokens[:, -2] = result
    return tokens


def _compute_results(operator: str, operands: NDArray[np.int64], p: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Operands and results; for division the first column is the answer, and the dividend is made from it."""
    head, rest = operands[:, 0], operands[:, 1:]
    if operator == "+":
        return operands, operands.sum(1) % p
    if operator == "-":
        return operands, (head - rest.sum(1)) % p  # NumPy's remainder is never negative
    product = operands.prod(1) % p
    if operator == "*":
        return operands, product
    return np.column_stack([product, rest]), head


def split_equations(task: ArithmeticSettings, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of the training and the validation equations of this seed.

    Each order is shuffled and cut by itself with the same generator state; where all rows train, the last one also
    validates, as in the starter code.
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
