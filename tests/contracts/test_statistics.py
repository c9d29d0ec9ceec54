"""Every statistic keeps the contract, with its value worked out by hand; so does a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan

import numpy as np
import pytest
from pydantic import ValidationError

from seedbed.errors import StudyError, UsageError
from seedbed.records import Curve
from seedbed.specs import STATISTIC_NAMES, FigureSpec, QuestionSpec
from seedbed.stats.answers import answer_question
from seedbed.stats.run_statistics import STATISTICS, Statistic, find_statistic, register_statistic
from seedbed.study.declarations import parse_declarations
from tests.charts.factories import make_run
from tests.contracts.statistic import StatisticContract


class TestBest(StatisticContract):
    name, value, early = "best", 1.75, 2.5


class TestFirstStepAtBest(StatisticContract):
    name, value, early = "t_f", 20, 10


class TestFirstStepAtThreshold(StatisticContract):
    name, metric, value, early = "t_90", "train/accuracy", 30, inf


class TestFirstStepAtAnotherThreshold(StatisticContract):
    name, metric, value, early = "t_50", "val/accuracy", 20, inf


class TestLast(StatisticContract):
    name, value, early = "last", 2.75, 2.5


class TestGap(StatisticContract):
    name, value, early = "gap", 1.75 - 1.5, 2.5 - 2.0


class TestDelayOfValidation(StatisticContract):
    name, value, early = "delta_t", 20 - 40, 10 - 10


class TestSeconds(StatisticContract):
    name, value, early = "seconds", 5.0, 5.0


class TestMemory(StatisticContract):
    name, value, early = "memory", 3.0, 3.0


def test_every_statistic_has_a_test_class_and_a_name_that_specs_know() -> None:
    tested = {cls.name for cls in StatisticContract.__subclasses__()} - {"median", "t_50"}
    assert tested == set(STATISTICS) == set(STATISTIC_NAMES)


# ---- a statistic from outside the package ----


@pytest.fixture
def registered() -> Iterator[None]:
    """The registries as they were before, once the test is over."""
    names = set(STATISTICS)
    yield
    for name in set(STATISTICS) - names:
        del STATISTICS[name], STATISTIC_NAMES[name]


def median(curve: Curve) -> float:
    """The median of all recorded values."""
    return float(np.median(curve.values))


@pytest.fixture
def with_median(registered: None) -> None:
    assert register_statistic("median", median) is median


@pytest.mark.usefixtures("with_median")
class TestMedian(StatisticContract):
    name, value, early = "median", 2.5, 2.75


@pytest.mark.usefixtures("with_median")
def test_a_function_and_a_name_are_enough() -> None:
    statistic = STATISTICS["median"]
    assert statistic.legend == "median: the median of all recorded values"
    assert (statistic.title, statistic.unit, statistic.better) == ("median of {}", "", None)
    assert FigureSpec(value="median").value == QuestionSpec(value="median").value == "median"


@pytest.mark.usefixtures("with_median")
def test_a_question_and_a_study_file_accept_it() -> None:
    runs = [
        make_run({"model.kind": kind}, seed, {"val/loss": [3.0, value + seed, 1.0]})
        for kind, value in (("gpt", 1.5), ("lstm", 2.5)) for seed in range(3)
    ]  # fmt: skip
    text = '[[questions]]\nask = "which is better"\nmetric = "val/loss"\nvalue = "median"\nbetween = "model.kind"\n'
    [question] = parse_declarations(text).questions
    sentence = answer_question(question, runs).sentence
    assert "apart in median of validation loss" in sentence
    assert "2.33 vs 2.83" in sentence


def test_its_options_say_which_values_are_better_and_how_it_is_written(registered: None) -> None:
    @register_statistic("half_way", better="metric", phrase="{} half-way", is_step=True)
    def value_half_way(curve: Curve) -> float:
        return float(curve.values[curve.values.size // 2])

    statistic = STATISTICS["half_way"]
    assert value_half_way(Curve(np.arange(3), np.array([1.0, 2.0, 5.0]))) == 2.0
    assert (statistic.direction("val/accuracy"), statistic.unit) == ("max", "steps")
    assert (statistic.format_phrase("val/loss"), statistic.title) == ("val/loss half-way", "half way of {}")
    assert statistic.legend == ""


def test_a_record_can_use_the_whole_run(registered: None) -> None:
    record = Statistic(
        "parameters", lambda run, metric, t_max: run.run.parameters.total, "parameters", uses_metric=False
    )
    assert register_statistic(record) is record
    assert STATISTICS["parameters"].compute(make_run({}, 0, {}), "", None) == 2000
    register_statistic("weights", record)
    assert STATISTICS["weights"].name == "weights"


@pytest.mark.parametrize(("name", "message"), [("best", "there is a statistic named 'best'"), ("a b", "cannot name a")])
def test_a_name_is_taken_once_and_is_a_word(registered: None, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register_statistic(name, lambda curve: nan)
    assert STATISTICS["best"].unit == ""


def test_a_name_that_is_not_registered_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValidationError, match='"delta_t", "seconds", "memory"'):
        QuestionSpec(value="median")


# ---- thresholds ----


@pytest.mark.parametrize("value", ["t_1", "t_50", "t_99", "t_100"])
def test_any_percentage_is_a_threshold(value: str) -> None:
    assert QuestionSpec(value=value).value == FigureSpec(value=value).value == value
    assert find_statistic(value).threshold == int(value[2:]) / 100


@pytest.mark.parametrize("value", ["t_0", "t_101", "t_9.5", "t_"])
def test_other_numbers_are_none(value: str) -> None:
    with pytest.raises(ValidationError):
        QuestionSpec(value=value)
    with pytest.raises(UsageError):
        find_statistic(value)


@pytest.mark.parametrize(
    "text",
    [
        '[[questions]]\nbetween = "model.kind"\nmetric = "val/loss"\nvalue = "t_90"',
        '[[figures]]\nkind = "bars"\nmetrics = ["val/accuracy", "norm"]\nvalue = "t_90"',
    ],
)
def test_a_threshold_of_another_metric_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(StudyError, match=r"study:4: t_90 is the first step with an accuracy of at least 0\.9, and "):
        parse_declarations(text)


@pytest.mark.parametrize("ask", ["does it hold", "which scales better", "what law"])
def test_questions_that_need_a_value_of_every_run_refuse_a_threshold(ask: str) -> None:
    text = f'[[questions]]\nask = "{ask}"\nvalue = "t_90"\nat_most = 5\nover = "model.dim"\nbetween = "model.kind"'
    with pytest.raises(StudyError, match="cannot use t_90, which some runs may never reach"):
        parse_declarations(text)
