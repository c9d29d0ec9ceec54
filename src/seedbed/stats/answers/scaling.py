"""Answers to "which scales better" and "what law": how a metric changes per doubling, and the power law it follows.

Slopes are compared over seeds, one per seed: of a loss on log scale, so that a slope is a factor per doubling, of an
accuracy on linear scale. The law is loss = floor + scale·x^−exponent (`stats.scaling_laws`), fitted to the means over
seeds. It is refused where fewer than MIN_SIZES sizes were tried or where it does not fit, left open where its exponent
is not known, and checked by fitting it without the largest size and predicting that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, nan
from typing import Any, Final, TypeAlias

import numpy as np

from seedbed.errors import UsageError
from seedbed.format import (
    capitalise,
    format_number,
    format_percent,
    format_share,
    format_signed,
    format_value,
    join_words,
    pluralise,
    setting_label,
    setting_noun,
    setting_with_article,
    short_setting_name,
)
from seedbed.specs import QuestionSpec
from seedbed.stats.answers.best_group import comparisons_to_dicts, comparisons_with
from seedbed.stats.answers.finding import (
    Finding,
    MetricStatistic,
    best_key,
    describe_units,
    format_test,
    join_clauses,
    split_by_setting,
    test_definitions,
    withhold_verdict,
)
from seedbed.stats.comparison import Comparison, compare_all_pairs, summarise_seeds
from seedbed.stats.confounds import Confound, confounds_to_dicts, find_confounds, merge_confounds
from seedbed.stats.decision import Verdict, combine_verdicts
from seedbed.stats.groups import BalancedTable, balance_groups, group_by_level, is_numeric, largest_complete_table
from seedbed.stats.scaling_laws import MIN_GOOD_R_SQUARED, FittedValue, ScalingLaw, fit_scaling_law
from seedbed.stats.summary import RunCurves

SlopesBySeed: TypeAlias = Mapping[str, Mapping[int, float]]  # group → seed → change per doubling
LAW: Final = (
    "law: loss = floor + scale·x^−exponent, fitted to the means over seeds; its intervals are from resampled seeds"
)
MIN_SIZES: Final = 4  # one more than the law has parameters
MAX_HELD_OUT_ERROR: Final = 0.05  # of the prediction for the largest size, where there is no interval or it is narrow
MAX_EXPONENT_RATIO: Final = 10  # of the ends of its interval, beyond which the exponent is not known


# ---- which scales better ----


def answer_which_scales_better(question: QuestionSpec, runs: Sequence[RunCurves]) -> Finding:
    """Compares the groups' slopes along the setting `over`."""
    over, statistic = question.over or "", MetricStatistic.from_question(question)
    setting_name = setting_with_article(over)
    levels = {name: group_by_level(group, over) for name, group in split_by_setting(question, runs).items()}
    if len(levels) < 2:
        return Finding(
            f"There is nothing to compare: {setting_label(question.between or '')} has fewer than two values here."
        )
    if not all(is_numeric(group) and all(level > 0 for level in group) for group in levels.values()):
        return Finding(f"There is no scaling variable: not all values of {setting_name} are numbers above 0.")
    tables = {name: balance_groups(group, statistic.compute) for name, group in levels.items()}
    is_log = _uses_log_scale(statistic, tables.values())
    slopes = {name: by_seed for name, table in tables.items() if (by_seed := _slopes_by_seed(table, is_log))}
    n = len({run.run.id for run in runs if run.is_complete})
    notes = tuple(note for table in tables.values() for note in table.notes())
    if len(slopes) < 2:
        missing = join_words([name for name in tables if name not in slopes])
        return Finding(f"There is no answer yet: {missing} has no seed at two values of {setting_name}.", {}, n, notes)
    pairs = compare_all_pairs(slopes)
    means_by_level = {
        name: {level: float(np.mean(list(rows.values()))) for level, rows in tables[name].rows.items() if rows}
        for name in slopes
    }
    confounds = _find_confounds({name: tables[name] for name in slopes}, [over, question.between or ""])
    numbers = {
        "per_doubling": {name: asdict(summarise_seeds(by_seed)) for name, by_seed in slopes.items()},
        "is_log2": is_log,
        "pairs": comparisons_to_dicts(pairs),
        "means": means_by_level,
        "confounds": confounds_to_dicts(confounds),
    }
    text = ScalingText(slopes, pairs, means_by_level, statistic, setting_name, is_log)
    units = describe_units((group for by_level in levels.values() for group in by_level.values()), statistic)
    withhold = (bool(confounds) or bool(units)) and not question.allow_confounds
    sentence = text.format_numbers() if withhold else text.format_sentence()
    finding = Finding(sentence, numbers, n, notes, text.verdict, test_definitions(pairs.values()))
    return withhold_verdict(finding, confounds, withhold, units=units)


