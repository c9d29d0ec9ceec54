from __future__ import annotations

import pytest

from seedbed.errors import StudyError
from seedbed.settings import Settings
from seedbed.study.conditions import InvalidRule, parse_exclude_rule
from seedbed.study.plan import plan_study
from seedbed.study.read import read_study

from .conftest import WriteStudy

GPT = Settings.from_flat({"model.layers": 3, "model.dim": 256, "task.orders": [3]}).flat()
LSTM = Settings.from_flat({"model.kind": "lstm"}).flat()


@pytest.mark.parametrize(
    ("text", "gpt", "lstm"),
    [
        ("model.layers == 3 and model.dim > 128", True, False),
        ("layers == 3", True, False),
        ("dim in [64, 128]", False, True),
        ("dim not in (64, 128)", True, False),
        ("model.kind == 'lstm' or heads > 3", True, True),
        ("heads > 3", True, False),
        ("not (heads > 3)", False, True),
        ("64 < dim <= 128", False, True),
        ("task.orders == 3", True, False),
        ("3 == task.orders", True, False),
        ("2 == task.orders", False, True),
        ("task.orders == [3]", True, False),
        ("orders in [[2, 3], [3]]", True, False),
        ("train.lr == 1e-3 and weight_decay > -1", True, True),
        ("tied == true", False, False),
        ("tied == False", True, True),
        ("hidden > 3", False, False),
        ("tied", False, False),
    ],
)
def test_expressions_evaluate_as_in_python(text: str, gpt: bool, lstm: bool) -> None:
    rule = parse_exclude_rule(text, "here")
    assert (rule.excludes(GPT), rule.excludes(LSTM)) == (gpt, lstm)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected comparisons"),
        ("layers ==", "expected comparisons"),
        ("__import__('os').system('true')", "found __import__"),
        ("model.layers.real == 3", "model.layers.real is not a setting"),
        ("(1).real == 3", "found"),
        ("[x for x in [1]]", "found"),
        ("lambda: 1", "found"),
        ("dim % 2 == 0", "found dim % 2"),
        ("2 ** 99999999 == dim", "found"),
        ("kind == 'gpt'", "task.kind or model.kind"),
        ("model.head == 4", r"did you mean model.heads\?"),
        ("model.kind == 'lsmt'", 'expected one of "gpt", '),
        ("dim in 'abc'", "expected a list after in"),
        ("dim is 3", "found"),
        ("(" * 300 + "dim" + ")" * 100, "expected comparisons"),
        ("not " * 2000 + "tied", "at most 500"),
    ],
)
def test_other_expressions_are_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidRule, match=why):
        parse_exclude_rule(text, "here")


def test_unordered_types_are_rejected_with_their_location() -> None:
    with pytest.raises(StudyError, match=r"here: exclude = .* compares incompatible types"):
        parse_exclude_rule("model.kind > 3", "here").excludes(GPT)


def test_excluded_configs_may_conflict(write: WriteStudy) -> None:
    text = "exclude = 'heads == 3 and dim == 64'\n[grid]\nmodel.heads = [3, 4]\nmodel.dim = [64, 96]"
    configs = [run.config for run in plan_study(read_study(write(text)), ["seeds=1"]).runs]
    assert configs == [
        {"model.heads": 3, "model.dim": 96},
        {"model.heads": 4, "model.dim": 64},
        {"model.heads": 4, "model.dim": 96},
    ]


def test_exclusions_apply_to_overridden_configs(write: WriteStudy) -> None:
    study = read_study(write("seeds = 1\nexclude = 'layers == 3 and dim > 64'\n[grid]\nmodel.dim = [64, 128]"))
    assert [run.settings.model.dim for run in plan_study(study, ["model.layers=3"]).runs] == [64]
