"""From runs to a scaling law, and from a law to the best use of a budget C = P·B·T (report D, question 6).

    law = fit_law_to_runs(runs, "val/loss", ("batch", "steps"))
    advice = advise_budget(law, budget=1e12, fixed={"parameters": 399_908})
    format_budget_advice(advice)

A run stopped early stands for a run of that many steps, so one run gives a data point for every α. `scaling_laws` fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from seedbed.errors import UsageError
from seedbed.format import format_number, join_words
from seedbed.models.model_size import n_training_samples
from seedbed.records import StoredRun
from seedbed.stats.groups import replay_at_alphas
from seedbed.stats.run_statistics import compute_statistic, total_steps
from seedbed.stats.scaling_laws import (
    FittedValue,
    ScalingLaw,
    fit_scaling_law,
    fitted_value_from_logs,
    unpack_parameters,
)
from seedbed.stats.summary import RunCurves
from seedbed.tasks.base import stored_dataset_info

LAW_VARIABLES: Final[Mapping[str, Callable[[RunCurves], float]]] = {
    "parameters": lambda run: run.run.parameters.non_embedding,
    "data": lambda run: n_training_samples(run.run.settings.task),
    "batch": lambda run: run.run.settings.samples_per_update(stored_dataset_info(run.run)),
    "steps": lambda run: floor(run.config.get("alpha", 1.0) * total_steps(run)),
}
MAX_INTERVAL_RATIO = 100  # an interval with a larger ratio of its ends gives a warning


def training_compute(run: StoredRun, n_updates: float | None = None) -> float:
    """C = P·B·T for this many updates (all when None): non-embedding parameters × samples per update × updates.

    >>> from seedbed.records import ParameterCounts
    >>> from seedbed.settings import Settings
    >>> run = StoredRun("a", 0, Settings(), ParameterCounts(404_516, 399_908), "planned", 0)
    >>> training_compute(run)  # 399,908 × 480 × 10,001
    1919750355840.0
    """
    info = stored_dataset_info(run)
    updates = run.settings.n_steps(info) if n_updates is None else n_updates
    return float(run.parameters.non_embedding) * run.settings.samples_per_update(info) * updates


def fit_law_to_runs(
    runs: Sequence[RunCurves],
    metric: str = "val/loss",
    variables: Sequence[str] = ("parameters",),
) -> ScalingLaw:
    """The law fitted to these runs' best values; sizes without all seeds are left out."""
    for name in variables:
        if name not in LAW_VARIABLES:
            raise UsageError(f"{name} is not a variable of a scaling law; available: {join_words(list(LAW_VARIABLES))}")
    points: dict[tuple[float, ...], dict[int, float]] = {}
    for run in replay_at_alphas(runs) if "steps" in variables else runs:
        if run.is_complete:
            size = tuple(float(LAW_VARIABLES[name](run)) for name in variables)
            _add_seed_value(points.setdefault(size, {}), run, compute_statistic(run, metric, "best"))
    seeds = sorted(set.union(set(), *(set(values) for values in points.values())))
    complete = {size: values for size, values in sorted(points.items()) if len(values) == len(seeds)}
    columns = {name: [size[i] for size in complete] for i, name in enumerate(variables)}
    return fit_scaling_law(columns, {seed: [values[seed] for values in complete.values()] for seed in seeds})


def _add_seed_value(values: dict[int, float], run: RunCurves, value: float) -> None:
    if run.run.seed in values:
        raise UsageError(
            f"two runs with seed {run.run.seed} have the same sizes, so another setting varies among these runs; "
            "select runs with a filter such as model.kind=gpt"
        )
    values[run.run.seed] = value


# ---- budgets ----


@dataclass(frozen=True)
class BudgetAdvice:
    """The allocation of a budget with the lowest predicted loss, with confidence intervals."""

    budget: float
    allocation: Mapping[str, FittedValue]
    fixed: Mapping[str, float]
    loss: FittedValue
    warnings: tuple[str, ...]


