"""Any study file or override either plans or raises one of our own errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seedbed.errors import MissingData, Problem, StudyError
from seedbed.study.plan import plan_named
from seedbed.study.read import parse_overrides
from seedbed.study.study_files import shipped_studies

T = TypeVar("T")
STUDY_TEXTS = [path.read_text(encoding="utf-8") for path in shipped_studies().values()]
STUDY_TEXTS = [
    re.sub('corpus = "[a-z0-9]+"', 'corpus = "python-docs"', text) for text in STUDY_TEXTS
]  # always available
FRAGMENTS = [
    *"[]{}=\"'.,#\n\\ -+0",
    *(
        "[[zip]]",
        "[grid]",
        "model.heads",
        "nan",
        "inf",
        "true",
        '"""',
        "'''",
        "1e999",
        "-0.0",
        "[[2], [3]]",
        "[]",
        "{}",
    ),
    *(
        "exclude = 'dim > 3'",
        "seeds = ",
        "0x7fffffffffffffff",
        "1979-05-27",
        "\x00",
        "\u202e",
        "\x1b[2J",
        "task.p = [4, 1]",
    ),
    *("[random]\nn_configs = 3\n", "train.lr = 'log 1e-4..1e-1 x3'\n", "model.layers = '1..3'\n", "..", " x9", "log "),
    *("[base.task]\np = 4\noperator = '/'", "name = 'x'", "[[configs]]\nmodel.hidden = 3\n", "model.kind = ['gpt']\n"),
]


RANGE_PIECES = st.lists(st.sampled_from(["log ", "..", "1", "-", "e5", "e999", "0.1", " x", "9", ","])).map("".join)


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEEDBED_OFFLINE", "1")


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(STUDY_TEXTS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(FRAGMENTS) | st.text(max_size=4)) + text[end:]
    return text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=mutated())
def test_a_mutated_file_plans_or_raises_our_own_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    plan, problems = outcome(lambda: plan_named(str(path)))
    assert all(problem.where.startswith(str(path)) for problem in problems)
    if plan:
        path.write_text(plan.text, encoding="utf-8")
        assert [run.id for run in plan_named(str(path)).runs] == [run.id for run in plan.runs]


@settings(max_examples=200, deadline=None)
@given(
    argument=st.text(max_size=30)
    | st.builds("{}={}".format, st.sampled_from(["train.lr", "task.orders", "seeds"]), st.text())
    | st.builds("{}={}".format, st.sampled_from(["train.lr", "seeds", "random.model.dim", "random.seed"]), RANGE_PIECES)
)
def test_any_override_parses_or_raises_our_own_error(argument: str) -> None:
    overrides, problems = outcome(lambda: parse_overrides([argument]))
    assert overrides or problems


def outcome(action: Callable[[], T]) -> tuple[T | None, tuple[Problem, ...]]:
    try:
        return action(), ()
    except StudyError as error:
        return None, error.problems
    except MissingData:  # a corpus that does not exist
        return None, ()


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 500 + "]" * 500,
        "x = " + "{a=" * 200_000,
        ".".join("k" * 20_000) + " = 1",
        "[" + ".".join("k" * 20_000) + "]",
        "\n".join(f"k{index} = 1" for index in range(20_000)),
        "[grid]\ntrain.lr = [" + "1," * 450_000 + "]",
        "[grid]\ntrain.lr = [" + "'x'," * 50_000 + "]",
        'x = "' + '\\"' * 490_000,
        "x = '''" + "''\n" * 300_000,
        "[[zip]]\n" * 100_000,
        "[base.model]\n" + "".join(f"a{index}.b.c.d = 1\n" for index in range(9_000)),
    ],
    ids=["deep", "braces", "key", "header", "keys", "list", "wrong list", "quotes", "unclosed text", "zips", "dotted"],
)
def test_a_hostile_file_is_rejected_quickly(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(StudyError):
        plan_named(str(path))
    assert time.process_time() - start < 2
