"""Figures and questions of a study: parsed, rejected in one pass with lines and hints, and round-tripped."""

from __future__ import annotations

import re

import pytest

from seedbed.errors import StudyError
from seedbed.specs import FigureSpec, QuestionSpec
from seedbed.study.declarations import Declarations, format_declarations, parse_declarations
from seedbed.study.plan import plan_named, plan_study
from seedbed.study.read import read_study
from seedbed.study.study_files import shipped_studies

from .conftest import WriteStudy


def test_figures_and_questions_are_parsed_in_any_toml_spelling(write: WriteStudy) -> None:
    study = read_study(
        write("""
        [grid]
        model.kind = ["gpt", "lstm"]

        [[figures]]
        metrics = ["val/loss", "gap/accuracy", "val/accuracy[order=2]"]
        colour = "task.train_fraction"
        only = { model.kind = ["gpt", "lstm"], "train.lr" = 1e-3, task.orders = [2, 3] }

        [[questions]]
        ask = "largest"
        over = "parameters"
        at_most = 1
        and_metric = "train/accuracy"
        and_at_least = 0.99
        """)
    )
    assert study.figures == (
        FigureSpec(
            metrics=("val/loss", "gap/accuracy", "val/accuracy[order=2]"),
            colour="task.train_fraction",
            only={"model.kind": ("gpt", "lstm"), "train.lr": 1e-3, "task.orders": (2, 3)},
        ),
    )
    assert study.questions == (
        QuestionSpec(ask="largest", over="parameters", at_most=1.0, and_metric="train/accuracy", and_at_least=0.99),
    )


def test_every_problem_is_reported_in_one_pass_with_line_and_suggestion(write: WriteStudy) -> None:
    text = """\
[[questions]]
ask = "which is beter"
metric = "vall/loss"
betwen = "model.kind"
[[questions]]
ask = "how does it change"
over = "task.train_fracton"
at_least = "much"
only = { model.kind = "rnn", model.head = 3 }
[[questions]]
ask = "smallest"
[[figures]]
kind = "pie"
metrics = []
x = "steps"
alphas = [0.5, "all"]
[[figures]]
only = 3
"""
    with pytest.raises(StudyError) as caught:
        read_study(write(text))
    problems = [(int(problem.where.rpartition(":")[2]), problem.what) for problem in caught.value.problems]
    expected = [
        (2, '(did you mean which is better?)'),
        (3, 'metric = "vall/loss": expected a metric such as val/loss'),
        (3, "(did you mean val/loss?)"),
        (4, "betwen is not an option of [[questions]] (did you mean between?)"),
        (7, 'over = "task.train_fracton": expected a setting, parameters, alpha (did you mean task.train_fraction?)'),
        (8, 'at_least = "much": expected a number'),
        (9, "model.kind = "),
        (9, "model.head is not a setting (did you mean model.heads?)"),
        (10, 'ask = "smallest" needs over as well'),
        (10, 'ask = "smallest" needs at_least or at_most as well'),
        (13, 'kind = "pie": expected one of "curves"'),
        (14, "metrics = []: expected a list of metrics"),
        (15, 'x = "steps": expected a setting, step'),
        (16, 'alphas = [0.5, "all"]: expected a list of fractions of T'),
        (18, "only = 3: expected settings and values"),
    ]  # fmt: skip
    for line, message in expected:
        assert any(line == found and message in what for found, what in problems), (line, message, problems)
    assert len(problems) == len(expected) - 1  # two of them are one problem


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ('ask = "which is better"', "between or and_metric"),
        ('ask = "which scales better"\nover = "model.dim"', "between"),
        ('ask = "smallest"\nover = "model.dim"\nat_least = 1\nand_metric = "norm"', "and_at_least or and_at_most"),
        ('ask = "smallest"\nover = "model.dim"\nat_least = 1\nand_at_most = 1', "and_metric"),
        ('ask = "does it hold"\nmetric = "attention_top[layer=1]"', "and_metric, at_least or at_most"),
        ('ask = "does it hold"\nbetween = "model.kind"\nexpect = "same"', "margin, the largest difference .*,"),
    ],
)
def test_a_question_without_a_required_option_names_it(write: WriteStudy, options: str, needs: str) -> None:
    with pytest.raises(StudyError, match=rf":1: ask = .* needs {needs} as well"):
        read_study(write(f"[[questions]]\n{options}\n"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", 'kind = "attention" needs text as well'),
        ('text = "a"\nlayers = [0]', "layers = [0]: expected a list of whole numbers from 1"),
        ('text = "a"\nheads = 2', "heads = 2: expected a list of whole numbers from 1"),
        ('text = "a"\nby = "line"', 'by = "line": expected one of "token", "word"'),
    ],
)
def test_an_attention_figure_needs_text_and_valid_indices(write: WriteStudy, options: str, message: str) -> None:
    with pytest.raises(StudyError, match=re.escape(message)):
        read_study(write(f'[[figures]]\nkind = "attention"\n{options}\n'))


