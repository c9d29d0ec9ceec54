"""Conditions on settings: the filters that select runs, and the exclude expressions of study files.

`--only 'train.steps=1201 model.kind=gpt'`, the same for all commands, the page and Python: an entry holds terms
separated by spaces, all of which must hold; several entries must all hold as well. A term compares a setting (the last
part of its name alone where that is unambiguous) with a value: `=`, `!=`, `<`, `<=`, `>`, `>=`. Values separated by
commas are alternatives, and `unset` is a setting without a value. Besides settings, a filter knows `seed`, `status`,
`id` and `dataset` (both by their beginning) and `tag`.

>>> terms = parse_filters(["steps>=1000 seed=0,1"])
>>> [str(term) for term in terms]
['train.steps>=1000', 'seed=0,1']

`exclude = "model.layers == 3 and model.dim > 128"`: comparisons, `and`, `or`, `not`, `in`, constants and setting names;
interpreted, never executed as code. A comparison with a setting that a config's model does not have is false.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Protocol, TypeVar, get_args

from seedbed.errors import MissingData, Problem, StudyError, UsageError
from seedbed.records import Plan, RunStatus
from seedbed.settings import DatasetInfo, Settings, Value, all_settings, check_value, matches_value, whole_number
from seedbed.study.former_words import replacement_of
from seedbed.study.toml_text import (
    LimitError,
    did_you_mean,
    format_toml_value,
    parse_value,
    preview_toml,
    split_outside_quotes,
    truncate_text,
)

RUN_FIELDS: Final = ("seed", "status", "id", "dataset", "tag")  # what a filter knows besides settings
MAX_LISTED_VALUES: Final = 8
_TERM_START: Final = re.compile(r"([\w.-]+)\s*(!=|<=|>=|==|=|<|>)\s*")
_ORDER_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MAX_RULE_CHARACTERS: Final = 500
RULE_SYNTAX: Final = "comparisons of settings, joined by and, or, not"
TOML_BOOLEANS: Final = {"true": True, "false": False}  # TOML's spelling


class InvalidRule(ValueError):
    """An unusable expression; the message is the reason."""


@cache
def resolve_setting_name(text: str, accepts: Callable[[str], bool] = lambda name: True) -> str:
    """The full name of the setting or constant that a text names, perhaps by its last part alone.

    Where several settings end in it, the one that accepts what is asked of it.
    """
    known = all_settings()
    if text in known or text in TOML_BOOLEANS:
        return text
    named = [name for name in known if name.endswith(f".{text}")]
    found = [name for name in named if accepts(name)] or named
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidRule(f"{text} could be {' or '.join(found)}")
    if replacement := replacement_of(text):
        raise InvalidRule(f"{text} is now called {replacement}")
    raise InvalidRule(f"{truncate_text(text)} is not a setting{did_you_mean(text, known)}")


# ---- filters of runs ----


class FilterableRun(Protocol):
    """What a filter reads of a planned or a stored run; the status of a planned one is given separately."""

    @property
    def id(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def dataset_info(self) -> DatasetInfo | None: ...


AnyRun = TypeVar("AnyRun", bound=FilterableRun)


@dataclass(frozen=True)
class RunFacts:
    """What the store knows of runs besides their settings, by run id; a run that is absent is planned and untagged."""

    statuses: Mapping[str, str]
    tags: Mapping[str, Collection[str]]


NO_FACTS: Final = RunFacts({}, {})


@dataclass(frozen=True)
class FilterTerm:
    """One comparison, such as `model.kind=gpt,lstm`."""

    name: str
    sign: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{','.join(map(format_filter_value, self.values))}"

    def matches(self, run: FilterableRun, facts: RunFacts = NO_FACTS) -> bool:
        found = _field_value(run, self.name, facts)
        if compare := _ORDER_COMPARISONS.get(self.sign):
            return _is_number(found) and compare(found, self.values[0])
        is_found = any(self._equals(found, value) for value in self.values)
        return is_found if self.sign == "=" else found is not None and not is_found

    def _equals(self, found: Value, wanted: Value) -> bool:
        if self.name == "tag":
            return wanted in found
        if self.name in ("id", "dataset"):
            return str(found or "").startswith(str(wanted))
        return matches_value(found, wanted)


def select_runs(
    runs: Sequence[AnyRun], only: Sequence[str], facts: RunFacts = NO_FACTS, owner: str = "this study"
) -> list[AnyRun]:
    """The runs that match all filters; MissingData, with the values that exist, if there are runs but none matches."""
    terms = parse_filters(only)
    selected = [run for run in runs if all(term.matches(run, facts) for term in terms)]
    if runs and not selected:
        raise MissingData(f"no run of {owner} has {_describe_no_match(runs, terms, facts)}")
    return selected


def filter_plans(plans: Sequence[Plan], only: Sequence[str], facts: RunFacts = NO_FACTS) -> list[Plan]:
    """The plans with only the runs that match, without plans that have none; MissingData if no plan has any."""
    reduced, misses = [], []
    for plan in plans:
        try:
            reduced.append(replace(plan, runs=tuple(select_runs(plan.runs, only, facts, plan.study))))
        except MissingData as miss:
            misses.append(miss)
    if misses and not reduced:
        raise misses[0]
    return reduced


def parse_filters(only: Sequence[str]) -> tuple[FilterTerm, ...]:
    """The terms of all entries; UsageError for one that cannot be understood."""
    return tuple(term for entry in only for term in _parse_entry(entry))


def format_filter(name: str, accepted: Value) -> str:
    """The term that accepts a value or, of a setting whose values are not lists, any of several: `model.kind=gpt,lstm`.

    >>> format_filter("model.kind", ("gpt", "lstm")), format_filter("task.orders", (2, 3)), format_filter("seed", 0)
    ('model.kind=gpt,lstm', 'task.orders=[2,3]', 'seed=0')
    """
    is_one = not isinstance(accepted, tuple | list) or (name in all_settings() and check_value(name, accepted) is None)
    return str(FilterTerm(name, "=", (accepted,) if is_one else tuple(accepted)))


def format_filter_value(value: Value) -> str:
    """A value as written in a filter; text is quoted where it would be read as something else."""
    if value is None:
        return "unset"
    if isinstance(value, tuple | list):
        return "[" + ",".join(map(format_filter_value, value)) + "]"
    if not isinstance(value, str):
        return format_toml_value(value)
    is_plain = re.fullmatch(r"[^\s,\"'\[\]{}]+", value) and value != "unset" and parse_value(value) == value
    return value if is_plain else format_toml_value(value)


def _parse_entry(entry: str) -> list[FilterTerm]:
    terms = []
    for text in _split_terms(entry):
        try:
            terms.append(_parse_term(text))
        except (InvalidRule, LimitError) as reason:
            raise UsageError(f"filter '{truncate_text(text)}': {reason}") from None
    if not terms:
        raise UsageError("an empty filter; expected key=value, such as model.kind=gpt")
    return terms


def _split_terms(entry: str) -> list[str]:
    """The terms of an entry; spaces around a comparison sign belong to the term."""
    terms: list[str] = []
    for word in filter(None, split_outside_quotes(entry, " \t\n")):
        if terms and (re.match(r"[!<>=]", word) or re.search(r"[<>=]$", terms[-1])):
            terms[-1] += word
        else:
            terms.append(word)
    return terms


def _parse_term(text: str) -> FilterTerm:
    start = _TERM_START.match(text)
    if start is None:
        raise InvalidRule("expected key=value, such as model.kind=gpt; put quotes around a value with spaces")
    sign = "=" if start[2] == "==" else start[2]
    pieces = [piece.strip() for piece in split_outside_quotes(text[start.end() :], ",")]

    def accepts(name: str) -> bool:  # `kind=gpt` is about models: no task is of that kind
        return all(_rejects(name, _parse_filter_value(name, piece)) is None for piece in pieces)

    name = _resolve_name(start[1], accepts)
    if not all(pieces):
        raise InvalidRule(f"expected a value after {start[2]} and between commas")
    values = tuple(_parse_filter_value(name, piece) for piece in pieces)
    if sign in _ORDER_COMPARISONS and not (len(values) == 1 and _is_number(values[0])):
        raise InvalidRule(f"expected one number after {sign}")
    for value in values if sign not in _ORDER_COMPARISONS else ():
        if accepted := _rejects(name, value):
            raise InvalidRule(f"{name} = {preview_toml(value)}: expected {accepted}")
    return FilterTerm(name, sign, values)


def _resolve_name(text: str, accepts: Callable[[str], bool]) -> str:
    if text in RUN_FIELDS:
        return text
    if text == "seeds":
        raise InvalidRule("a run has one seed; expected seed=0, or seed=0,1 for several")
    try:
        return resolve_setting_name(text, accepts)
    except InvalidRule as reason:
        raise InvalidRule(str(reason) if "(" in str(reason) else f"{reason}{did_you_mean(text, RUN_FIELDS)}") from None


def _parse_filter_value(name: str, piece: str) -> Value:
    if name == "dataset":  # the digest, or what tables call the dataset: "greek.txt (a1b2c3)"
        return re.sub(r".*\(|\).*", "", piece)
    if name in ("id", "tag"):
        return piece  # 12e4 begins an id, and is not a number
    if piece == "unset" and name in all_settings():
        return None
    value = parse_value(piece)
    return whole_number(name, value) if name in all_settings() else value


def _rejects(name: str, value: Value) -> str | None:
    """What the field accepts, if it can never have this value."""
    if name == "status":
        return None if value in get_args(RunStatus) else f"one of {', '.join(get_args(RunStatus))}"
    if name == "seed":
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    return None if name in RUN_FIELDS or value is None else check_value(name, value)


def _field_value(run: FilterableRun, name: str, facts: RunFacts) -> Value:
    """A run's value of a setting or field; None where it has none."""
    match name:
        case "seed" | "id":
            return getattr(run, name)
        case "status":
            return getattr(run, "status", None) or facts.statuses.get(run.id, "planned")
        case "tag":
            return facts.tags.get(run.id, ())
        case "dataset":
            return run.dataset_info and run.dataset_info.digest.rpartition("/")[2]
    return run.settings.get(name)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _describe_no_match(runs: Sequence[FilterableRun], terms: Sequence[FilterTerm], facts: RunFacts) -> str:
    """`train.steps=500; train.steps has 60 and 1201 here`."""
    unmatched = [term for term in terms if not any(term.matches(run, facts) for run in runs)]
    if not unmatched:
        return f"{' and '.join(map(str, terms))} at once, though each of them matches some run"
    names = dict.fromkeys(term.name for term in unmatched)
    return "; ".join(
        [" ".join(map(str, unmatched)), *(_describe_values(runs, name, facts) for name in names if name != "id")]
    )


