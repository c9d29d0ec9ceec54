from __future__ import annotations

import re
from pathlib import Path

import pytest

from seedbed.errors import MissingData, UsageError
from seedbed.records import ParameterCounts, Run, StoredRun
from seedbed.settings import DatasetInfo, Settings, Value
from seedbed.study.conditions import NO_FACTS, RUN_FIELDS, RunFacts, format_filter, parse_filters, select_runs

INFO = DatasetInfo(vocab_size=31, context_length=5, n_train=100, digest="a1b2c3d4")


def run(number: int, seed: int = 0, status: str = "finished", **settings: Value) -> StoredRun:
    flat = {name.replace("__", "."): value for name, value in settings.items()}
    return StoredRun(
        f"{number:02}f0e1", seed, Settings.from_flat(flat), ParameterCounts(1, 1), status, 3, dataset_info=INFO
    )


RUNS = [
    run(1, model__kind="gpt", train__steps=60),
    run(2, seed=1, model__kind="gpt", train__steps=60),
    run(3, model__kind="gpt", train__steps=1201, status="stopped"),
    run(4, model__kind="lstm", train__steps=1201, task__orders=(2, 3)),
    run(12, model__kind="lstm", train__steps=1201, train__max_tokens=500),
]
NUMBERS = {one.id: int(one.id[:2]) for one in RUNS}


def selected(*only: str, facts: RunFacts = NO_FACTS) -> list[int]:
    return [NUMBERS[one.id] for one in select_runs(RUNS, only, facts)]


@pytest.mark.parametrize(
    ("only", "numbers"),
    [
        (["train.steps=1201 model.kind=gpt"], [3]),
        (["train.steps=1201", "model.kind=gpt"], [3]),
        (["steps=1201"], [3, 4, 12]),
        (["kind=gpt"], [1, 2, 3]),  # no task is of that kind
        (["kind!=gpt"], [4, 12]),
        (["kind=arithmetic"], [1, 2, 3, 4, 12]),
        (["train.steps=60,1201 seed=1"], [2]),
        (["seed=0,1"], [1, 2, 3, 4, 12]),
        (["seed!=0"], [2]),
        (["train.steps >= 1000 model.kind != lstm"], [3]),
        (["train.steps<61"], [1, 2]),
        (["status=stopped"], [3]),
        (["id=1"], [12]),
        (["id=03,04"], [3, 4]),
        (["dataset=a1b2"], [1, 2, 3, 4, 12]),
        (["task.orders=[2,3]"], [4]),
        (["task.orders=2"], [1, 2, 3, 12]),
        (["max_tokens=unset"], [1, 2, 3, 4]),
        (["train.max_tokens!=unset"], [12]),
        (['model.kind="gpt" seed==0'], [1, 3]),
        (["model.heads!=7"], [1, 2, 3]),  # an LSTM has no heads, as in exclude rules
        (["tag=good,best"], [2, 3]),
    ],
)
def test_terms_select_runs(only: list[str], numbers: list[int]) -> None:
    tags = {RUNS[1].id: {"good"}, RUNS[2].id: {"best", "draft"}}
    assert selected(*only, facts=RunFacts({}, tags)) == numbers


def test_planned_runs_take_their_status_from_the_store() -> None:
    planned = [Run(name, seed, {}, Settings(), ParameterCounts(1, 1), INFO) for seed, name in enumerate(("aa", "bb"))]
    facts = RunFacts({"bb": "finished"}, {})
    assert [one.id for one in select_runs(planned, ["status=planned"], facts)] == ["aa"]
    assert [one.id for one in select_runs(planned, ["status=finished"], facts)] == ["bb"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("train.stps=3", "did you mean train.steps?"),
        ("statsu=finished", "did you mean status?"),
        ("kind=gtp", "could be task.kind or model.kind"),
        ("model.kind", "expected key=value"),
        ("model.kind=", "expected a value after ="),
        ("seed=0,,1", "between commas"),
        ("model.kind=gtp", 'model.kind = "gtp": expected one of'),
        ("train.steps>=fast", "expected one number after >="),
        ("train.steps>=1,2", "expected one number after >="),
        ("status=done", "expected one of planned, running"),
        ("seeds=3", "expected seed=0"),
        ("seed=first", "expected a whole number"),
        ("=3", "expected key=value"),
        ("", "an empty filter"),
        ("train.lr=" + "[" * 10_000, "filter 'train.lr=["),
    ],
)
def test_a_bad_filter_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(UsageError) as error:
        select_runs(RUNS, [text])
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["steps=500"], "no run of mine has train.steps=500; train.steps has 60 and 1201 here"),
        (["model.kind=gpt seed=7"], "no run of mine has seed=7; seed has 0 and 1 here"),
        (["steps=60 model.kind=lstm"], "no run of mine has train.steps=60 and model.kind=lstm at once"),
        (["status=failed"], "status has finished and stopped here"),
        (["tag=good"], "none of its runs has a tag"),
        (["id=ff"], "no run of mine has id=ff"),
        (["train.weight_decay=7"], "train.weight_decay has only "),
    ],
)
def test_a_filter_without_a_match_says_which_values_exist(only: list[str], message: str) -> None:
    with pytest.raises(MissingData) as error:
        select_runs(RUNS, only, owner="mine")
    assert message in str(error.value)


@pytest.mark.parametrize("value", ["gpt", "a b", "3", "true", "unset", 3, 0.0001, True, None, (2, 3), "it's", 'a"b'])
def test_a_formatted_filter_selects_its_value(value: Value) -> None:
    """Through the command line's grammar and back."""
    name = {bool: "model.tied", int: "train.steps", float: "train.lr", tuple: "task.orders", str: "task.corpus"}.get(
        type(value), "train.max_tokens"
    )
    [term] = parse_filters([format_filter(name, value)])
    assert term.name == name
    assert tuple(term.values) in [(value,), ([*value],) if isinstance(value, tuple) else ()]


def test_the_terms_of_the_guide_can_be_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert len(terms) > 10
    assert [len(parse_filters([term])) for term in terms] == [1] * len(terms)
    assert {name for term in terms for name in RUN_FIELDS if term.startswith(f"{name}=")} == set(RUN_FIELDS)
    for quoted in re.findall(r"--only '?([^'\n]+?)'?(?: +#| --yes|$)", text, re.MULTILINE):
        assert parse_filters([quoted])
