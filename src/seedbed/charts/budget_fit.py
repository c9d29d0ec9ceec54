"""A scaling law along the iso-budget curves of a chart, and the config that it recommends for each budget.

Fitting and recommending are left to `stats.compute_budget`, whose warnings become notes of the figure.
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
from seedbed.stats.format import format_number
from seedbed.stats.scaling_laws import FittedValue, ScalingLaw
from seedbed.stats.summary import RunCurves

LAW_VARIABLE_OF_X: Final = {
    "train.batch_size": "batch",
    "parameters": "parameters",
}  # x of the figure → variable of the law
FIXED_VARIABLE: Final = {"batch": "parameters", "parameters": "batch"}  # not in the law, so equal in all runs
X_OF_LAW_VARIABLE: Final = {variable: x for x, variable in LAW_VARIABLE_OF_X.items()}
MAX_STEPS_RATIO: Final = 1.05  # tolerance beyond the range of trained steps, for rounding


@dataclass(frozen=True)
class PredictedPoint:
    """A point on an iso-budget curve, with the loss that the law predicts there."""

    budget: float
    x: float
    steps: float
    loss: float


@dataclass(frozen=True)
class RecommendedPoint:
    """Where the predicted loss is lowest on an iso-budget curve, with 95 % intervals."""

    budget: float
    x: FittedValue
    steps: FittedValue
    loss: FittedValue


@dataclass(frozen=True)
class BudgetFit:
    """The law of one group of runs; if none could be fitted, it has no points and its notes say why."""

    group: int
    metric: int
    predictions: tuple[PredictedPoint, ...] = ()
    recommended: tuple[RecommendedPoint, ...] = ()
    notes: tuple[str, ...] = ()


def fit_budget_law(
    group: int, metrics: Sequence[str], x: str, budgets: Sequence[float], runs: Sequence[RunCurves]
) -> BudgetFit | None:
    """The law of the first metric to be minimised; None if there is none, or if x is not a variable of a law."""
    metric_index = next((index for index, name in enumerate(metrics) if metric_direction(name) == "min"), None)
    if metric_index is None or x not in LAW_VARIABLE_OF_X or not budgets:
        return None
    variable = LAW_VARIABLE_OF_X[x]
    try:
        fixed = _fixed_value(FIXED_VARIABLE[variable], runs)
        law = fit_law_to_runs(runs, metrics[metric_index], (variable, "steps"))
        advice = [advise_budget(law, budget, fixed) for budget in budgets]
    except UsageError as error:
        return BudgetFit(group, metric_index, notes=(f"No law is fitted: {error}.",))
    predictions = [point for budget in budgets for point in _predictions_along(law, budget, variable, fixed)]
    return BudgetFit(
        group=group,
        metric=metric_index,
        predictions=tuple(predictions),
        recommended=tuple(_recommended_point(one, variable) for one in advice),
        notes=(format_scaling_law(law, metrics[metric_index]), format_budget_advice(advice[-1], metrics[metric_index])),
    )


def _fixed_value(name: str, runs: Sequence[RunCurves]) -> dict[str, float]:
    """The factor of the budget that all runs must share."""
    values = {float(LAW_VARIABLES[name](run)) for run in runs}
    if len(values) > 1:
        what, other = ("number of parameters", "batch size") if name == "parameters" else ("batch size", "parameters")
        tried = f"{format_number(min(values))} to {format_number(max(values))}"
        raise UsageError(
            f"along the {other} it holds the {what} fixed, which varies here ({tried}): "
            f"try x = {X_OF_LAW_VARIABLE[name]}, or runs that share it"
        )
    return {name: values.pop()}


def _predictions_along(law: ScalingLaw, budget: float, variable: str, fixed: dict[str, float]) -> list[PredictedPoint]:
    """The law on one iso-budget curve, within the range of trained steps."""
    curve = budget_curve(law, budget, variable, "steps", fixed)
    low, high = law.ranges["steps"]
    return [
        PredictedPoint(budget, float(x), float(steps), float(loss))
        for x, steps, loss in zip(curve.x, curve.y, curve.loss, strict=True)
        if low / MAX_STEPS_RATIO <= steps <= high * MAX_STEPS_RATIO
    ]


def _recommended_point(advice: BudgetAdvice, variable: str) -> RecommendedPoint:
    return RecommendedPoint(advice.budget, advice.allocation[variable], advice.allocation["steps"], advice.loss)
