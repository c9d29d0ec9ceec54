"""Answers to "what law": a power law in one variable, its exponent with an interval, and a check on the largest size.

The law is loss = floor + scale·x^−exponent (`stats.scaling_laws`), fitted to the means over seeds. It is refused where
fewer than MIN_SIZES sizes were tried or where it does not fit, left open where its exponent is not known, and checked
by fitting it without the largest size and predicting that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from typing import Any, Final

import numpy as np

from seedbed.errors import UsageError
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.answers.finding import (
    Finding,
    describe_units,
    format_clause,
    join_sentences,
    split_by_setting,
    withhold_verdict,
)
from seedbed.stats.confounds import Confound, confounds_to_dicts, find_confounds
from seedbed.stats.decision import Verdict, combine_verdicts
from seedbed.stats.format import format_number, format_percent, format_value, pluralise, short_setting_name
from seedbed.stats.groups import balance_groups, group_by_level, is_numeric, largest_complete_table
from seedbed.stats.scaling_laws import MIN_GOOD_R_SQUARED, FittedValue, ScalingLaw, fit_scaling_law
from seedbed.stats.summary import RunCurves

MIN_SIZES: Final = 4  # one more than the law has parameters
MAX_HELD_OUT_ERROR: Final = 0.05  # of the prediction for the largest size, where there is no interval or it is narrow
MAX_EXPONENT_RATIO: Final = 10  # of the ends of its interval, beyond which the exponent is not known


@dataclass(frozen=True)
class _LawFit:
    """The law of one group of runs and its check on the largest size, or the reason why there is none."""

    reason: str = ""
    law: ScalingLaw | None = None
    largest_residual: float = nan  # relative
    predicted: FittedValue | None = None  # at the largest size, from the others
    measured: float = nan
    sizes: tuple[float, float] = (nan, nan)  # the smallest and the largest
    n: int = 0
    notes: tuple[str, ...] = ()
    confounds: tuple[Confound, ...] = ()

    @property
    def held_out_error(self) -> float:
        """Relative error of the prediction for the largest size."""
        return nan if self.predicted is None else self.predicted.value / self.measured - 1

    @property
    def verdict(self) -> Verdict:
        """Does the law hold? No if it does not fit; open if its exponent is unknown or it misses the largest size."""
        if self.law is None or self.predicted is None:
            return "no" if self.law and not _fits(self.law) else "cannot tell"
        is_within = self.predicted.low <= self.measured <= self.predicted.high
        return "yes" if is_within or abs(self.held_out_error) <= MAX_HELD_OUT_ERROR else "cannot tell"


def answer_what_law(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """The law along the setting `over` in each group."""
    over, statistic = question.over or "parameters", MetricStatistic.from_question(question)
    if statistic.direction != "min":
        return Finding(f"There is no law of {statistic}: it is fitted to losses and other values that fall to a floor.")
    fits = {name: _fit(group, over, statistic) for name, group in split_by_setting(question, runs).items()}
    clauses = [format_clause(name, _format_fit(fit, over, statistic)) for name, fit in fits.items()]
    numbers = {name or "all": _fit_to_dict(fit) for name, fit in fits.items()}
    notes = tuple(dict.fromkeys(note for fit in fits.values() for note in fit.notes))
    verdict = combine_verdicts([fit.verdict for fit in fits.values()])
    confounds = list({confound.setting: confound for fit in fits.values() for confound in fit.confounds}.values())
    finding = Finding(join_sentences(clauses), numbers, sum(fit.n for fit in fits.values()), notes, verdict)
    units = describe_units(group_by_level(runs, over).values(), statistic)
    return withhold_verdict(finding, confounds, not question.allow_confounds, units=units)


def _fit(runs: Sequence[RunCurves], over: str, statistic: MetricStatistic) -> _LawFit:
    levels = group_by_level(runs, over)
    name = short_setting_name(over)
    if not is_numeric(levels) or any(level <= 0 for level in levels):
        return _LawFit(f"there is no law: not all values of {name} are numbers above 0")
    balanced = balance_groups(levels, statistic.compute)
    sizes, seeds = largest_complete_table({level: {seed for _, seed in balanced.rows[level]} for level in levels})
    notes = tuple(balanced.notes())
    if len(sizes) < MIN_SIZES:
        tried = pluralise(len(sizes), "value")
        return _LawFit(
            f"there is no law yet: {tried} of {name} with the same seeds, {MIN_SIZES} are needed", notes=notes
        )
    by_level = [balanced.mean_by_seed(level) for level in sizes]
    losses = {seed: [by_seed[seed] for by_seed in by_level] for seed in sorted(seeds)}
    try:
        law = fit_scaling_law({name: list(sizes)}, losses)
        shorter = fit_scaling_law({name: list(sizes[:-1])}, {seed: values[:-1] for seed, values in losses.items()})
    except UsageError as error:
        return _LawFit(f"there is no law: {error}", notes=notes)
    means = np.mean(list(losses.values()), axis=0)
    residuals = np.abs(law.predict({name: list(sizes)}) / means - 1)
    return _LawFit(
        law=law,
        largest_residual=float(residuals.max()),
        predicted=shorter.predict_interval({name: float(sizes[-1])})
        if _fits(law) and _is_exponent_known(law)
        else None,
        measured=float(means[-1]),
        sizes=(float(sizes[0]), float(sizes[-1])),
        n=sum(seed in seeds for level in sizes for _, seed in balanced.rows[level]),
        notes=notes,
        confounds=find_confounds({format_value(level): balanced.configs[level] for level in sizes}, [over]),
    )


def _fits(law: ScalingLaw) -> bool:
    """Is the law close to the data, and does it fall?"""
    [exponent] = law.exponents.values()
    return law.r_squared >= MIN_GOOD_R_SQUARED and exponent.value > 0.002  # MIN_EXPONENT is its bound


def _is_exponent_known(law: ScalingLaw) -> bool:
    """True for a single seed, where there is no interval."""
    [exponent] = law.exponents.values()
    return not isfinite(exponent.low) or exponent.high / exponent.low <= MAX_EXPONENT_RATIO


def _fit_to_dict(fit: _LawFit) -> dict[str, Any]:
    document: dict[str, Any] = {"reason": fit.reason, "confounds": confounds_to_dicts(fit.confounds)}
    if fit.law is None:
        return document
    document |= {"floor": asdict(fit.law.floor), "scales": _values(fit.law.scales), "r_squared": fit.law.r_squared}
    document |= {"exponents": _values(fit.law.exponents), "n_sizes": fit.law.n_points, "n_seeds": fit.law.n_seeds}
    held_out = {"predicted": fit.predicted and asdict(fit.predicted), "measured": fit.measured}
    return document | {"largest_residual": fit.largest_residual, "held_out": held_out}


def _values(values: Mapping[str, FittedValue]) -> dict[str, Any]:
    return {name: asdict(value) for name, value in values.items()}


# ---- sentences ----


def _format_fit(fit: _LawFit, over: str, statistic: MetricStatistic) -> str:
    name = short_setting_name(over)
    if fit.law is None:
        return fit.reason
    law = fit.law
    low, high = (format_number(end) for end in fit.sizes)
    seeds = pluralise(law.n_seeds, "seed") + ("" if law.n_seeds > 1 else ", so no intervals")
    quality = f"R² = {law.r_squared:.3f} over {law.n_points} sizes from {low} to {high}, {seeds}"
    formula = f"{law.floor} + {format_number(law.scales[name].value)}·{name}^−{law.exponents[name]}"
    if fit.verdict == "cannot tell" and fit.predicted is None:
        unknown = f"the exponent is uncertain by more than a factor of {MAX_EXPONENT_RATIO}; add seeds or sizes"
        claim = f"cannot tell which power law {statistic} follows in {name}"
        return f"{claim}: {unknown}. The closest is {formula} ({quality})"
    if fit.predicted is None:
        return f"{statistic} does not follow a power law in {name}: the closest is {formula} ({quality})"
    quality += f", largest residual {format_percent(fit.largest_residual, 1)}"
    holds = "follows a power law" if fit.verdict == "yes" else "fits a power law that may not extrapolate,"
    off = f"{format_percent(abs(fit.held_out_error), 1)} {'above' if fit.held_out_error > 0 else 'below'}"
    return (
        f"{statistic} {holds} in {name}: {formula} ({quality}); fitted without {high}, it predicts {fit.predicted} "
        f"there, {off} the measured {format_number(fit.measured)}"
    )
