"""From runs to a law of scale, and from a law to the best use of a budget C = P·B·T (report D, question 6).

    law = fit_runs(runs, "val/loss", ("batch", "steps"))
    advice = advise(law, budget=1e12, fixed={"parameters": 399_908})
    advice_in_words(advice)

A run stopped early stands for a run of that many steps, so one run gives points at every α. Fitting is `laws`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import UsageError
from seedbed.models.model_size import n_training_samples
from seedbed.stats.format import format_number, join_words
from seedbed.stats.groups import REPLAY_ALPHAS, replay_at_alphas
from seedbed.stats.run_statistics import compute_statistic, total_steps
from seedbed.stats.scaling_laws import (
    FittedValue,
    ScalingLaw,
    fit_scaling_law,
    fitted_value_from_logs,
    unpack_parameters,
)
from seedbed.stats.summary import RunCurves
from seedbed.stats.training_cost import samples_per_update

LAW_VARIABLES: Final[Mapping[str, Callable[[RunCurves], float]]] = {
    "parameters": lambda run: run.run.parameters.non_embedding,
    "data": lambda run: n_training_samples(run.run.settings.task),
    "batch": lambda run: samples_per_update(run.run.settings),
    "steps": lambda run: floor(run.config.get("alpha", 1.0) * total_steps(run)),
}
MAX_INTERVAL_RATIO = 100  # an interval whose ends differ by this factor says little


def fit_law_to_runs(
    runs: Sequence[RunCurves],
    metric: str = "val/loss",
    variables: Sequence[str] = ("parameters",),
    alphas: Sequence[float] = REPLAY_ALPHAS,
) -> ScalingLaw:
    """The law of these runs' best values; points that lack a seed which others have are left out."""
    for name in variables:
        if name not in LAW_VARIABLES:
            raise UsageError(f"{name} is not a variable of a law; there are {join_words(list(LAW_VARIABLES))}")
    points: dict[tuple[float, ...], dict[int, float]] = {}
    for run in replay_at_alphas(runs, alphas) if "steps" in variables else runs:
        if run.is_included:
            place = tuple(float(LAW_VARIABLES[name](run)) for name in variables)
            _add_seed_value(points.setdefault(place, {}), run, compute_statistic(run, metric, "best"))
    seeds = sorted(set.union(set(), *(set(values) for values in points.values())))
    complete = {place: values for place, values in sorted(points.items()) if len(values) == len(seeds)}
    columns = {name: [place[i] for place in complete] for i, name in enumerate(variables)}
    return fit_scaling_law(columns, {seed: [values[seed] for values in complete.values()] for seed in seeds})


def _add_seed_value(values: dict[int, float], run: RunCurves, value: float) -> None:
    if run.run.seed in values:
        raise UsageError(
            f"two runs with seed {run.run.seed} have the same sizes, so something else varies among these runs; "
            "choose them with words such as model.kind=gpt"
        )
    values[run.run.seed] = value


# ---- budgets ----


@dataclass(frozen=True)
class BudgetAdvice:
    """The point on the level curve of a budget where the law's loss is least, with intervals."""

    budget: float
    allocation: Mapping[str, FittedValue]
    fixed: Mapping[str, float]
    loss: FittedValue
    warnings: tuple[str, ...]


def advise_budget(law: ScalingLaw, budget: float, fixed: Mapping[str, float] | None = None) -> BudgetAdvice:
    """The best values of the law's variables whose product, with what is fixed, is the budget."""
    fixed = fixed or {}
    free = [name for name in law.variables if name not in fixed]
    if not free or budget <= 0 or any(value <= 0 for value in fixed.values()):
        raise UsageError(f"a budget above 0 and at least one of {join_words(list(law.variables))} to choose are needed")
    logs = _optimal_log_values(law, free, log(budget / prod(fixed.values())))
    point = {name: fitted_value_from_logs(logs[:, place], law.n_seeds) for place, name in enumerate(free)}
    at = {name: fixed[name] if name in fixed else point[name].value for name in law.variables}
    return BudgetAdvice(budget, point, fixed, law.predict_interval(at), tuple(_budget_warnings(law, point, at)))


def _optimal_log_values(law: ScalingLaw, free: Sequence[str], log_product: float) -> NDArray[np.float64]:
    """log x of the free variables for every refit: where a·A·x^−a is equal for all of them, by Lagrange."""
    places = [law.variables.index(name) for name in free]
    _, scales, log_exponents = (part[..., places] if part.ndim > 1 else part for part in unpack_parameters(law.refits))
    exponents, centres = np.exp(log_exponents), law.log_centres[places]
    pulls = (scales + log_exponents) / exponents
    shared = (pulls.sum(1) - (log_product - centres.sum())) / (1 / exponents).sum(1)
    return np.asarray(pulls - shared[:, None] / exponents + centres)


def _budget_warnings(law: ScalingLaw, allocation: Mapping[str, FittedValue], values: Mapping[str, float]) -> list[str]:
    found = list(law.warnings)
    for name, (low, high) in law.ranges.items():
        if not low * 0.999 <= values[name] <= high * 1.001:
            found.append(
                f"{name} = {format_number(values[name])} lies outside what was tried ({format_number(low)} to {format_number(high)})"
            )
    for name, value in allocation.items():
        if value.high / value.low > MAX_INTERVAL_RATIO:
            found.append(
                f"the interval of {name} spans a factor of {format_number(value.high / value.low)}: do not rely on it"
            )
    return found


@dataclass(frozen=True)
class BudgetCurve:
    """Pairs of two variables whose product spends the budget, and the law's loss there."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    loss: NDArray[np.float64]


def budget_curve(
    law: ScalingLaw, budget: float, along: str, other: str, fixed: Mapping[str, float] | None = None, n_values: int = 50
) -> BudgetCurve:
    """The level curve within the range of `along` that was tried; every other variable has to be fixed."""
    fixed = fixed or {}
    x = np.geomspace(*law.ranges[along], n_values)
    y = budget / prod(fixed.values()) / x
    loss = law.predict({**{name: np.full(n_values, value) for name, value in fixed.items()}, along: x, other: y})
    return BudgetCurve(x, y, loss)


# ---- in words ----


def format_scaling_law(law: ScalingLaw, metric: str = "val/loss") -> str:
    """The law as a sentence, with what speaks against it."""
    terms = " + ".join(
        f"{format_number(law.scales[name].value)}·{name}^−{law.exponents[name]}" for name in law.variables
    )
    said = f"{metric} = {law.floor} + {terms} (R² = {law.r_squared:.3f}, {law.n_points} points, {law.n_seeds} seeds)"
    return said + "".join(f"; {warning}" for warning in law.warnings) + "."


def format_budget_advice(advice: BudgetAdvice, metric: str = "val/loss") -> str:
    """The advised point as a sentence, with what speaks against it."""
    best = join_words([f"{name} = {value}" for name, value in advice.allocation.items()])
    given = "".join(f", {name} = {format_number(value)}" for name, value in advice.fixed.items())
    said = f"With a budget of {advice.budget:.3g}{given}, the law advises {best}, for a {metric} of {advice.loss}"
    return said + "".join(f"; {warning}" for warning in advice.warnings) + "."
