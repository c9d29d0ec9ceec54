"""Numbers of one curve, by report D's definitions: best value, the step t_f that first attains it, replay up to a step.

Variants are named apart: the first step that passes a threshold (`first_reaching`), the first within ε of the best
(`first_within`), the value where another curve is best (`at_best`, report C's rule), the mean height (`area`). Spreads
over seeds are `compare`'s, points are `summary`'s.

>>> import numpy as np
>>> extremum(Curve(np.array([0, 1, 2, 3]), np.array([0.9, 0.2, 0.5, 0.2])), "min")
Extremum(value=0.2, step=1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import numpy as np
from numpy.typing import NDArray

from seedbed.records import Curve
from seedbed.stats.metric_registry import QUANTITIES, Direction, MetricName


@dataclass(frozen=True)
class Extremum:
    """The best recorded value and t_f, the first recorded step with exactly that value; both NaN when there is none."""

    value: float
    step: float


def metric_direction(name: str) -> Direction | None:
    """Whether the best of a metric is its minimum or its maximum; None where no value is best (norm, unknown ones)."""
    entry = QUANTITIES.get(MetricName.parse(name).quantity)
    return entry.direction if entry else None


def truncate_curve(curve: Curve, t_max: float | None) -> Curve:
    """The records with step ≤ t_max, as if the run had been stopped there; all of them when t_max is None."""
    if t_max is None:
        return curve
    kept = curve.steps <= t_max
    return Curve(curve.steps[kept], curve.values[kept])


def find_extremum(curve: Curve, direction: Direction = "min", t_max: float | None = None) -> Extremum:
    """The smallest or largest value up to t_max and its first step; NaN is never best, ±inf can be."""
    kept = truncate_curve(curve, t_max)
    numbers = np.flatnonzero(~np.isnan(kept.values))
    if not numbers.size:
        return Extremum(nan, nan)
    values = kept.values[numbers]
    first = numbers[
        np.argmin(values) if direction == "min" else np.argmax(values)
    ]  # of equal values NumPy gives the first
    return Extremum(float(kept.values[first]), float(kept.steps[first]))


def last_value(curve: Curve, t_max: float | None = None) -> float:
    """The last recorded value up to t_max; NaN when there is none."""
    values = truncate_curve(curve, t_max).values
    return float(values[-1]) if values.size else nan


def first_step_reaching(
    curve: Curve, threshold: float, direction: Direction = "max", t_max: float | None = None
) -> float:
    """The first recorded step with a value ≥ threshold (≤ where small is better); NaN when there is none."""
    kept = truncate_curve(curve, t_max)
    return _first_step_where(kept, kept.values >= threshold if direction == "max" else kept.values <= threshold)


def first_step_within(curve: Curve, epsilon: float, direction: Direction = "min", t_max: float | None = None) -> float:
    """The first recorded step whose value is within ε of the best one up to t_max; ε = 0 gives t_f."""
    best = find_extremum(curve, direction, t_max).value
    return first_step_reaching(curve, best + epsilon if direction == "min" else best - epsilon, direction, t_max)


def _first_step_where(curve: Curve, mask: NDArray[np.bool_]) -> float:
    places = np.flatnonzero(mask)
    return float(curve.steps[places[0]]) if places.size else nan


def value_at_step(curve: Curve, step: float) -> float:
    """The value recorded at this step; NaN when there is none."""
    places = np.flatnonzero(curve.steps == step)
    return float(curve.values[places[0]]) if places.size else nan


def value_at_best_step(
    curve: Curve, reference: Curve, direction: Direction = "min", t_max: float | None = None
) -> float:
    """The value of one curve at the step where another is first at its best: report C's train perplexity."""
    return value_at_step(curve, find_extremum(reference, direction, t_max).step)


def generalisation_gap(train: Curve, val: Curve, direction: Direction = "min", t_max: float | None = None) -> float:
    """How much worse validation is than training at the step where validation is best; below 0 when it is better."""
    best = find_extremum(val, direction, t_max)
    difference = best.value - value_at_step(train, best.step)
    return difference if direction == "min" else -difference


def mean_over_steps(curve: Curve, t_max: float | None = None) -> float:
    """The mean height of the curve over its steps (trapezoids); one record is its own mean, NaN anywhere gives NaN."""
    kept = truncate_curve(curve, t_max)
    if kept.steps.size < 2:
        return last_value(kept)
    widths = np.diff(kept.steps)
    return float(widths @ (kept.values[1:] + kept.values[:-1]) / 2 / widths.sum())
