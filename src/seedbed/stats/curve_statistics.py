"""Statistics of one curve, by report D's definitions: best value, the step t_f that first attains it, truncation.

Variants have names of their own: the first step that reaches a threshold (`first_step_reaching`), the first within ε of
the best (`first_step_within`), the value at another curve's best step (`value_at_best_step`, report C's rule).
`comparison` summarises over seeds, `summary` over configs.

>>> import numpy as np
>>> find_extremum(Curve(np.array([0, 1, 2, 3]), np.array([0.9, 0.2, 0.5, 0.2])), "min")
Extremum(value=0.2, step=1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Curve
from seedbed.stats.metric_registry import Direction


@dataclass(frozen=True)
class Extremum:
    """The best recorded value and t_f, the first recorded step with exactly that value; both NaN if there is none."""

    value: float
    step: float


def truncate_curve(curve: Curve, t_max: float | None) -> Curve:
    """The values with step ≤ t_max, as if the run had been stopped there; all of them if t_max is None."""
    if t_max is None:
        return curve
    kept = curve.steps <= t_max
    return Curve(curve.steps[kept], curve.values[kept])


def find_extremum(curve: Curve, direction: Direction = "min", t_max: float | None = None) -> Extremum:
    """The smallest or largest value up to t_max and its first step; NaN is never best, ±inf can be."""
    kept = truncate_curve(curve, t_max)
    indices = np.flatnonzero(~np.isnan(kept.values))
    if not indices.size:
        return Extremum(nan, nan)
    values = kept.values[indices]
    # argmin and argmax return the first of equal values, which is what t_f asks for
    first = indices[np.argmin(values) if direction == "min" else np.argmax(values)]
    return Extremum(float(kept.values[first]), float(kept.steps[first]))


def last_value(curve: Curve, t_max: float | None = None) -> float:
    """The last recorded value up to t_max; NaN if there is none."""
    values = truncate_curve(curve, t_max).values
    return float(values[-1]) if values.size else nan


def first_step_reaching(
    curve: Curve, threshold: float, direction: Direction = "max", t_max: float | None = None
) -> float:
    """The first recorded step with a value ≥ threshold (≤ if low is better); NaN if there is none."""
    kept = truncate_curve(curve, t_max)
    return _first_step_where(kept, kept.values >= threshold if direction == "max" else kept.values <= threshold)


def first_step_within(curve: Curve, epsilon: float, direction: Direction = "min", t_max: float | None = None) -> float:
    """The first recorded step whose value is within ε of the best one up to t_max; ε = 0 gives t_f."""
    best = find_extremum(curve, direction, t_max).value
    return first_step_reaching(curve, best + epsilon if direction == "min" else best - epsilon, direction, t_max)


def _first_step_where(curve: Curve, mask: NDArray[np.bool_]) -> float:
    indices = np.flatnonzero(mask)
    return float(curve.steps[indices[0]]) if indices.size else nan


def value_at_step(curve: Curve, step: float) -> float:
    """The value recorded at this step; NaN if there is none."""
    indices = np.flatnonzero(curve.steps == step)
    return float(curve.values[indices[0]]) if indices.size else nan


def value_at_best_step(
    curve: Curve, reference: Curve, direction: Direction = "min", t_max: float | None = None
) -> float:
    """The value of one curve at the step where a reference curve is first at its best, as in report C's tables."""
    return value_at_step(curve, find_extremum(reference, direction, t_max).step)


def generalisation_gap(train: Curve, val: Curve, direction: Direction = "min", t_max: float | None = None) -> float:
    """How much worse validation is than training at the best validation step; negative if it is better."""
    best = find_extremum(val, direction, t_max)
    difference = best.value - value_at_step(train, best.step)
    return difference if direction == "min" else -difference