def _describe_values(runs: Sequence[FilterableRun], name: str, facts: RunFacts) -> str:
    found = [_field_value(run, name, facts) for run in runs]
    values = list(dict.fromkeys([tag for tags in found for tag in tags] if name == "tag" else found))
    if name == "tag" and not values:
        return "none of its runs has a tag"
    if all(map(_is_number, values)):
        values.sort()
    texts = [format_filter_value(value) for value in values[:MAX_LISTED_VALUES]]
    more = [f"{len(values) - len(texts)} more"] if len(values) > len(texts) else []
    *most, last = [*texts, *more]
    return f"{name} has {', '.join(most)} and {last} here" if most else f"{name} has only {last} here"


# ---- exclude expressions ----


def _equal(left: Value, right: Value) -> bool:
    """Whether a setting equals a constant, whichever of the two comes first."""
    return matches_value(right, left) if isinstance(right, tuple) else matches_value(left, right)


_COMPARISON_OPERATORS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: _equal,
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: any(matches_value(left, item) for item in right),
    ast.NotIn: lambda left, right: not any(matches_value(left, item) for item in right),
}


@dataclass(frozen=True)
class ExcludeRule:
    """One expression; configs for which it is true are excluded."""

    text: str
    where: str
    tree: ast.expr

    def excludes(self, settings: Mapping[str, Value]) -> bool:
        try:
            return bool(_evaluate(self.tree, settings))
        except TypeError as error:
            what = f"exclude = {preview_toml(self.text)} compares incompatible types ({error})"
            raise StudyError([Problem(self.where, what)]) from None


