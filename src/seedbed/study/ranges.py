"""Ranges of numbers as text, one grammar for study files and the command line: `[log] LOW..HIGH [xN]`.

    "1..8"                 the whole numbers from 1 to 8
    "0.1..0.9 x9"          9 values, evenly spaced
    "log 1e-4..1e-1 x12"   12 values, each the same factor above the one before

Values between the ends are rounded to 4 significant digits, so that they are readable and run ids are stable; those of
a setting that takes whole numbers are rounded to whole numbers, each listed once. In a random search a range without a
number of values is a distribution: uniform, or log-uniform.

>>> expand_range("train.lr", "log 1e-4..1e-1 x4")
[0.0001, 0.001, 0.01, 0.1]
>>> expand_range("model.layers", "1..4")
[1, 2, 3, 4]
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import exp, isfinite, log
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from seedbed.settings import Value, all_settings

SIGNIFICANT_DIGITS: Final = 4
MAX_VALUES: Final = 100_000
RANGE_EXAMPLES: Final = '"1..8", "0.1..0.9 x9" or "log 1e-4..1e-1 x12"'
_NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE_PATTERN: Final = re.compile(
    rf"\s*(?P<log>log\s+)?(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})(?:\s+x\s*(?P<n>\d{{1,9}}))?\s*"
)


class InvalidRange(ValueError):
    """A range that cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; `n` values of it, or None where the text does not say."""

    low: float
    high: float
    is_log: bool
    n: int | None
    whole: bool  # only whole numbers

    def values(self) -> list[Value]:
        """The values, in order; InvalidRange if the range does not say how many."""
        if self.n is None and (self.is_log or not (self.low.is_integer() and self.high.is_integer())):
            raise InvalidRange("expected the number of values as well, as in x12")
        n = int(self.high - self.low) + 1 if self.n is None else self.n
        if n > MAX_VALUES:
            raise InvalidRange(f"more than {MAX_VALUES:,} values")
        values = [self.low, *(self._interpolate(index / (n - 1)) for index in range(1, n - 1)), self.high]
        return list(dict.fromkeys(round(value) if self.whole else value for value in values))

    def draw(self, fraction: float) -> Value:
        """A draw from the range as a distribution, given a uniform draw from [0, 1)."""
        if not self.whole:
            return self._interpolate(fraction)
        # Every whole number stands for the interval of half a unit on both sides of it.
        bounds = Range(self.low - 0.5, self.high + 0.5, self.is_log, None, whole=True)
        return min(max(round(bounds._interpolate(fraction)), int(self.low)), int(self.high))

    def _interpolate(self, fraction: float) -> float:
        """The number at this fraction of the range, rounded within its ends; `whole` numbers are rounded later."""
        if self.is_log:
            value = exp(log(self.low) + fraction * (log(self.high) - log(self.low)))
        else:
            value = self.low + fraction * (self.high - self.low)
        return value if self.whole else min(max(float(f"{value:.{SIGNIFICANT_DIGITS}g}"), self.low), self.high)


def is_range(name: str, value: Value) -> bool:
    """Whether a value is meant as a range: a text with two dots, for a setting that takes numbers."""
    return isinstance(value, str) and ".." in value and number_type(name) is not None


def expand_range(name: str, text: str) -> list[Value]:
    """The values of a setting that a range lists; InvalidRange says what is wrong."""
    return parse_range(text, whole=number_type(name) is int).values()


def parse_range(text: str, whole: bool) -> Range:
    """The range that a text describes; InvalidRange says what is wrong."""
    if (match := _RANGE_PATTERN.fullmatch(text)) is None:
        raise InvalidRange(f"expected a range such as {RANGE_EXAMPLES}")
    low, high = float(match["low"]), float(match["high"])
    n = None if match["n"] is None else int(match["n"])
    if not (isfinite(low) and isfinite(high)):
        raise InvalidRange("expected finite numbers at both ends")
    if low >= high:
        raise InvalidRange("expected the smaller number first, and another one after it")
    if match["log"] and low <= 0:
        raise InvalidRange("expected numbers above 0 at both ends of a log range")
    if whole and not (low.is_integer() and high.is_integer()):
        raise InvalidRange("expected whole numbers at both ends")
    if n is not None and n < 2:
        raise InvalidRange("expected at least 2 values")
    return Range(low, high, bool(match["log"]), n, whole)


def number_type(name: str) -> type[int] | type[float] | None:
    """The type of a setting's values: float if any kind of task or model accepts it; None if they are no numbers."""
    types = [leaf for field in all_settings()[name] for leaf in _leaf_types(field.annotation)]
    if str in types:  # its texts mean something else
        return None
    return float if float in types else int if int in types else None


def _leaf_types(annotation: Any) -> list[Any]:
    """The types that an annotation is a union of."""
    if get_origin(annotation) is Annotated:
        return _leaf_types(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [leaf for part in get_args(annotation) for leaf in _leaf_types(part)]
    return [annotation]
