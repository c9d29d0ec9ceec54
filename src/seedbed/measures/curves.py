"""Numbers of one curve, by report D's definitions: best value, the step t_f that first attains it, replay up to a step.

Spreads over seeds are `compare`'s, points are `summary`'s.

>>> import numpy as np
>>> extremum(Curve(np.array([0, 1, 2, 3]), np.array([0.9, 0.2, 0.5, 0.2])), "min")
Extremum(value=0.2, step=1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np

from seedbed.measures.catalogue import QUANTITIES, Direction, Metric
from seedbed.records import Curve


@dataclass(frozen=True)
class Extremum:
    """The best recorded value and t_f, the first recorded step with exactly that value; both NaN when there is none."""

    value: float
    step: float


def direction(name: str) -> Direction | None:
    """Whether the best of a metric is its minimum or its maximum; None where no value is best (norm, unknown ones)."""
    entry = QUANTITIES.get(Metric.parse(name).quantity)
    return entry.direction if entry else None


def up_to(curve: Curve, t_max: float | None) -> Curve:
    """The records with step ≤ t_max, as if the run had been stopped there; all of them when t_max is None."""
    if t_max is None:
        return curve
    kept = curve.steps <= t_max
    return Curve(curve.steps[kept], curve.values[kept])


def extremum(curve: Curve, kind: Direction = "min", t_max: float | None = None) -> Extremum:
    """The smallest or largest value up to t_max and its first step; NaN is never best, ±inf can be."""
    kept = up_to(curve, t_max)
    numbers = np.flatnonzero(~np.isnan(kept.values))
    if not numbers.size:
        return Extremum(nan, nan)
    values = kept.values[numbers]
    first = numbers[np.argmin(values) if kind == "min" else np.argmax(values)]  # of equal values NumPy gives the first
    return Extremum(float(kept.values[first]), float(kept.steps[first]))


def last(curve: Curve, t_max: float | None = None) -> float:
    """The last recorded value up to t_max; NaN when there is none."""
    values = up_to(curve, t_max).values
    return float(values[-1]) if values.size else nan