@pytest.mark.parametrize("kind", ["{a = 1}", "[1]", "[[1]]", "3"])
def test_a_figure_kind_that_is_no_text_is_rejected(write: WriteStudy, kind: str) -> None:
    with pytest.raises(StudyError, match="expected one of"):
        read_study(write(f"[[figures]]\nkind = {kind}\n"))


@pytest.mark.parametrize("text", ["questions = 3", "figures = [1, 2]", "[questions]\nask = 'grokking'"])
def test_anything_but_an_array_of_tables_is_rejected(write: WriteStudy, text: str) -> None:
    with pytest.raises(StudyError, match=r"expected tables that begin with \[\["):
        read_study(write(text))


def test_declarations_round_trip() -> None:
    declarations = Declarations(
        (FigureSpec(title='A "quoted" title\n', only={"model.kind": ("gpt", "lstm"), "task.orders": ((2,), (2, 3))}),),
        (QuestionSpec(between="model.kind", at_least=-0.5), QuestionSpec(ask="grokking", text="How long?")),
    )
    assert parse_declarations("\n".join(format_declarations(declarations))) == declarations


@pytest.mark.parametrize("name", shipped_studies())
def test_declarations_of_shipped_studies_round_trip(name: str) -> None:
    study = read_study(shipped_studies()[name])
    declarations = Declarations(study.figures, study.questions)
    assert parse_declarations("\n".join(format_declarations(declarations))) == declarations


@pytest.mark.parametrize("name", [name for name in shipped_studies() if name.startswith("arithmetic/")])
def test_a_plan_keeps_the_declarations_of_its_file(name: str, write: WriteStudy) -> None:
    study = read_study(shipped_studies()[name])
    plan = plan_named(name)
    assert parse_declarations(plan.text) == Declarations(study.figures, study.questions)
    again = plan_study(read_study(write(plan.text)))
    assert again.text == plan.text
    assert [run.id for run in again.runs] == [run.id for run in plan.runs]


def test_declarations_do_not_change_run_ids(write: WriteStudy) -> None:
    bare = [run.id for run in plan_study(read_study(write("seeds = 1"))).runs]
    asking = plan_study(read_study(write("seeds = 1\n[[questions]]\nask = 'grokking'")))
    assert [run.id for run in asking.runs] == bare


def test_the_arithmetic_studies_ask_every_written_question_of_the_report() -> None:
    asked = {
        name: {question.report for question in read_study(path).questions} for name, path in shipped_studies().items()
    }
    assert asked["arithmetic/data-size"] >= {"D 3c", "D 3d"}
    assert asked["arithmetic/mixed-orders"] >= {"D 4c"}
    assert asked["arithmetic/model-size"] >= {"D 5c"}
    assert asked["arithmetic/compute"] >= {"D 6c"}
    assert asked["arithmetic/weight-decay"] >= {"D 7c", "D 7d"}
    assert asked["arithmetic/sanity"] >= {"D 2"}


def test_a_question_of_equivalence_needs_a_margin_above_0(write: WriteStudy) -> None:
    text = '[[questions]]\nask = "does it hold"\nbetween = "model.kind"\nexpect = "same"\nmargin = {}\n'
    [question] = read_study(write(text.format("0.1\nallow_confounds = true"))).questions
    assert (question.expect, question.margin, question.allow_confounds) == ("same", 0.1, True)
    for option, message in (
        ("0", "margin = 0: expected a number above 0"),
        ('0.1\nallow_confounds = "x"', "true or false"),
    ):
        with pytest.raises(StudyError, match=message):
            read_study(write(text.format(option)))
