"""Level curves of a budget C = P·B·T: where they run, and what each point on them would have reached.

For a budget and a point with P parameters and batch B, the run is taken as if stopped at T = C / (P·B), with nothing
interpolated. The left panel is the level curves themselves, with the best point of each ringed; the others show the
metric along them. Beside what was seen stands what a fitted law says, dashed, and the point that it advises for each
budget, with its interval (`advised`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from seedbed.charts.advised import Fit, fit_of
from seedbed.charts.axes import by_point, check_dials, chosen, curve_of, dial_of, values_of
from seedbed.charts.labels import dial_in_words
from seedbed.charts.lines import Scale, status_notes
from seedbed.charts.panels import said
from seedbed.data.facts import facts_of
from seedbed.measures.compare import over_seeds
from seedbed.measures.cost import compute
from seedbed.measures.curves import direction, extremum
from seedbed.measures.summary import RunCurves
from seedbed.settings import Value
from seedbed.shown import Figure

if TYPE_CHECKING:
    import altair as alt

N_BUDGETS: Final = 6


@dataclass(frozen=True)
class Stop:
    """A point stopped where it has used up a budget."""

    x: float
    steps: float
    mean: float
    std: float
    n: int
    best: bool = False


@dataclass(frozen=True)
class LevelCurve:
    """The stops of one budget, by x; the best of them is marked."""

    group: int
    metric: int
    budget: float
    stops: tuple[Stop, ...]


@dataclass(frozen=True)
class Level:
    """A chart of level curves, gathered: one row of panels for each group of runs."""

    title: str
    groups: tuple[str, ...]
    metrics: tuple[str, ...]
    curves: tuple[LevelCurve, ...]
    fits: tuple[Fit, ...]
    x_title: str
    x_scale: Scale
    y_scale: Scale
    notes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to see."""
        return not self.curves


def gather_level(figure: Figure, runs: Sequence[RunCurves]) -> Level:
    """The level curves of a figure of kind `level`; x is a number such as the batch size or `parameters`."""
    x = "train.batch_size" if figure.x == "step" else figure.x
    check_dials(runs, (x, figure.column))
    drawn = [run for run in chosen(runs, figure) if run.counts]
    groups = values_of(drawn, figure.column)
    curves: list[LevelCurve] = []
    fits: list[Fit | None] = []
    for group, value in enumerate(groups):
        inside = [run for run in drawn if figure.column is None or dial_of(run, figure.column) == value]
        fits.append(fit_of(group, figure.metrics, x, _budgets(inside), inside))
        for budget in _budgets(inside):
            for place, metric in enumerate(figure.metrics):
                curves += _curve(group, place, metric, budget, x, inside)
    names = tuple(said(figure.column, value) if figure.column else "" for value in groups)
    return Level(
        title=figure.title or f"What a budget of C = P·B·T buys, against {dial_in_words(x)}",
        groups=names,
        metrics=figure.metrics,
        curves=tuple(curves),
        fits=tuple(filter(None, fits)),
        x_title=dial_in_words(x),
        x_scale=figure.x_scale,
        y_scale=figure.y_scale,
        notes=(*_notes(drawn, runs), *_law_notes(names, fits)),
    )


def _budgets(runs: Sequence[RunCurves]) -> list[float]:
    """Budgets in equal ratios: from what every point can spend in a tenth of its steps to the largest of all."""
    spent = [compute(run.run.settings, run.run.parameters) for run in runs]
    if not spent:
        return []
    low, high = max(spent) / 50, max(spent)
    return [float(f"{budget:.2g}") for budget in np.geomspace(low, high, N_BUDGETS)]


def _curve(group: int, place: int, metric: str, budget: float, x: str, runs: Sequence[RunCurves]) -> list[LevelCurve]:
    """The curve of one budget; none where fewer than two points can spend it."""
    found: dict[float, Stop] = {}
    kind = direction(metric) or "min"
    for members in by_point(runs):
        stop = _stop(members, metric, budget, x)
        if stop and (stop.x not in found or _better(stop, found[stop.x], kind)):
            found[stop.x] = stop
    if len(found) < 2:
        return []
    ordered = [found[x] for x in sorted(found)]
    best = (min if kind == "min" else max)(ordered, key=lambda stop: stop.mean)
    stops = tuple(Stop(s.x, s.steps, s.mean, s.std, s.n, s is best) for s in ordered)
    return [LevelCurve(group, place, budget, stops)]


def _better(one: Stop, other: Stop, kind: str) -> bool:
    return one.mean < other.mean if kind == "min" else one.mean > other.mean


def _stop(members: Sequence[RunCurves], metric: str, budget: float, x: str) -> Stop | None:
    """Where this point stops; None where its steps do not reach so far, or nothing is recorded before."""
    first = members[0].run
    each = compute(first.settings, first.parameters, 1)
    steps = budget / each
    if not 1 <= steps <= first.settings.n_steps(facts_of(first.settings.task)) * 1.05:
        return None
    kind = direction(metric) or "min"
    best = {run.run.seed: extremum(curve_of(run, metric), kind, steps).value for run in members}
    spread = over_seeds(best)
    where: Value = dial_of(members[0], x)
    return Stop(float(where), steps, spread.mean, spread.std, spread.n) if isfinite(spread.mean) else None


def _notes(drawn: Sequence[RunCurves], runs: Sequence[RunCurves]) -> tuple[str, ...]:
    counts = sorted({len(members) for members in by_point(drawn)})
    n = f"n = {counts[0]} seed{'s' * (counts[0] != 1)} a point." if len(counts) == 1 else ""
    how = "Each run is taken as if stopped at T = C / (P·B). Rings: the best of each budget."
    return tuple(note for note in (n, how, *status_notes(runs)) if note)


def _law_notes(names: Sequence[str], fits: Sequence[Fit | None]) -> list[str]:
    """What each group's law says, with its warnings; the drawing leaves out what lies beyond its axes."""
    found = [fit for fit in fits if fit]
    how = (
        "Dashed: the fitted law. Diamonds: the points that it advises, with 95 % intervals, where they are on the axes."
    )
    said = [f"{names[fit.group]}: {note}".removeprefix(": ") for fit in found for note in fit.notes]
    return [how, *said] if any(fit.along for fit in found) else said


def draw_level(level: Level) -> alt.ConcatChart:
    """The level curves over (T, x), and the metrics along them."""
    from seedbed.charts.planes import draw_planes

    return draw_planes(level)