def parse_exclude_rule(text: str, where: str) -> ExcludeRule:
    """The parsed rule; InvalidRule if the text is not one."""
    if len(text) > MAX_RULE_CHARACTERS:
        raise InvalidRule(f"{len(text):,} characters; at most {MAX_RULE_CHARACTERS} are accepted")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about odd spellings such as `1is 1`
            tree = ast.parse(text.strip(), mode="eval").body
        for node in _walk_expressions(tree):
            _check_node(node)
    except (SyntaxError, RecursionError, MemoryError, UnicodeError) as error:
        raise InvalidRule(f"expected {RULE_SYNTAX} ({getattr(error, 'msg', 'nested too deeply')})") from None
    return ExcludeRule(text, where, tree)


def _walk_expressions(tree: ast.expr) -> Iterator[ast.expr]:
    """All subexpressions; a dotted name counts as one, whole."""
    yield tree
    if not isinstance(tree, ast.Attribute):
        for child in ast.iter_child_nodes(tree):
            if isinstance(child, ast.expr):
                yield from _walk_expressions(child)


def _check_node(node: ast.expr) -> None:
    match node:
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.List() | ast.Tuple():
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            pass
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case ast.Name() | ast.Attribute():
            resolve_setting_name(_dotted_name(node))
        case ast.Compare() if all(type(sign) in _COMPARISON_OPERATORS for sign in node.ops):
            _check_compared_values(node)
        case _:
            raise InvalidRule(f"expected {RULE_SYNTAX}; found {truncate_text(ast.unparse(node))}")