def _find_confounds(tables: Mapping[str, BalancedTable], asked: Sequence[str]) -> list[Confound]:
    """The settings that differ between the groups at the same level, or that change along the levels."""
    by_group = {
        name: {(level, one): config for level, configs in table.configs.items() for one, config in configs.items()}
        for name, table in tables.items()
    }
    along = {
        format_value(level): {(name, one): config for name, table in tables.items()
                              for one, config in table.configs.get(level, {}).items()}
        for table in tables.values() for level in table.configs
    }  # fmt: skip
    return merge_confounds([*find_confounds(along, asked), *find_confounds(by_group, asked)])


def _uses_log_scale(statistic: MetricStatistic, tables: Iterable[BalancedTable]) -> bool:
    """Log scale is for losses above 0."""
    values = [value for table in tables for rows in table.rows.values() for value in rows.values()]
    is_loss = statistic.direction == "min" and statistic.record.better == "metric"
    return is_loss and all(value > 0 for value in values)


def _slopes_by_seed(table: BalancedTable, is_log: bool) -> dict[int, float]:
    """Each seed's change per doubling: least squares over log₂ of the setting, mean over the other settings."""
    levels, seeds = largest_complete_table({level: {seed for _, seed in rows} for level, rows in table.rows.items()})
    if len(levels) < 2:
        return {}
    x = np.log2(np.array(levels, dtype=float))
    slopes: dict[int, list[float]] = {}
    for key in table.rows[levels[0]]:
        if key[1] in seeds:
            y = np.array([table.rows[level][key] for level in levels])
            slope = float(np.polyfit(x, np.log2(y) if is_log else y, 1)[0])
            slopes.setdefault(key[1], []).append(round(slope, 12))  # equal values then have a slope of exactly 0
    return {seed: float(np.mean(values)) for seed, values in slopes.items()}


@dataclass(frozen=True)
class ScalingText:
    """The sentence about the groups' slopes. A steep slope wins only if it leads to the better values."""

    slopes: SlopesBySeed
    pairs: Mapping[tuple[str, str], Comparison]
    means_by_level: Mapping[str, Mapping[float, float]]
    statistic: MetricStatistic
    setting_name: str
    is_log: bool

    @property
    def ranked(self) -> tuple[str, str, Comparison]:
        """The group with the best slope, the next, and their comparison."""
        means = {name: summarise_seeds(by_seed).mean for name, by_seed in self.slopes.items()}
        first = best_key(means, self.statistic.direction)
        others = comparisons_with(first, self.pairs)
        second = best_key({name: means[name] for name in others}, self.statistic.direction)
        return first, second, others[second]

    @property
    def largest_values(self) -> tuple[float, dict[str, float]] | None:
        """The largest level that all groups have, and their means there."""
        common = set.intersection(*(set(means) for means in self.means_by_level.values()))
        if not common:
            return None
        return max(common), {name: means[max(common)] for name, means in self.means_by_level.items()}

    @property
    def is_catching_up(self) -> bool:
        """Is the group with the best slope still behind the next at the largest level?"""
        first, second, _ = self.ranked
        if self.largest_values is None or self.statistic.direction is None:
            return False
        _, means = self.largest_values
        ahead = best_key({name: means[name] for name in (second, first)}, self.statistic.direction)
        return ahead != first and means[first] != means[second]

    @property
    def verdict(self) -> Verdict:
        """Yes if the best slope differs from the next and leads to the better value at the largest level."""
        return "yes" if self.ranked[2].is_significant and not self.is_catching_up else "cannot tell"

    def format_sentence(self) -> str:
        first, second, comparison = self.ranked
        if self.verdict == "yes":
            return f"{first} scales better with {self.setting_name} than {second}: {self.format_numbers(False)}"
        claim = f"We cannot tell whether {first} or {second} scales better with {self.setting_name}: "
        if comparison.is_significant:
            claim += f"{first} changes faster but is still worse at the largest value, so it may only be catching up; "
        return claim + self.format_numbers(False)

    def format_numbers(self, at_start: bool = True) -> str:
        """The slopes, their difference and its test, and the values at the largest level."""
        *_, comparison = self.ranked
        slopes = [f"{self._format_slope(by_seed)} for {name}" for name, by_seed in self.slopes.items()]
        text = (
            f"{'E' if at_start else 'e'}ach doubling {'multiplies' if self.is_log else 'changes'} {self.statistic} by "
            f"{join_words(slopes)} ({self._format_difference(comparison)}, {format_test(comparison, len(self.pairs))})."
        )
        if self.largest_values is None:
            return text
        level, means = self.largest_values
        texts = zip(means, self.statistic.format(*means.values()), strict=True)
        values = join_words([f"{value} for {name}" for name, value in texts])
        return f"{text} At the largest value, {format_value(level)}, it is {values}."

    def _format_slope(self, by_seed: Mapping[int, float]) -> str:
        slope = summarise_seeds(by_seed).mean
        return format_number(2**slope) if self.is_log else format_signed(slope)

    def _format_difference(self, comparison: Comparison) -> str:
        """The absolute difference of the slopes; for factors, their ratio."""
        sign = 1 if comparison.effect >= 0 else -1
        ends = (
            (comparison.low, comparison.high) if comparison.has_interval else (comparison.smallest, comparison.largest)
        )
        low, high = sorted(sign * end for end in ends)
        size = abs(comparison.effect)
        if self.is_log:
            size, low, high = 2**size, 2**low, 2**high
        digits = 4 if self.is_log and size < 1.1 else 3  # 1.003 is no 1
        text = f"{'ratio of these factors' if self.is_log else 'difference'} {format_number(size, digits)}"
        bounds = f"{format_number(low, digits)} to {format_number(high, digits)}"
        if comparison.shows_interval:
            return f"{text}, 95 % CI {bounds}"
        return f"{text}, {bounds} in single seeds" if comparison.n > 1 and low < high else text


