"""Exclude expressions over settings: `model.layers == 3 and model.dim > 128`; interpreted, never executed as code.

Comparisons, `and`, `or`, `not`, `in`, constants and setting names (the last part alone where it is unambiguous). A
comparison with a setting that a config's model does not have is false.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from seedbed.errors import Problem, StudyError
from seedbed.settings import Value, all_settings, check_value, matches_value
from seedbed.study.former_words import replacement_of
from seedbed.study.toml_format import did_you_mean, preview_toml, truncate_text

MAX_RULE_CHARACTERS: Final = 500
RULE_SYNTAX: Final = "comparisons of settings, joined by and, or, not"
TOML_BOOLEANS: Final = {"true": True, "false": False}  # TOML's spelling

_COMPARISON_OPERATORS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: lambda left, right: _equal(left, right),
    ast.NotEq: lambda left, right: not _equal(left, right),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: any(matches_value(left, item) for item in right),
    ast.NotIn: lambda left, right: not any(matches_value(left, item) for item in right),
}


def _equal(left: Value, right: Value) -> bool:
    """Whether a setting equals a constant, whichever of the two comes first."""
    return matches_value(right, left) if isinstance(right, tuple) else matches_value(left, right)


class InvalidRule(ValueError):
    """An unusable expression; the message is the reason."""


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


@cache
def resolve_setting_name(text: str) -> str:
    """The full name of the setting or constant that a text names, perhaps by its last part alone."""
    known = all_settings()
    if text in known or text in TOML_BOOLEANS:
        return text
    found = [name for name in known if name.endswith(f".{text}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidRule(f"{text} could be {' or '.join(found)}")
    if replacement := replacement_of(text):
        raise InvalidRule(f"{text} is now called {replacement}")
    raise InvalidRule(f"{truncate_text(text)} is not a setting{did_you_mean(text, known)}")
