"""When training could have stopped: three steps on a validation curve, as numbers and as a sentence.

The best step with the standard error of its value; the earliest step within one standard error of it, which is
statistically as good (the one-standard-error rule, Breiman et al. 1984); and, if samples were analysed, the first step
at which they copy more from the training text than held-out text does.

>>> import numpy as np
>>> steps = np.arange(5) * 100
>>> losses = ([3.0, 2.0, 1.12, 1.0, 1.3], [3.0, 2.0, 1.14, 1.2, 1.4])
>>> advise_stopping([Curve(steps, np.array(loss)) for loss in losses]).earliest
200.0

`advise_stopping_for_runs` takes the curves from runs; copying is known if they have the metrics `copied` (the share of
the samples' n-grams that occur in the training text) and `copied[held-out]` (the same of held-out text).
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

NOISE_WINDOW_RECORDS = 5  # evaluations on either side of the best one that estimate a single run's noise
COPIED_METRIC, HELD_OUT_COPIED_METRIC = "copied", "copied[held-out]"
STILL_IMPROVING_FRACTION = 0.98  # a best step beyond this fraction of all steps: training may be too short


@dataclass(frozen=True)
class StoppingAdvice:
    """Best, earliest good and last step; NaN if undefined. `noise` is the standard error of the best value."""

    best: float
    value: float
    noise: float
    earliest: float
    last: float
    n: int  # seeds
    copying: float = nan

    @property
    def saved_fraction(self) -> float:
        """Fraction of all steps that come after the earliest good one."""
        return 1 - self.earliest / self.last if self.last else 0.0


def advise_stopping_for_runs(runs: Sequence[RunCurves], metric: str) -> StoppingAdvice | None:
    """Advice for the runs of one config; None if no included run has the metric, or if the metric has no direction."""
    direction = metric_direction(metric)
    included = [run for run in runs if run.is_included and metric in run.curves]
    if direction is None or not included:
        return None
    sampled = [run for run in included if COPIED_METRIC in run.curves and HELD_OUT_COPIED_METRIC in run.curves]
    copied = mean_curve([run.curves[COPIED_METRIC] for run in sampled]) if sampled else None
    held_out = float(np.mean([run.curves[HELD_OUT_COPIED_METRIC].values.mean() for run in sampled])) if sampled else nan
    return advise_stopping([run.curves[metric] for run in included], direction, copied, held_out)


def advise_stopping(
    curves: Sequence[Curve], direction: Direction = "min", copied: Curve | None = None, held_out: float = nan
) -> StoppingAdvice:
    """Advice from one curve per seed; `copied` is the samples' n-gram overlap, `held_out` that of held-out text."""
    mean = mean_curve(curves)
    best = find_extremum(mean, direction)
    if isnan(best.step):
        return StoppingAdvice(nan, nan, nan, nan, nan, len(curves))
    noise = _standard_error(curves, mean, best.step)
    earliest = first_step_within(mean, 0.0 if isnan(noise) else noise, direction)
    copying = nan if copied is None else first_step_reaching(copied, float(np.nextafter(held_out, np.inf)), "max")
    return StoppingAdvice(best.step, best.value, noise, earliest, float(mean.steps[-1]), len(curves), copying)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over seeds at the steps recorded by all of them."""
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
    """Noise around a smooth curve, from second differences, which have 6 times the variance of independent noise."""
    index = int(np.flatnonzero(curve.steps == step)[0])
    window = curve.values[max(0, index - NOISE_WINDOW_RECORDS) : index + NOISE_WINDOW_RECORDS + 1]
    differences = np.diff(window, 2)
    differences = differences[np.isfinite(differences)]
    return float(np.sqrt(np.mean(differences**2) / 6)) if differences.size else nan


def format_stopping_advice(advice: StoppingAdvice, metric: str) -> str:
    """The advice as a sentence, without a full stop."""
    if isnan(advice.best):
        return f"{metric} has no best step: nothing was recorded"
    source = f"standard error over {advice.n} seeds" if advice.n > 1 else "scatter of nearby evaluations, one seed"
    noise = ", standard error unknown" if isnan(advice.noise) else f" ± {format_number(advice.noise)}, {source}"
    text = f"{metric} is best at step {format_count(advice.best)} ({format_number(advice.value)}{noise})"
    if advice.earliest < advice.best:
        text += f"; step {format_count(advice.earliest)} is the first within one standard error of it, and stopping "
        text += (
            f"there would have saved {format_percent(advice.saved_fraction)} of the {format_count(advice.last)} steps"
        )
    elif advice.best < STILL_IMPROVING_FRACTION * advice.last:
        text += f"; the {format_count(advice.last - advice.best)} steps after it brought no improvement"
    if advice.best >= STILL_IMPROVING_FRACTION * advice.last:
        text += "; it was still improving at the end, so longer training may help"
    if not isnan(advice.copying):
        text += f"; from step {format_count(advice.copying)} on, samples copy more than held-out text does"
    return text
