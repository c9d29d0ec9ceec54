"""Mean and spread of one number over seeds, as the reports' tables show them.

The std is the population's (ddof 0), so two seeds give half their difference. Intervals and tests are not here.

>>> over_seeds({0: 9800.0, 42: 10001.0})
Spread(mean=9900.5, std=100.5, values={0: 9800.0, 42: 10001.0})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Mean and population std over seeds, with every value by seed."""

    mean: float
    std: float
    values: Mapping[int, float]

    @property
    def n(self) -> int:
        """How many seeds are in the mean."""
        return len(self.values)


def over_seeds(values: Mapping[int, float]) -> Spread:
    """The spread of these values; one NaN makes the mean NaN, since a mean over fewer seeds would be another number."""
    by_seed = {seed: float(values[seed]) for seed in sorted(values)}
    if not by_seed:
        return Spread(nan, nan, by_seed)
    numbers = np.array(list(by_seed.values()))
    with np.errstate(invalid="ignore"):  # inf − inf is NaN, and that is the answer
        if not np.isfinite(numbers).all():
            return Spread(float(numbers.mean()), nan, by_seed)
    offsets = numbers - numbers[0]  # equal values then have a spread of exactly 0
    return Spread(float(numbers[0] + offsets.mean()), float(offsets.std()), by_seed)
