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
from seedbed.measures.cost import samples_per_update
from seedbed.measures.groups import ALPHAS, with_alphas
from seedbed.measures.laws import Estimate, Law, estimate, fit_law, unpack
from seedbed.measures.summary import RunCurves
from seedbed.measures.values import run_value, total_steps
from seedbed.measures.words import listed, number
from seedbed.models.count import n_training

VARIABLES: Final[Mapping[str, Callable[[RunCurves], float]]] = {
    "parameters": lambda run: run.run.parameters.non_embedding,
    "data": lambda run: n_training(run.run.settings.task),
    "batch": lambda run: samples_per_update(run.run.settings),
    "steps": lambda run: floor(run.point.get("alpha", 1.0) * total_steps(run)),
}
WIDE = 100  # an interval whose ends differ by this factor says little


def fit_runs(
    runs: Sequence[RunCurves],
    metric: str = "val/loss",
    variables: Sequence[str] = ("parameters",),
    alphas: Sequence[float] = ALPHAS,
) -> Law:
    """The law of these runs' best values; points that lack a seed which others have are left out."""
    for name in variables:
        if name not in VARIABLES:
            raise UsageError(f"{name} is not a variable of a law; there are {listed(list(VARIABLES))}")
    points: dict[tuple[float, ...], dict[int, float]] = {}
    for run in with_alphas(runs, alphas) if "steps" in variables else runs:
        if run.counts:
            place = tuple(float(VARIABLES[name](run)) for name in variables)
            _add_once(points.setdefault(place, {}), run, run_value(run, metric, "best"))
    seeds = sorted(set.union(set(), *(set(values) for values in points.values())))
    complete = {place: values for place, values in sorted(points.items()) if len(values) == len(seeds)}
    columns = {name: [place[i] for place in complete] for i, name in enumerate(variables)}
    return fit_law(columns, {seed: [values[seed] for values in complete.values()] for seed in seeds})


def _add_once(values: dict[int, float], run: RunCurves, value: float) -> None:
    if run.run.seed in values:
        raise UsageError(
            f"two runs with seed {run.run.seed} have the same sizes, so something else varies among these runs; "
            "choose them with words such as model.kind=gpt"
        )
    values[run.run.seed] = value


# ---- budgets ----


@dataclass(frozen=True)
class Advice:
    """The point on the level curve of a budget where the law's loss is least, with intervals."""

    budget: float
    point: Mapping[str, Estimate]
    fixed: Mapping[str, float]
    loss: Estimate
    warnings: tuple[str, ...]


def advise(law: Law, budget: float, fixed: Mapping[str, float] | None = None) -> Advice:
    """The best values of the law's variables whose product, with what is fixed, is the budget."""
    fixed = fixed or {}
    free = [name for name in law.variables if name not in fixed]
    if not free or budget <= 0 or any(value <= 0 for value in fixed.values()):
        raise UsageError(f"a budget above 0 and at least one of {listed(list(law.variables))} to choose are needed")
    logs = _best_logs(law, free, log(budget / prod(fixed.values())))
    point = {name: estimate(logs[:, place], law.n_seeds) for place, name in enumerate(free)}
    at = {name: fixed[name] if name in fixed else point[name].value for name in law.variables}
    return Advice(budget, point, fixed, law.predict_interval(at), tuple(_advice_warnings(law, point, at)))


def _best_logs(law: Law, free: Sequence[str], log_product: float) -> NDArray[np.float64]:
    """log x of the free variables for every refit: where a·A·x^−a is equal for all of them, by Lagrange."""
    places = [law.variables.index(name) for name in free]
    _, scales, log_exponents = (part[..., places] if part.ndim > 1 else part for part in unpack(law.refits))
    exponents, centres = np.exp(log_exponents), law.centres[places]
    pulls = (scales + log_exponents) / exponents
    shared = (pulls.sum(1) - (log_product - centres.sum())) / (1 / exponents).sum(1)
    return np.asarray(pulls - shared[:, None] / exponents + centres)


def _advice_warnings(law: Law, point: Mapping[str, Estimate], at: Mapping[str, float]) -> list[str]:
    found = list(law.warnings)
    for name, (low, high) in law.ranges.items():
        if not low * 0.999 <= at[name] <= high * 1.001:
            found.append(f"{name} = {number(at[name])} lies outside what was tried ({number(low)} to {number(high)})")
    for name, value in point.items():
        if value.high / value.low > WIDE:
            found.append(
                f"the interval of {name} spans a factor of {number(value.high / value.low)}: do not rely on it"
            )
    return found


@dataclass(frozen=True)
class LevelCurve:
    """Pairs of two variables whose product spends the budget, and the law's loss there."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    loss: NDArray[np.float64]


def level_curve(
    law: Law, budget: float, along: str, other: str, fixed: Mapping[str, float] | None = None, n: int = 50
) -> LevelCurve:
    """The level curve within the range of `along` that was tried; every other variable has to be fixed."""
    fixed = fixed or {}
    x = np.geomspace(*law.ranges[along], n)
    y = budget / prod(fixed.values()) / x
    loss = law.predict({**{name: np.full(n, value) for name, value in fixed.items()}, along: x, other: y})
    return LevelCurve(x, y, loss)


# ---- in words ----


def law_in_words(law: Law, metric: str = "val/loss") -> str:
    """The law as a sentence, with what speaks against it."""
    terms = " + ".join(f"{number(law.scales[name].value)}·{name}^−{law.exponents[name]}" for name in law.variables)
    said = f"{metric} = {law.floor} + {terms} (R² = {law.r_squared:.3f}, {law.n_points} points, {law.n_seeds} seeds)"
    return said + "".join(f"; {warning}" for warning in law.warnings) + "."


def advice_in_words(advice: Advice, metric: str = "val/loss") -> str:
    """The advised point as a sentence, with what speaks against it."""
    best = listed([f"{name} = {value}" for name, value in advice.point.items()])
    given = "".join(f", {name} = {number(value)}" for name, value in advice.fixed.items())
    said = f"With a budget of {advice.budget:.3g}{given}, the law advises {best}, for a {metric} of {advice.loss}"
    return said + "".join(f"; {warning}" for warning in advice.warnings) + "."
