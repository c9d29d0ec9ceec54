"""When training could have stopped, or whether it should go on: one piece of advice, as numbers and as a sentence.

The best step with the standard error of its value; the earliest step within one standard error of it, which is
statistically as good (the one-standard-error rule, Breiman et al. 1984); and, if samples were analysed, the first step
at which they copy more from the training text than held-out text does. There is no earlier step if the curve was still
improving at the end, or if validation follows training with a long delay (grokking), when any early stop is wrong.
Where no run left chance, there is no best step either.

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
from dataclasses import dataclass, replace
from math import isnan, nan, sqrt

import numpy as np

from seedbed.format import format_count, format_number, format_percent, pluralise
from seedbed.records import Curve
from seedbed.stats.curve_statistics import find_extremum, first_step_reaching, first_step_within
from seedbed.stats.grokking import MEMORISED_TRAIN_ACCURACY
from seedbed.stats.metric_registry import Direction, metric_direction, metric_label
from seedbed.stats.run_statistics import classify_run
from seedbed.stats.summary import RunCurves, never_left_chance

NOISE_WINDOW_RECORDS = 5  # evaluations on either side of the best one that estimate a single run's noise
COPIED_METRIC, HELD_OUT_COPIED_METRIC = "copied", "copied[held-out]"
STILL_IMPROVING_FRACTION = 0.98  # a best step beyond this fraction of all steps: training may be too short


@dataclass(frozen=True)
class StoppingAdvice:
    """Best, earliest good and last step; NaN if undefined. `noise` is the standard error of the best value."""

    best: float
    value: float
    noise: float
    earliest: float  # equals `best` if stopping before it is not advised
    last: float
    n: int  # seeds
    copying: float = nan
    memorised_at: float = nan  # the mean first step at which training accuracy is high and validation lags behind
    n_grokked: int = 0  # seeds whose validation accuracy followed with a delay
    is_at_chance: bool = False  # no seed exceeded chance, so that `best` is NaN

    @property
    def saved_fraction(self) -> float:
        """Fraction of all steps that come after the earliest good one."""
        return 1 - self.earliest / self.last if self.last else 0.0

    @property
    def is_improving(self) -> bool:
        """Was it still improving at the end?"""
        return self.best >= STILL_IMPROVING_FRACTION * self.last


def advise_stopping_for_runs(runs: Sequence[RunCurves], metric: str) -> StoppingAdvice | None:
    """Advice for the runs of one config; None if no included run has the metric, or if the metric has no direction."""
    direction = metric_direction(metric)
    included = [run for run in runs if run.is_included and metric in run.curves]
    included = [run for run in included if run.is_complete] or included
    if direction is None or not included:
        return None
    sampled = [run for run in included if COPIED_METRIC in run.curves and HELD_OUT_COPIED_METRIC in run.curves]
    copied = mean_curve([run.curves[COPIED_METRIC] for run in sampled]) if sampled else None
    held_out = float(np.mean([run.curves[HELD_OUT_COPIED_METRIC].values.mean() for run in sampled])) if sampled else nan
    advice = advise_stopping([run.curves[metric] for run in included], direction, copied, held_out)
    advice = _with_delay(_count_steps(advice, included), included, metric)
    is_at_chance = not isnan(advice.best) and all(never_left_chance(run, metric) for run in included)
    return replace(advice, best=nan, earliest=nan, is_at_chance=True) if is_at_chance else advice


def _count_steps(advice: StoppingAdvice, runs: Sequence[RunCurves]) -> StoppingAdvice:
    """The advice in steps done: the closing evaluation of some tasks is recorded one step after the last update."""
    n_steps = max(run.run.step for run in runs)
    best, earliest, last = (min(step, n_steps) for step in (advice.best, advice.earliest, advice.last))
    return replace(advice, best=best, earliest=earliest, last=last) if n_steps and not isnan(advice.best) else advice


def _with_delay(advice: StoppingAdvice, runs: Sequence[RunCurves], metric: str) -> StoppingAdvice:
    """The advice not to stop early, if validation lags far behind training on a task that has a rule to be found."""
    results = [result for run in runs if (result := classify_run(run, metric))]
    n_grokked = sum(result.label == "grokked" for result in results)
    may_grok = runs[0].run.settings.task.completes_prompts and any(result.label == "memorised" for result in results)
    if not (n_grokked or may_grok):
        return advice
    late = [result.memorised_at for result in results if result.label in ("grokked", "memorised")]
    return replace(advice, earliest=advice.best, memorised_at=float(np.mean(late)), n_grokked=n_grokked)


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
    advice = StoppingAdvice(best.step, best.value, noise, earliest, float(mean.steps[-1]), len(curves), copying)
    return replace(advice, earliest=advice.best) if advice.is_improving else advice


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
    """The advice as a sentence without a full stop, which begins with what to do."""
    label = metric_label(metric)
    if advice.is_at_chance:
        seeds = f"{pluralise(advice.n, 'seed')}, {format_count(advice.last)} steps"
        memorised = f"; {_memorised_clause(advice)}, so train longer" if not isnan(advice.memorised_at) else ""
        return f"no step is the best: {label} never left chance ({seeds}){memorised}"
    if isnan(advice.best):
        return f"no step is the best: {label} was never recorded"
    text = _format_advice(advice, label)
    if not isnan(advice.copying):
        text += f"; from step {format_count(advice.copying)} on, samples copy more than held-out text does"
    return text


def _format_advice(advice: StoppingAdvice, label: str) -> str:
    """One piece of advice: train longer, do not stop early, or stop at a step."""
    noise = "" if isnan(advice.noise) else f" ± {format_number(advice.noise)}"
    value = f"{format_number(advice.value)}{noise}, {pluralise(advice.n, 'seed')}"
    best, n_after = format_count(advice.best), format_count(advice.last - advice.best)
    if advice.is_improving:
        return f"train longer: {label} was still improving at the end (best at step {best}: {value})"
    if advice.n_grokked:
        followed = f"{_memorised_clause(advice)} and validation followed much later"
        best_at = f"{label} is best at step {best} ({value})"
        return f"do not stop early: {followed}; {best_at}, so only the {n_after} steps after it can be saved"
    if not isnan(advice.memorised_at):
        later = "validation may follow much later (grokking)"
        return (
            f"train longer: {_memorised_clause(advice)}, and {later}, though {label} is best at step {best} ({value})"
        )
    if advice.earliest < advice.best:
        saved = f"{format_percent(advice.saved_fraction)} of the {format_count(advice.last)} steps"
        within = f"{label} is within one standard error of its best from there on"
        return f"stop at step {format_count(advice.earliest)}: {within} ({value}, at step {best}), which saves {saved}"
    return (
        f"stop at step {best}: {label} is best there ({value}), and the {n_after} steps after it brought no improvement"
    )


def _memorised_clause(advice: StoppingAdvice) -> str:
    return f"training accuracy reached {MEMORISED_TRAIN_ACCURACY} at step {format_count(round(advice.memorised_at))}"