# ---- what law ----


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
    clauses = {name: _format_fit(fit, over, statistic, bool(name)) for name, fit in fits.items()}
    numbers = {name or "all": _fit_to_dict(fit) for name, fit in fits.items()}
    notes = tuple(dict.fromkeys(note for fit in fits.values() for note in fit.notes))
    verdict = combine_verdicts([fit.verdict for fit in fits.values()])
    confounds = merge_confounds(confound for fit in fits.values() for confound in fit.confounds)
    definitions = (LAW,) if any(fit.law for fit in fits.values()) else ()
    n = sum(fit.n for fit in fits.values())
    finding = Finding(join_clauses(clauses), numbers, n, notes, verdict, definitions)
    units = describe_units(group_by_level(runs, over).values(), statistic)
    return withhold_verdict(finding, confounds, not question.allow_confounds, units=units)


def _fit(runs: Sequence[RunCurves], over: str, statistic: MetricStatistic) -> _LawFit:
    levels = group_by_level(runs, over)
    name, noun = short_setting_name(over), setting_noun(over)
    if not is_numeric(levels) or any(level <= 0 for level in levels):
        return _LawFit(f"there is no law: not all values of the {noun} are numbers above 0")
    balanced = balance_groups(levels, statistic.compute)
    sizes, seeds = largest_complete_table({level: {seed for _, seed in balanced.rows[level]} for level in levels})
    notes = tuple(balanced.notes())
    if len(sizes) < MIN_SIZES:
        tried = pluralise(len(sizes), "value")
        return _LawFit(
            f"there is no law yet: {tried} of the {noun} with the same seeds, {MIN_SIZES} are needed", notes=notes
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


def _format_fit(fit: _LawFit, over: str, statistic: MetricStatistic, is_named: bool) -> str:
    name, along = setting_noun(over), setting_with_article(over)
    if fit.law is None:
        return fit.reason
    law = fit.law
    [scale], [exponent] = law.scales.values(), law.exponents.values()
    low, high = (format_number(end) for end in fit.sizes)
    seeds = pluralise(law.n_seeds, "seed") + ("" if law.n_seeds > 1 else ", so no intervals")
    quality = f"R² = {format_share(law.r_squared)} over {law.n_points} sizes from {low} to {high}, {seeds}"
    values = f"{format_number(law.floor.value)} + {format_number(scale.value)}·x^−{format_number(exponent.value)}"
    formula = f"{values}, x = {name}; exponent {exponent}, floor {law.floor}"
    subject = str(statistic) if is_named else capitalise(str(statistic))
    we = "we" if is_named else "We"
    if fit.verdict == "cannot tell" and fit.predicted is None:
        unknown = f"the exponent is uncertain by more than a factor of {MAX_EXPONENT_RATIO}; add seeds or sizes"
        claim = f"{we} cannot tell which power law {statistic} follows in {along}"
        return f"{claim}: {unknown}. The closest is {formula} ({quality})"
    if fit.predicted is None:
        return f"{subject} does not follow a power law in {along} (closest fit: {quality})"
    quality += f", largest residual {format_percent(fit.largest_residual, 1)}"
    holds = f"{subject} follows a power law in {along}"
    if fit.verdict != "yes":
        holds = f"{we} cannot tell whether {statistic} follows a power law in {along}: one fits but may not extrapolate"
    off = f"{format_percent(abs(fit.held_out_error), 1)} {'above' if fit.held_out_error > 0 else 'below'}"
    return (
        f"{holds}: {formula} ({quality}). Fitted without the largest value, {high}, it predicts "
        f"{fit.predicted.format(4)} there, {off} the measured {format_number(fit.measured, 4)}"
    )
