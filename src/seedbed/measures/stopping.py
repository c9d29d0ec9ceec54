"""When training could have stopped: three marks on a validation curve, as numbers and in words.

The best step with the noise of its value; the earliest step within one standard error of it, which no measurement can
tell from the best (Breiman et al. 1984, the one-standard-error rule); and, where samples were measured, the first step
at which they copy more from the training text than held-out text does.

>>> import numpy as np
>>> steps = np.arange(5) * 100
>>> losses = ([3.0, 2.0, 1.12, 1.0, 1.3], [3.0, 2.0, 1.14, 1.2, 1.4])
>>> advise_stop([Curve(steps, np.array(loss)) for loss in losses]).earliest
200.0

Of runs, `advise_runs` takes the curves; copying is known where they have readings `copied` (the share of n-grams of
samples that stand in the training text) and `copied[held-out]` (the same of real text).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np

from seedbed.measures.catalogue import Direction
from seedbed.measures.curves import direction, extremum, first_reaching, first_within
from seedbed.measures.summary import RunCurves
from seedbed.measures.words import count, number, percent
from seedbed.records import Curve

NEIGHBOURS = 5  # records on either side of the best one that tell the noise of a single run
COPIED, HELD_OUT = "copied", "copied[held-out]"
ENDING = 0.98  # a best step beyond this share of all steps means that training may not be done


@dataclass(frozen=True)
class StoppingAdvice:
    """Steps are NaN where there is none; `noise` is the standard error of the best value."""

    best: float
    value: float
    noise: float
    earliest: float
    last: float
    n: int  # seeds
    copying: float = nan

    @property
    def saved(self) -> float:
        """The share of all steps after the earliest good one."""
        return 1 - self.earliest / self.last if self.last else 0.0


def advise_runs(runs: Sequence[RunCurves], metric: str) -> StoppingAdvice | None:
    """The marks for the runs of one point; None where no run that counts has the metric, or no value of it is best."""
    kind, counted = direction(metric), [run for run in runs if run.counts and metric in run.curves]
    if kind is None or not counted:
        return None
    known = [run for run in counted if COPIED in run.curves and HELD_OUT in run.curves]
    copied = mean_curve([run.curves[COPIED] for run in known]) if known else None
    held_out = float(np.mean([run.curves[HELD_OUT].values.mean() for run in known])) if known else nan
    return advise_stop([run.curves[metric] for run in counted], kind, copied, held_out)


def advise_stop(
    curves: Sequence[Curve], kind: Direction = "min", copied: Curve | None = None, held_out: float = nan
) -> StoppingAdvice:
    """The marks for one point's curves, one a seed; `copied` is the samples' copy rate, `held_out` real text's."""
    mean = mean_curve(curves)
    best = extremum(mean, kind)
    if isnan(best.step):
        return StoppingAdvice(nan, nan, nan, nan, nan, len(curves))
    noise = _noise(curves, mean, best.step)
    earliest = first_within(mean, 0.0 if isnan(noise) else noise, kind)
    copying = nan if copied is None else first_reaching(copied, float(np.nextafter(held_out, np.inf)), "max")
    return StoppingAdvice(best.step, best.value, noise, earliest, float(mean.steps[-1]), len(curves), copying)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds at the steps that all of them recorded."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return Curve(steps, np.mean(values, axis=0))


def _noise(curves: Sequence[Curve], mean: Curve, step: float) -> float:
    if len(curves) > 1:
        at_best = np.array([float(curve.values[curve.steps == step][0]) for curve in curves])
        return float(at_best.std(ddof=1)) / sqrt(len(curves))
    return _scatter(mean, step)


def _scatter(curve: Curve, step: float) -> float:
    """The noise of one curve about a smooth one: second differences of independent noise have 6 times its variance."""
    place = int(np.flatnonzero(curve.steps == step)[0])
    bends = np.diff(curve.values[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1], 2)
    bends = bends[np.isfinite(bends)]
    return float(np.sqrt(np.mean(bends**2) / 6)) if bends.size else nan


def stop_in_words(advice: StoppingAdvice, metric: str) -> str:
    """The advice as a sentence, without a full stop."""
    if isnan(advice.best):
        return f"no step of {metric} can be called best: nothing was recorded"
    over = f"standard error over {advice.n} seeds" if advice.n > 1 else "scatter of its neighbours, one seed"
    noise = "its noise is unknown" if isnan(advice.noise) else f"± {number(advice.noise)}, {over}"
    said = f"{metric} is best at step {count(advice.best)} ({number(advice.value)}, {noise})"
    if advice.earliest < advice.best:
        said += f"; step {count(advice.earliest)} is the first that cannot be told from it, and stopping there would "
        said += f"have saved {percent(advice.saved)} of the {count(advice.last)} steps"
    elif advice.best < ENDING * advice.last:
        said += f"; the {count(advice.last - advice.best)} steps after it bought nothing"
    if advice.best >= ENDING * advice.last:
        said += "; it was still improving at the end, so longer training may help"
    if not isnan(advice.copying):
        said += f"; from step {count(advice.copying)} on, samples copy more than held-out text does"
    return said
