"""The one rule by which every question is decided: seeds are the units, and an interval is its test.

1. The values of a question are differences over seeds. Where seeds match, signs of the differences are flipped;
   where they do not, runs are permuted; in either case a t test must agree (`comparison`). A trend is tested by Page's
   test. All are two-sided at SIGNIFICANCE_LEVEL and corrected by Holm's method for the number of tests of the question.
2. The interval shown contains the differences that the same test, at the same level, does not reject. So it excludes
   0 exactly when the test rejects 0.
3. With fewer seeds than the test needs there is no interval and no verdict, and the number of seeds needed is given.

>>> decide_claim(0.1, 0.3, "higher"), decide_claim(-0.1, 0.3, "higher"), decide_claim(0.1, 0.3, "lower")
('yes', 'cannot tell', 'no')
>>> decide_claim(-0.01, 0.02, "same", margin=0.05)
'yes'
>>> seeds_needed(), seeds_needed(paired=False), seeds_needed(n_tests=10)
(6, 4, 9)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import comb, isfinite
from typing import Final, Literal, TypeAlias

SIGNIFICANCE_LEVEL: Final = 0.05
LEVEL_TOLERANCE: Final = 1e-9  # so that a p-value of exactly 5 % is not missed by rounding

# "no verdict": the data do not answer the question, whatever their values; None instead: it asks for no decision.
Verdict: TypeAlias = Literal["yes", "no", "cannot tell", "no verdict"]
Claim: TypeAlias = Literal["lower", "higher", "same"]


def is_significant(p: float, level: float = SIGNIFICANCE_LEVEL) -> bool:
    """Does a test with this (corrected) p-value reject? False for NaN."""
    return p <= level + LEVEL_TOLERANCE


def decide_difference(p: float) -> Verdict:
    """Is there a difference or a trend? A test that does not reject leaves it open."""
    return "yes" if is_significant(p) else "cannot tell"


def decide_claim(low: float, high: float, expect: Claim, margin: float = 0.0) -> Verdict:
    """Is a difference lower or higher than 0, or within ±margin (same), given the interval of its test?"""
    if not (isfinite(low) and isfinite(high)):
        return "cannot tell"
    if expect == "same":
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
        return "yes" if inside else "no" if outside else "cannot tell"
    if expect == "lower":
        low, high = -high, -low
    return "yes" if low > 0 else "no" if high <= 0 else "cannot tell"


def combine_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a question with several parts: that of all parts, if they agree."""
    distinct = set(verdicts)
    return distinct.pop() if len(distinct) == 1 else "cannot tell"


def seeds_needed(n_tests: int = 1, paired: bool = True) -> int:
    """The seeds (of each group, if unpaired) with which one of `n_tests` tests can reach 5 % after correction."""
    n = 1
    while not is_significant(2 * n_tests / (2**n if paired else comb(2 * n, n))):
        n += 1
    return n


# ---- several tests in one question ----


def holm_levels(p_values: Sequence[float]) -> list[float]:
    """The level at which Holm's method (1979) compares each p-value, in the order given.

    The smallest is compared at 5 % divided by the number of tests, the next by one test fewer, and so on up to the
    first that is not significant; the remaining ones are compared at the level of that one, which they exceed too.
    An interval at this level excludes 0 exactly when Holm's method rejects.
    """
    levels = [0.0] * len(p_values)
    n_remaining = len(p_values)
    for index in sorted(range(len(p_values)), key=lambda index: p_values[index]):
        levels[index] = SIGNIFICANCE_LEVEL / n_remaining
        n_remaining -= is_significant(p_values[index], levels[index])
    return levels
