from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pytest

from seedbed.errors import StudyError
from seedbed.records import Plan
from seedbed.settings import Value
from seedbed.study.plan import plan_named
from seedbed.study.ranges import InvalidRange, expand_range, is_range, parse_range

from .conftest import WriteStudy


def values_of(plan: Plan, name: str) -> list[Value]:
    return list(dict.fromkeys(run.settings.get(name) for run in plan.runs))


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("model.layers", "1..4", [1, 2, 3, 4]),
        ("model.layers", "1..9 x3", [1, 5, 9]),
        ("model.dim", "log 8..512 x7", [8, 16, 32, 64, 128, 256, 512]),
        ("model.hidden", "10..12", [10, 11, 12]),
        ("train.lr", "log 1e-4..1e-1 x4", [0.0001, 0.001, 0.01, 0.1]),
        ("train.lr", "log 1e-4..1e-3 x3", [0.0001, 0.0003162, 0.001]),
        ("model.dropout", "0.1..0.9 x9", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        ("train.weight_decay", "0..2", [0.0, 1.0, 2.0]),
        ("model.layers", "log 1..4 x9", [1, 2, 3, 4]),
    ],
)
def test_a_range_lists_rounded_values_with_exact_ends(name: str, text: str, values: list[Value]) -> None:
    found = expand_range(name, text)
    assert found == values
    assert {type(value) for value in found} == {type(values[0])}


def test_log_ranges_step_by_one_factor_and_others_by_one_difference() -> None:
    factors = [b / a for a, b in pairwise(expand_range("train.lr", "log 1.234567e-4..0.9 x12"))]
    np.testing.assert_allclose(factors, (0.9 / 1.234567e-4) ** (1 / 11), rtol=1e-3)
    assert expand_range("train.lr", "log 1.234567e-4..0.9 x12")[0] == 1.234567e-4
    steps = np.diff(expand_range("train.lr", "0.013..0.77 x6"))
    np.testing.assert_allclose(steps, (0.77 - 0.013) / 5, rtol=1e-3)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("8..1", "the smaller number first"),
        ("log 0..1 x3", "above 0"),
        ("0.1..0.3", "the number of values"),
        ("log 1e-4..1e-1", "the number of values"),
        ("1..2 x1", "at least 2"),
        ("1..200000", "more than 100,000"),
        ("1..1e999", "finite"),
        ("1..x", "such as"),
        ("1..2 by 3", "such as"),
        ("1..2..3", "such as"),
    ],
)
def test_an_invalid_range_says_what_is_expected(text: str, what: str) -> None:
    with pytest.raises(InvalidRange, match=what):
        expand_range("train.lr", text)


def test_a_long_text_is_rejected_quickly() -> None:
    begin = time.perf_counter()
    for text in ("1" * 9_000 + "..", "log " * 2_000 + "..", "1." * 4_000, " " * 9_000 + "1.."):
        with pytest.raises(InvalidRange):
            parse_range(text, whole=False)
    assert time.perf_counter() - begin < 1


def test_a_setting_that_takes_texts_has_no_ranges() -> None:
    assert is_range("train.lr", "1..2 x3")
    assert not is_range("task.corpus", "../texts")
    assert not is_range("train.prompt", "1..8")
    assert not is_range("model.kind", "1..8")
    assert not is_range("train.betas", "0..1")


def test_files_and_arguments_have_one_grammar(write: WriteStudy) -> None:
    path = write("""
        seeds = "3..5"
        [grid]
        train.lr = "log 1e-3..1e-1 x3"
        model.layers = [1, "3..4"]
        [[zip]]
        model.dim = "log 8..32 x3"
        train.batch_size = [5, 6, 7]
        [base]
        model.heads = 4
        """)
    plan = plan_named(str(path))
    assert values_of(plan, "train.lr") == [0.001, 0.01, 0.1]
    assert values_of(plan, "model.layers") == [1, 3, 4]
    assert [*dict.fromkeys((run.settings.model.dim, run.settings.train.batch_size) for run in plan.runs)] == [
        (8, 5), (16, 6), (32, 7),
    ]  # fmt: skip
    assert {run.seed for run in plan.runs} == {3, 4, 5}
    again = plan_named(str(path), ["train.lr=log 1e-3..1e-1 x3", "seeds=3..5"])
    assert {run.id for run in again.runs} == {run.id for run in plan.runs}
    assert "0.01" in plan.text
    assert ".." not in plan.text
    assert {run.seed for run in plan_named(str(path), ["seeds=0..1,7"]).runs} == {0, 1, 7}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[base]\ntrain.lr = "1..8"', "a range gives several values, for [grid]"),
        ('[grid]\ntrain.lr = "fast"', 'or a range such as "1..8"'),
        ('[grid]\ntrain.lr = "-1..1 x3"', "train.lr = -1.0: expected a number above 0"),
        ('[grid]\nmodel.layers = "0.5..2"', "expected whole numbers at both ends"),
        ('seeds = "5..2"', "the smaller number first"),
        ('seeds = "some"', 'or a range such as "0..15"'),
        ('[[zip]]\nmodel.dim = "8..10"\nmodel.layers = [1, 2]', "model.dim has 3, model.layers has 2"),
    ],
)
def test_a_file_with_a_wrong_range_says_what_is_accepted(write: WriteStudy, text: str, what: str) -> None:
    with pytest.raises(StudyError) as error:
        plan_named(str(write(text)))
    assert what in str(error.value)