def _check_compared_values(node: ast.Compare) -> None:
    """Reject a comparison with a value that the setting can never have: it is a typo."""
    name = resolve_setting_name(_dotted_name(node.left)) if isinstance(node.left, ast.Name | ast.Attribute) else None
    for sign, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(sign, ast.In | ast.NotIn) and not isinstance(right, ast.List | ast.Tuple):
            raise InvalidRule(f"expected a list after in; found {truncate_text(ast.unparse(right))}")
        if name in all_settings() and not isinstance(sign, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            for value in _literal_values(right, isinstance(sign, ast.In | ast.NotIn)):
                if accepted := check_value(str(name), value):
                    raise InvalidRule(f"{name} = {preview_toml(value)}: expected {accepted}")


def _literal_values(node: ast.expr, is_list: bool) -> Iterator[Value]:
    """The literal value, or the literal items of a list."""
    items = node.elts if is_list and isinstance(node, ast.List | ast.Tuple) else [node]
    for item in items:
        with contextlib.suppress(ValueError):
            yield ast.literal_eval(item)


def _evaluate(node: ast.expr, settings: Mapping[str, Value]) -> Value:
    match node:
        case ast.BoolOp(op=ast.And()):
            return all(_evaluate(part, settings) for part in node.values)
        case ast.BoolOp():
            return any(_evaluate(part, settings) for part in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return not _evaluate(node.operand, settings)
        case ast.UnaryOp():
            return -_evaluate(node.operand, settings)
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple():
            return tuple(_evaluate(part, settings) for part in node.elts)
        case ast.Compare():
            return _evaluate_comparison(node, settings)
    name = resolve_setting_name(_dotted_name(node))
    return TOML_BOOLEANS[name] if name in TOML_BOOLEANS else settings.get(name)


def _evaluate_comparison(node: ast.Compare, settings: Mapping[str, Value]) -> bool:
    values = [_evaluate(part, settings) for part in (node.left, *node.comparators)]
    if any(value is None for value in values):
        return False
    pairs = zip(node.ops, values, values[1:], strict=False)
    return all(_COMPARISON_OPERATORS[type(sign)](left, right) for sign, left, right in pairs)


def _dotted_name(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_dotted_name(node.value)}.{node.attr}"
    raise InvalidRule(f"expected {RULE_SYNTAX}; found {truncate_text(ast.unparse(node))}")
