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

from seedbed.records import Curve
from seedbed.stats.curve_statistics import find_extremum, first_step_reaching, first_step_within, metric_direction
from seedbed.stats.format import format_count, format_number, format_percent
from seedbed.stats.metric_registry import Direction
from seedbed.stats.summary import RunCurves

NOISE_WINDOW_RECORDS = 5  # records on either side of the best one that tell the noise of a single run
COPIED_METRIC, HELD_OUT_COPIED_METRIC = "copied", "copied[held-out]"
STILL_IMPROVING_FRACTION = 0.98  # a best step beyond this share of all steps means that training may not be done


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
    def saved_fraction(self) -> float:
        """The share of all steps after the earliest good one."""
        return 1 - self.earliest / self.last if self.last else 0.0


def advise_stopping_for_runs(runs: Sequence[RunCurves], metric: str) -> StoppingAdvice | None:
    """The marks for the runs of one point; None where no run that counts has the metric, or no value of it is best."""
    kind, counted = metric_direction(metric), [run for run in runs if run.is_included and metric in run.curves]
    if kind is None or not counted:
        return None
    known = [run for run in counted if COPIED_METRIC in run.curves and HELD_OUT_COPIED_METRIC in run.curves]
    copied = mean_curve([run.curves[COPIED_METRIC] for run in known]) if known else None
    held_out = float(np.mean([run.curves[HELD_OUT_COPIED_METRIC].values.mean() for run in known])) if known else nan
    return advise_stopping([run.curves[metric] for run in counted], kind, copied, held_out)


def advise_stopping(
    curves: Sequence[Curve], direction: Direction = "min", copied: Curve | None = None, held_out: float = nan
) -> StoppingAdvice:
    """The marks for one point's curves, one a seed; `copied` is the samples' copy rate, `held_out` real text's."""
    mean = mean_curve(curves)
    best = find_extremum(mean, direction)
    if isnan(best.step):
        return StoppingAdvice(nan, nan, nan, nan, nan, len(curves))
    noise = _standard_error(curves, mean, best.step)
    earliest = first_step_within(mean, 0.0 if isnan(noise) else noise, direction)
    copying = nan if copied is None else first_step_reaching(copied, float(np.nextafter(held_out, np.inf)), "max")
    return StoppingAdvice(best.step, best.value, noise, earliest, float(mean.steps[-1]), len(curves), copying)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds at the steps that all of them recorded."""
    steps = curves[0].steps
    for curve in curves[1:]:
        steps = np.intersect1d(steps, curve.steps)
    values = [curve.values[np.isin(curve.steps, steps)] for curve in curves]
    return Curve(steps, np.mean(values, axis=0))


def _standard_error(curves: Sequence[Curve], mean: Curve, step: float) -> float:
    if len(curves) > 1:
        at_best = np.array([float(curve.values[curve.steps == step][0]) for curve in curves])
        return float(at_best.std(ddof=1)) / sqrt(len(curves))
    return _single_run_noise(mean, step)


def _single_run_noise(curve: Curve, step: float) -> float:
    """The noise of one curve about a smooth one: second differences of independent noise have 6 times its variance."""
    place = int(np.flatnonzero(curve.steps == step)[0])
    bends = np.diff(curve.values[max(0, place - NOISE_WINDOW_RECORDS) : place + NOISE_WINDOW_RECORDS + 1], 2)
    bends = bends[np.isfinite(bends)]
    return float(np.sqrt(np.mean(bends**2) / 6)) if bends.size else nan


def format_stopping_advice(advice: StoppingAdvice, metric: str) -> str:
    """The advice as a sentence, without a full stop."""
    if isnan(advice.best):
        return f"no step of {metric} can be called best: nothing was recorded"
    over = f"standard error over {advice.n} seeds" if advice.n > 1 else "scatter of its neighbours, one seed"
    noise = "its noise is unknown" if isnan(advice.noise) else f"± {format_number(advice.noise)}, {over}"
    said = f"{metric} is best at step {format_count(advice.best)} ({format_number(advice.value)}, {noise})"
    if advice.earliest < advice.best:
        said += f"; step {format_count(advice.earliest)} is the first that cannot be told from it, and stopping there would "
        said += f"have saved {format_percent(advice.saved_fraction)} of the {format_count(advice.last)} steps"
    elif advice.best < STILL_IMPROVING_FRACTION * advice.last:
        said += f"; the {format_count(advice.last - advice.best)} steps after it bought nothing"
    if advice.best >= STILL_IMPROVING_FRACTION * advice.last:
        said += "; it was still improving at the end, so longer training may help"
    if not isnan(advice.copying):
        said += f"; from step {format_count(advice.copying)} on, samples copy more than held-out text does"
    return said
