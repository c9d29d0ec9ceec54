"""The equation table and its split, compared with independent Python and the course's starter code."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from seedbed.tasks.arithmetic import ArithmeticSettings

OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def equation_texts(task: ArithmeticSettings) -> list[str]:
    tokens = task.vocabulary()
    return [" ".join(tokens[token] for token in row) for row in task.build_table().tokens]


def test_the_vocabulary_is_numbers_operator_equals_bos_eos_pad():
    tokens = ArithmeticSettings(p=31).vocabulary()
    assert tokens[:31] == [str(i) for i in range(31)]
    assert tokens[31:] == ["+", "=", "BOS", "EOS", "PAD"]
    assert len(tokens) == ArithmeticSettings(p=31).dataset_info().vocab_size == 36
    assert ArithmeticSettings(p=11).dataset_info().vocab_size == 16


@pytest.mark.parametrize("operator", ["+", "-", "*"])
@pytest.mark.parametrize("order", [2, 3])
def test_the_table_holds_every_tuple_of_operands_once_with_its_result(operator, order):
    task = ArithmeticSettings(p=5, operator=operator, orders=(order,))
    expected = []
    for operands in itertools.product(range(5), repeat=order):
        result = operands[0]
        for operand in operands[1:]:
            result = OPERATIONS[operator](result, operand)
        expected.append(f"BOS {f' {operator} '.join(map(str, operands))} = {result % 5} EOS")
    assert equation_texts(task) == expected


@pytest.mark.parametrize("order", [2, 3])
def test_division_inverts_multiplication_and_never_divides_by_zero(order):
    task = ArithmeticSettings(p=7, operator="/", orders=(order,))
    rows = equation_texts(task)
    assert len(rows) == len(set(rows)) == 7 * 6 ** (order - 1) == task.n_equations(order)
    for row in rows:
        left, right = row.removeprefix("BOS ").removesuffix(" EOS").split(" = ")
        dividend, *divisors = map(int, left.split(" / "))
        assert 0 not in divisors
        assert int(right) * np.prod(divisors) % 7 == dividend


def test_shorter_equations_of_mixed_orders_are_padded_on_the_right():
    task = ArithmeticSettings(p=11, orders=(2, 3))
    rows = equation_texts(task)
    assert task.dataset_info().context_length == 8
    assert rows[0] == "BOS 0 + 0 = 0 EOS PAD PAD"
    assert rows[121] == "BOS 0 + 0 + 0 = 0 EOS"
    assert len(rows) == 121 + 1331


def test_only_the_result_and_eos_are_scored():
    task = ArithmeticSettings(p=11, orders=(2, 3))
    equations, vocab = task.build_table(), task.vocabulary()
    targets = np.take_along_axis(equations.tokens[:, 1:], equations.scored_positions, axis=1)
    assert {vocab[token] for token in targets[:, 1]} == {"EOS"}
    inputs = np.take_along_axis(equations.tokens[:, :-1], equations.scored_positions, axis=1)
    assert {vocab[token] for token in inputs[:, 0]} == {"="}


@pytest.mark.parametrize(
    ("fraction", "sizes"),
    [(0.1, (96, 865)), (0.2, (192, 769)), (0.3, (288, 673)), (0.4, (384, 577)), (0.5, (480, 481)), (0.6, (577, 384)),
     (0.7, (673, 288)), (0.8, (769, 192)), (0.9, (865, 96))],
)  # fmt: skip
def test_split_sizes_are_those_of_the_report(fraction, sizes):
    train, val = ArithmeticSettings(train_fraction=fraction).split_rows(seed=42)
    assert (len(train), len(val)) == sizes
    assert sorted([*train, *val]) == list(range(961))


def test_the_split_matches_the_starter_codes_list_shuffle():
    shuffled = list(range(961))
    np.random.RandomState(7).shuffle(shuffled)
    train, val = ArithmeticSettings().split_rows(seed=7)
    assert [*train, *val] == shuffled


def test_each_order_is_split_separately():
    task = ArithmeticSettings(p=11, orders=(2, 3))
    train, _ = task.split_rows(seed=0)
    groups = task.build_table().groups
    assert (groups["[order=2]"][train].sum(), groups["[order=3]"][train].sum()) == (
        60,
        666,
    )  # 60.5 and 665.5 round to even


def test_a_fraction_of_one_keeps_one_validation_sample():
    train, val = ArithmeticSettings(p=5, train_fraction=1.0).split_rows(seed=3)
    assert len(train) == 25
    assert val.tolist() == [train[-1]]


def test_the_table_matches_its_pinned_digest():
    """`arithmetic/1` in run ids identifies this table: if the table changes, the version must change too."""
    import hashlib

    tokens = ArithmeticSettings(p=31, orders=(2, 3), operator="-").build_table().tokens
    assert hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest()[:16] == "4c896b10a9f68428"


def test_every_token_of_an_equation_has_its_bytes_and_the_space_after_it():
    tokenizer = ArithmeticSettings(p=11).load_tokenizer()
    text = "0 + 10 = 10 "
    ids = tokenizer.encode(text)[1:]  # without BOS
    assert tokenizer.byte_counts[ids].sum() == len(text)
    assert tokenizer.character_counts[ids].sum() == len(text)
