from __future__ import annotations

import pytest

from seedbed.errors import StudyError
from seedbed.settings import Value
from seedbed.study.plan import plan_study
from seedbed.study.read import parse_overrides, read_study

from .conftest import WriteStudy


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("model.layers=3", [3]),
        ("train.lr=1e-3,3e-4", [0.001, 0.0003]),
        ("task.orders=[2,3]", [[2, 3]]),
        ("task.orders=[2],[2,3]", [[2], [2, 3]]),
        ("task.orders=2,3", [2, 3]),
        ("model.kind=lstm", ["lstm"]),
        ("model.kind='lstm',gpt", ["lstm", "gpt"]),
        ("task.operator=/", ["/"]),
        ("task.operator=+,-", ["+", "-"]),
        ("model.position_exponent=2k/d", ["2k/d"]),
        ("model.tied=true,false", [True, False]),
        ("train.betas=[0.9,0.95],[0.9,0.99]", [[0.9, 0.95], [0.9, 0.99]]),
    ],
)
def test_commas_sweep_and_brackets_make_one_value(argument: str, values: list[Value]) -> None:
    [factor] = parse_overrides([argument]).factors
    assert [assignment.value for (assignment,) in factor] == values
    assert {assignment.name for (assignment,) in factor} == {argument.partition("=")[0]}


@pytest.mark.parametrize(
    ("argument", "seeds"),
    [("seeds=5", (0, 1, 2, 3, 4)), ("seeds=0,1,7", (0, 1, 7)), ("seeds=[42]", (42,)), ("seeds=1", (0,))],
)
def test_seeds_are_a_count_or_a_list(argument: str, seeds: tuple[int, ...]) -> None:
    assert parse_overrides([argument]).seeds == seeds


@pytest.mark.parametrize(
    "argument",
    [
        "",
        "=",
        "=3",
        "layers",
        "model.layers=",
        "model.layers=,",
        "model.layers=1,,2",
        "model.layers=two",
        "model.layers=[3]",
        "model.layers=1\nmodel.dim=2",
        "train.lr=nan",
        "train.lr=" + "[" * 100_000,
        "model.kind=" + "x" * 20_000,
        "model.kind=\x1b[2J",
        "name=x",
        "model.head=4,8",
        "seeds=x",
        "seeds=[0],[1]",
        "seeds=-1",
        "seeds=1000000000000",
        "seeds=0,0",
    ],
)
def test_an_invalid_argument_is_rejected_and_quoted_safely(argument: str) -> None:
    with pytest.raises(StudyError) as error:
        parse_overrides([argument])
    [problem] = error.value.problems
    assert problem.where.startswith("argument '")
    assert str(problem).isprintable()
    assert len(str(problem)) < 300


def test_a_setting_given_twice_is_rejected() -> None:
    with pytest.raises(StudyError, match=r"train\.lr is given twice"):
        parse_overrides(["train.lr=1", "train.lr=2"])


def test_overrides_replace_swept_values_and_duplicates_are_merged(write: WriteStudy) -> None:
    study = read_study(write("seeds = 2\n[grid]\nmodel.layers = [1, 2, 3]\ntrain.lr = [0.1, 0.2]"))
    plan = plan_study(study, ["model.layers=5,1", "seeds=[7]"])
    found = [(run.settings.model.layers, run.settings.train.lr, run.seed) for run in plan.runs]
    assert found == [(5, 0.1, 7), (1, 0.1, 7), (5, 0.2, 7), (1, 0.2, 7)]


def test_an_override_can_fix_a_conflict_of_the_file(write: WriteStudy) -> None:
    study = read_study(write("[base.model]\nheads = 3"))
    with pytest.raises(StudyError, match="does not divide"):
        plan_study(study)
    assert len(plan_study(study, ["model.dim=96"]).runs) == 2


def test_a_conflict_caused_by_an_override_is_located_at_it(write: WriteStudy) -> None:
    with pytest.raises(StudyError) as error:
        plan_study(read_study(write("[base.model]\nheads = 4")), ["model.heads=3"])
    assert [problem.where for problem in error.value.problems] == ["argument 'model.heads=3'"]