def advise_budget(law: ScalingLaw, budget: float, fixed: Mapping[str, float] | None = None) -> BudgetAdvice:
    """The values of the free variables with the lowest predicted loss, where all values multiply to the budget."""
    fixed = fixed or {}
    free = [name for name in law.variables if name not in fixed]
    if not free or budget <= 0 or any(value <= 0 for value in fixed.values()):
        raise UsageError(f"expected a budget above 0 and at least one of {join_words(list(law.variables))} left free")
    logs = _optimal_log_values(law, free, log(budget / prod(fixed.values())))
    allocation = {name: fitted_value_from_logs(logs[:, i], law.n_seeds) for i, name in enumerate(free)}
    values = {name: fixed[name] if name in fixed else allocation[name].value for name in law.variables}
    warnings = tuple(_budget_warnings(law, allocation, values))
    return BudgetAdvice(budget, allocation, fixed, law.predict_interval(values), warnings)


def _optimal_log_values(law: ScalingLaw, free: Sequence[str], log_product: float) -> NDArray[np.float64]:
    """log x of the free variables for every refit: a Lagrange condition makes a·A·x^−a equal for all of them."""
    columns = [law.variables.index(name) for name in free]
    _, log_scales, log_exponents = unpack_parameters(law.refits)
    log_scales, log_exponents = log_scales[:, columns], log_exponents[:, columns]
    exponents, centres = np.exp(log_exponents), law.log_centres[columns]
    offsets = (log_scales + log_exponents) / exponents
    log_multiplier = (offsets.sum(1) - (log_product - centres.sum())) / (1 / exponents).sum(1)
    return np.asarray(offsets - log_multiplier[:, None] / exponents + centres)


def _budget_warnings(law: ScalingLaw, allocation: Mapping[str, FittedValue], values: Mapping[str, float]) -> list[str]:
    warnings = list(law.warnings)
    for name, (low, high) in law.ranges.items():
        if not low * 0.999 <= values[name] <= high * 1.001:
            tried = f"{format_number(low)} to {format_number(high)}"
            warnings.append(f"{name} = {format_number(values[name])} lies outside the range that was tried ({tried})")
    for name, value in allocation.items():
        if (ratio := value.high / value.low) > MAX_INTERVAL_RATIO:
            warnings.append(f"the interval of {name} spans a factor of {format_number(ratio)}: do not rely on it")
    return warnings


@dataclass(frozen=True)
class BudgetCurve:
    """Values of two variables that spend the same budget, and the predicted loss there."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    loss: NDArray[np.float64]


def budget_curve(
    law: ScalingLaw, budget: float, along: str, other: str, fixed: Mapping[str, float] | None = None, n_values: int = 50
) -> BudgetCurve:
    """The curve of equal budget over the fitted range of `along`; all variables but these two must be fixed."""
    fixed = fixed or {}
    x = np.geomspace(*law.ranges[along], n_values)
    y = budget / prod(fixed.values()) / x
    loss = law.predict({**{name: np.full(n_values, value) for name, value in fixed.items()}, along: x, other: y})
    return BudgetCurve(x, y, loss)


# ---- sentences ----


def format_scaling_law(law: ScalingLaw, metric: str = "val/loss") -> str:
    """The law as a sentence, with its warnings."""
    terms = " + ".join(
        f"{format_number(law.scales[name].value)}·{name}^−{law.exponents[name]}" for name in law.variables
    )
    fit = f"R² = {law.r_squared:.3f}, {law.n_points} data points, {law.n_seeds} seeds"
    return f"{metric} = {law.floor} + {terms} ({fit})" + "".join(f"; {warning}" for warning in law.warnings) + "."


def format_budget_advice(advice: BudgetAdvice, metric: str = "val/loss") -> str:
    """The advised allocation as a sentence, with its warnings."""
    best = join_words([f"{name} = {value}" for name, value in advice.allocation.items()])
    given = "".join(f", {name} = {format_number(value)}" for name, value in advice.fixed.items())
    text = f"With a budget of {advice.budget:.3g}{given}, the law advises {best}, for a {metric} of {advice.loss}"
    return text + "".join(f"; {warning}" for warning in advice.warnings) + "."
