"""A law of scale along the level curves of a budget, and the point that it advises for each, as numbers to draw.

Fitting and advising are `measures.scaling`'s; what it says against its own advice becomes notes of the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from seedbed.errors import UsageError
from seedbed.stats.compute_budget import (
    LAW_VARIABLES,
    BudgetAdvice,
    advise_budget,
    budget_curve,
    fit_law_to_runs,
    format_budget_advice,
    format_scaling_law,
)
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.scaling_laws import FittedValue, ScalingLaw
from seedbed.stats.summary import RunCurves

LAW_VARIABLE_OF_X: Final = {"train.batch_size": "batch", "parameters": "parameters"}  # what x is in a law
FIXED_VARIABLE: Final = {"batch": "parameters", "parameters": "batch"}  # what the law leaves out, and must be the same
MAX_STEPS_RATIO: Final = 1.05  # steps beyond those that were run, by rounding


@dataclass(frozen=True)
class PredictedPoint:
    """A place on the level curve of a budget, and the loss that the law has there."""

    budget: float
    x: float
    steps: float
    loss: float


@dataclass(frozen=True)
class RecommendedPoint:
    """Where the law's loss is least on the level curve of a budget, with 95 % intervals."""

    budget: float
    x: FittedValue
    steps: FittedValue
    loss: FittedValue


@dataclass(frozen=True)
class BudgetFit:
    """What a law says of one group of runs; without points where none could be fitted, and why in the notes."""

    group: int
    metric: int
    predictions: tuple[PredictedPoint, ...] = ()
    recommended: tuple[RecommendedPoint, ...] = ()
    notes: tuple[str, ...] = ()


def fit_budget_law(
    group: int, metrics: Sequence[str], x: str, budgets: Sequence[float], runs: Sequence[RunCurves]
) -> BudgetFit | None:
    """The law of the first metric that should be small; None where there is none, or x is in no law."""
    place = next((place for place, name in enumerate(metrics) if metric_direction(name) == "min"), None)
    if place is None or x not in LAW_VARIABLE_OF_X or not budgets:
        return None
    variable = LAW_VARIABLE_OF_X[x]
    try:
        held = _fixed_value(FIXED_VARIABLE[variable], runs)
        law = fit_law_to_runs(runs, metrics[place], (variable, "steps"))
        advice = [advise_budget(law, budget, held) for budget in budgets]
    except UsageError as error:
        return BudgetFit(group, place, notes=(f"No law is fitted: {error}.",))
    along = [point for budget in budgets for point in _predictions_along(law, budget, variable, held)]
    return BudgetFit(
        group=group,
        metric=place,
        predictions=tuple(along),
        recommended=tuple(_recommended_point(one, variable) for one in advice),
        notes=(format_scaling_law(law, metrics[place]), format_budget_advice(advice[-1], metrics[place])),
    )


def _fixed_value(name: str, runs: Sequence[RunCurves]) -> dict[str, float]:
    """The part of a budget that all runs have in common."""
    values = {float(LAW_VARIABLES[name](run)) for run in runs}
    if len(values) > 1:
        raise UsageError(
            f"{name} differs among these runs, and a law along one of batch and parameters holds the other"
        )
    return {name: values.pop()}


def _predictions_along(law: ScalingLaw, budget: float, variable: str, fixed: dict[str, float]) -> list[PredictedPoint]:
    """The law on one level curve, within the steps that were tried."""
    curve = budget_curve(law, budget, variable, "steps", fixed)
    low, high = law.ranges["steps"]
    return [
        PredictedPoint(budget, float(x), float(steps), float(loss))
        for x, steps, loss in zip(curve.x, curve.y, curve.loss, strict=True)
        if low / MAX_STEPS_RATIO <= steps <= high * MAX_STEPS_RATIO
    ]


def _recommended_point(advice: BudgetAdvice, variable: str) -> RecommendedPoint:
    return RecommendedPoint(advice.budget, advice.allocation[variable], advice.allocation["steps"], advice.loss)
