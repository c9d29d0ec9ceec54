"""A law of scale along the level curves of a budget, and the point that it advises for each, as numbers to draw.

Fitting and advising are `measures.scaling`'s; what it says against its own advice becomes notes of the figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from seedbed.errors import UsageError
from seedbed.measures.curves import direction
from seedbed.measures.laws import Estimate, Law
from seedbed.measures.scaling import VARIABLES, Advice, advice_in_words, advise, fit_runs, law_in_words, level_curve
from seedbed.measures.summary import RunCurves

ALONG: Final = {"train.batch_size": "batch", "parameters": "parameters"}  # what x is in a law
HELD: Final = {"batch": "parameters", "parameters": "batch"}  # what the law leaves out, and must be the same
ROOM: Final = 1.05  # steps beyond those that were run, by rounding


@dataclass(frozen=True)
class LawPoint:
    """A place on the level curve of a budget, and the loss that the law has there."""

    budget: float
    x: float
    steps: float
    loss: float


@dataclass(frozen=True)
class AdvisedPoint:
    """Where the law's loss is least on the level curve of a budget, with 95 % intervals."""

    budget: float
    x: Estimate
    steps: Estimate
    loss: Estimate


@dataclass(frozen=True)
class Fit:
    """What a law says of one group of runs; without points where none could be fitted, and why in the notes."""

    group: int
    metric: int
    along: tuple[LawPoint, ...] = ()
    advised: tuple[AdvisedPoint, ...] = ()
    notes: tuple[str, ...] = ()


def fit_of(
    group: int, metrics: Sequence[str], x: str, budgets: Sequence[float], runs: Sequence[RunCurves]
) -> Fit | None:
    """The law of the first metric that should be small; None where there is none, or x is in no law."""
    place = next((place for place, name in enumerate(metrics) if direction(name) == "min"), None)
    if place is None or x not in ALONG or not budgets:
        return None
    variable = ALONG[x]
    try:
        held = _held(HELD[variable], runs)
        law = fit_runs(runs, metrics[place], (variable, "steps"))
        advice = [advise(law, budget, held) for budget in budgets]
    except UsageError as error:
        return Fit(group, place, notes=(f"No law is fitted: {error}.",))
    along = [point for budget in budgets for point in _along(law, budget, variable, held)]
    return Fit(
        group=group,
        metric=place,
        along=tuple(along),
        advised=tuple(_point(one, variable) for one in advice),
        notes=(law_in_words(law, metrics[place]), advice_in_words(advice[-1], metrics[place])),
    )


def _held(name: str, runs: Sequence[RunCurves]) -> dict[str, float]:
    """The part of a budget that all runs have in common."""
    values = {float(VARIABLES[name](run)) for run in runs}
    if len(values) > 1:
        raise UsageError(
            f"{name} differs among these runs, and a law along one of batch and parameters holds the other"
        )
    return {name: values.pop()}


def _along(law: Law, budget: float, variable: str, held: dict[str, float]) -> list[LawPoint]:
    """The law on one level curve, within the steps that were tried."""
    curve = level_curve(law, budget, variable, "steps", held)
    low, high = law.ranges["steps"]
    return [
        LawPoint(budget, float(x), float(steps), float(loss))
        for x, steps, loss in zip(curve.x, curve.y, curve.loss, strict=True)
        if low / ROOM <= steps <= high * ROOM
    ]


def _point(advice: Advice, variable: str) -> AdvisedPoint:
    return AdvisedPoint(advice.budget, advice.point[variable], advice.point["steps"], advice.loss)
