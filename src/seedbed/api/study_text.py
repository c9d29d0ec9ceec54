"""Studies written in Python, as the text of a study file: the study reader then checks both in the same way.

>>> arguments = {"name": "depth", "base": {"train": {"steps": 100}}, "grid": {"model.layers": range(1, 4)}}
>>> print(to_study_text(arguments).text)
name = "depth"
[base]
train.steps = 100
[grid]
model.layers = [1, 2, 3]
<BLANKLINE>
>>> to_overrides({"train.lr": [1e-3, 3e-4], "model.kind": "lstm", "task.orders": [2, 3], "seeds": range(3)})
['train.lr=0.001,0.0003', 'model.kind="lstm"', 'task.orders=[2, 3]', 'seeds=[0, 1, 2]']
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from seedbed.errors import Problem, StudyError, UsageError
from seedbed.settings import Value, all_settings, check_value
from seedbed.study.conditions import format_filter
from seedbed.study.definition import Study
from seedbed.study.read import parse_study
from seedbed.study.toml_text import flatten_table, format_toml_key, format_toml_value

Overrides: TypeAlias = str | Sequence[str] | Mapping[str, Any]
Filters: TypeAlias = str | Sequence[str] | Mapping[str, Any]

MAX_NAMED_SETTINGS = 3  # in the name of a study that was given none
_TABLES = ("base", "grid", "random")  # tables of settings
_WHERE = "study"  # in place of a file's path; followed by the line, which is replaced by the argument


@dataclass(frozen=True)
class StudyText:
    """The text of a study, and the argument that each of its lines comes from."""

    text: str
    arguments: tuple[str, ...]

    def parse(self, overrides: Sequence[str] = ()) -> Study:
        """The study; StudyError lists all problems, each with the argument in which it was found."""
        try:
            return parse_study(self.text, _WHERE, overrides)
        except StudyError as error:
            raise StudyError(map(self._locate, error.problems)) from None

    def _locate(self, problem: Problem) -> Problem:
        path, _, line = problem.where.rpartition(":")
        is_located = path == _WHERE and line.isdecimal() and int(line) <= len(self.arguments)
        where = f"Study({self.arguments[int(line) - 1]}=…)" if is_located else problem.where
        return Problem(where, problem.what)


def read_written_study(arguments: Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """The study that the arguments of `seedbed.Study` describe; one without a name gets one."""
    if arguments.get("name") is None:
        arguments = {**arguments, "name": default_study_name(arguments)}
    return to_study_text(arguments).parse(overrides)


def default_study_name(arguments: Mapping[str, Any]) -> str:
    """What is varied, and a digest of what is fixed: more values or seeds leave the name as it is.

    >>> default_study_name({"base": {"task.p": 23}, "grid": {"model.layers": [1, 2]}, "seeds": 8})
    'layers-fd228d'
    """
    tables = {name: to_value(arguments.get(name) or {}, name) for name in _TABLES}
    settings = {name: dict(flatten_table(table)) if isinstance(table, dict) else {} for name, table in tables.items()}
    varied = [name for key in ("grid", "random") for name in settings[key] if "." in name]
    others = [repr(arguments.get(name)) for name in ("zip", "configs", "exclude", "scales")]
    fixed = [f"{name}={value!r}" for name, value in sorted(settings["base"].items())]
    digest = hashlib.sha256("\n".join([*fixed, *varied, *others]).encode()).hexdigest()
    names = [name.rpartition(".")[2] for name in varied[:MAX_NAMED_SETTINGS]]
    return "-".join([*(names or ["study"]), digest[:6]])


def to_study_text(arguments: Mapping[str, Any]) -> StudyText:
    """The study file that these arguments of `seedbed.Study` describe; None stands for an argument left out."""
    given = {name: to_value(value, name) for name, value in arguments.items() if value is not None}
    lines = [(f"{name} = {format_toml_value(value)}", name) for name, value in given.items() if name not in _TABLES]
    for name in _TABLES:
        if name in given:
            lines += [(f"[{name}]", name), *((line, name) for line in _table_lines(given[name], name))]
    return StudyText("".join(f"{line}\n" for line, _ in lines), tuple(name for _, name in lines))


def _table_lines(table: Value, argument: str) -> Iterator[str]:
    """A table of settings with nested or dotted names, one setting per line."""
    if not isinstance(table, dict):
        raise UsageError(f"Study({argument}=…): expected a dict of settings, such as {{'train.steps': 1000}}")
    seen = set()
    for name, value in flatten_table(table):
        if name in seen:
            raise UsageError(f"Study({argument}=…): {name} is given twice")
        seen.add(name)
        yield f"{format_toml_key(name)} = {format_toml_value(value)}"


def to_value(value: Any, where: str) -> Value:
    """A Python or NumPy value as one that TOML has: ranges, tuples and arrays become lists, paths text."""
    if isinstance(value, np.ndarray | np.generic):
        return to_value(value.tolist(), where)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): to_value(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [to_value(item, where) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    raise UsageError(
        f"Study({where}=…): {value!r} cannot be the value of a setting; expected a number, a text, true or false"
        + ("; leave out a setting that is not set" if value is None else "")
    )


def to_overrides(overrides: Overrides, seeds: Any = None) -> list[str]:
    """Overrides as `key=value` texts; in a dict, a list of values is a sweep unless the setting's value is a list."""
    if isinstance(overrides, str):
        overrides = overrides.split()
    texts = [_to_override(*item) for item in overrides.items()] if isinstance(overrides, Mapping) else list(overrides)
    return texts if seeds is None else [*texts, _to_override("seeds", seeds)]


def _to_override(name: str, value: Any) -> str:
    found = to_value(value, name)
    is_one = not isinstance(found, list) or name == "seeds"
    is_one = is_one or (name in all_settings() and check_value(name, found) is None)
    return f"{name}={','.join(map(format_toml_value, [found] if is_one else found))}"


def to_filters(only: Filters) -> list[str]:
    """Filters as the texts of `--only`, from a text, several, or a dict such as `{"model.kind": "gpt"}`."""
    if isinstance(only, Mapping):
        return [format_filter(name, None if value is None else to_value(value, name)) for name, value in only.items()]
    return [only] if isinstance(only, str) else list(only)
