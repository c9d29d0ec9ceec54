"""Rows of the table of best values: one statistic each, over all configs.

Times of runs that never exceeded chance are left out, and the best value is marked only among configs that predict the
same tokens. `summary_tables` arranges the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import TypeAlias

from seedbed.format import format_number
from seedbed.report.tables import format_accuracy, format_mean_std, format_step, format_steps, spread_format
from seedbed.stats.chance import is_per_token
from seedbed.stats.comparison import SeedSummary, summarise_seeds
from seedbed.stats.metric_registry import (
    LOSS_TRANSFORMS,
    QUANTITIES,
    Direction,
    MetricName,
    metric_direction,
    metric_label,
    metric_sort_key,
    metric_symbol,
)
from seedbed.stats.run_statistics import find_statistic
from seedbed.stats.summary import TABLE_THRESHOLD, TABLE_THRESHOLD_NAME, ConfigSummary
from seedbed.stats.survival import EventTime, median_time

Summaries: TypeAlias = Sequence[ConfigSummary]
_THRESHOLD_LEGEND = (
    f"{TABLE_THRESHOLD_NAME}: first step with an accuracy of at least {TABLE_THRESHOLD}, median over seeds by Kaplan "
    "and Meier, with its 95 % interval from six runs on; 7/8: one of eight runs never got there"
)


@dataclass(frozen=True)
class StatisticRow:
    """One statistic over all configs: a row if configs are columns, else a column."""

    label: str
    legend: str
    spreads: tuple[SeedSummary | None, ...]
    format_spread: Callable[[SeedSummary], str]
    direction: Direction | None = None
    units: tuple[Hashable, ...] = ()  # of each config; only configs with equal ones are ranked
    texts: tuple[str, ...] = ()  # the cells, if they are not means
    unfinished: frozenset[int] = frozenset()  # configs without a complete run, which are not ranked
    n_runs: tuple[int, ...] = ()  # of each config; a mean of fewer values shows how many: 7/8

    def cells(self) -> list[str]:
        return list(self.texts) or [self._format_cell(config) for config in range(len(self.spreads))]

    def _format_cell(self, config: int) -> str:
        spread = self.spreads[config]
        if not spread:
            return "–"
        is_partial = self.n_runs and 0 < spread.n < self.n_runs[config]
        return self.format_spread(spread) + (f" ({spread.n}/{self.n_runs[config]})" if is_partial else "")

    def best_configs(self) -> list[int]:
        """The config with the best mean among those of each unit, unless the second best looks the same."""
        units = self.units or (None,) * len(self.spreads)  # without units, all are ranked
        candidates = (self._best_of([i for i, unit in enumerate(units) if unit == own]) for own in set(units))
        return [config for config in candidates if config is not None]

    def _best_of(self, configs: Sequence[int]) -> int | None:
        spreads = [(self.spreads[config], config) for config in configs if config not in self.unfinished]
        means = [(spread.mean, config) for spread, config in spreads if spread and not isnan(spread.mean)]
        if self.direction is None or len(means) < 2:
            return None
        first, second = sorted(means, reverse=self.direction == "max")[:2]
        texts = {self.format_spread(summarise_seeds({0: mean})) for mean, _ in (first, second)}
        return first[1] if len(texts) == 2 else None


def metric_names(summaries: Summaries) -> tuple[list[str], list[str]]:
    """Metrics that have a best value: those over all samples, and those of a group."""
    names = {name for summary in summaries for name in summary.metrics if metric_direction(name)}
    grouped = [name for name in sorted(names, key=metric_sort_key) if MetricName.parse(name).group]
    return sorted(names.difference(grouped), key=metric_sort_key), grouped


def value_rows(summaries: Summaries, names: Sequence[str]) -> list[StatisticRow]:
    return [_value_row(summaries, name) for name in names]


def _value_row(summaries: Summaries, name: str) -> StatisticRow:
    entry = QUANTITIES[MetricName.parse(name).quantity]
    which = "smallest" if entry.direction == "min" else "largest"
    legend = f"{entry.symbol}: {metric_label(entry.name)} ({entry.unit}), {which} recorded"
    metrics = [summary.metrics.get(name) for summary in summaries]
    spreads = tuple(metric.value if metric else None for metric in metrics)
    # What the values are counted in: the tokens that are predicted, or None where these do not matter.
    units = tuple(one.token_unit if is_per_token(entry.name, one.chance) else None for one in summaries)
    unfinished = frozenset(index for index, summary in enumerate(summaries) if summary.so_far is not None)
    return StatisticRow(
        metric_symbol(name), legend, spreads, spread_format(name), entry.direction, units, unfinished=unfinished
    )


def at_best_rows(summaries: Summaries) -> list[StatisticRow]:
    """The training value at the step where validation is best."""
    quantities = [name for name in QUANTITIES if any(name in summary.at_best for summary in summaries)]
    legend = "PPL_train at best: training perplexity at the step where the validation perplexity is best"
    spreads = {name: tuple(summary.at_best.get(name) for summary in summaries) for name in quantities}
    labels = {name: f"{metric_symbol(f'train/{name}')} at best" for name in quantities}
    return [StatisticRow(labels[name], legend, by_config, format_mean_std) for name, by_config in spreads.items()]


def chance_rows(summaries: Summaries) -> list[StatisticRow]:
    """Loss and accuracy of a model that ignores its inputs, for the quantities that are recorded."""
    recorded = {MetricName.parse(name).quantity for summary in summaries for name in summary.metrics}
    levels = [summary.chance for summary in summaries]
    losses = tuple(format_number(level.loss) if level and level.loss is not None else "–" for level in levels)
    accuracies = tuple(f"{level.accuracy:.3f}" if level else "–" for level in levels)
    rows = [
        (
            "loss",
            "L at chance",
            "loss of guessing uniformly: ln p, or ln p / 2 where a certain EOS is scored too",
            losses,
        ),
        ("accuracy", "A at chance", "accuracy of always giving the most frequent answer", accuracies),
    ]
    return [
        StatisticRow(label, f"{label}: {meaning}", (), format_accuracy, texts=texts)
        for quantity, label, meaning, texts in rows
        if quantity in recorded and set(texts) != {"–"}
    ]


def step_rows(summaries: Summaries, names: Sequence[str]) -> list[StatisticRow]:
    """t_f of each metric; that of a function of the loss, such as perplexity, is left out where it repeats the loss."""
    rows = {name: tuple(_learned_t_f(summary, name) for summary in summaries) for name in names}
    kept = [name for name in names if rows[name] != rows.get(_loss_behind(name))]
    n_runs = tuple(summary.n_included for summary in summaries)
    return [
        StatisticRow(f"t_f({metric_symbol(name)})", _legend("t_f"), rows[name], format_steps, n_runs=n_runs)
        for name in kept
    ]


def _loss_behind(name: str) -> str:
    """The loss that a metric is a function of; empty if it is not one."""
    parts = MetricName.parse(name)
    if parts.quantity == "running_perplexity":
        return f"{parts.split}/running_loss"
    return f"{parts.split}/loss{parts.group}" if parts.quantity in LOSS_TRANSFORMS else ""


def _learned_t_f(summary: ConfigSummary, name: str) -> SeedSummary | None:
    metric = summary.metrics.get(name)
    if metric is None or metric.t_f is None:
        return None
    return _without_seeds(metric.t_f, _seeds_at_chance(summary, name))


def _seeds_at_chance(summary: ConfigSummary, name: str) -> tuple[int, ...]:
    """The seeds whose accuracy in the split of this metric never exceeded chance."""
    parts = MetricName.parse(name)
    return summary.at_chance.get(f"{parts.split}/accuracy{parts.group}", ())


def _without_seeds(spread: SeedSummary, seeds: Sequence[int]) -> SeedSummary:
    return summarise_seeds({seed: value for seed, value in spread.values.items() if seed not in seeds})


def delta_rows(summaries: Summaries) -> list[StatisticRow]:
    quantities = [name for name in QUANTITIES if any(name in summary.delta_t for summary in summaries)]
    return [
        StatisticRow(
            f"Δt({metric_symbol(name)})",
            _legend("delta_t"),
            tuple(_learned_delta_t(summary, name) for summary in summaries),
            format_steps,
            n_runs=tuple(summary.n_included for summary in summaries),
        )
        for name in quantities
    ]


def _learned_delta_t(summary: ConfigSummary, quantity: str) -> SeedSummary | None:
    if quantity not in summary.delta_t:
        return None
    seeds = {seed for split in ("train", "val") for seed in _seeds_at_chance(summary, f"{split}/{quantity}")}
    return _without_seeds(summary.delta_t[quantity], sorted(seeds))


def threshold_rows(summaries: Summaries, names: Sequence[str]) -> list[StatisticRow]:
    """The median first step with an accuracy of 0.9, for accuracies that reach it in some run."""
    rows = []
    for name in names:
        times = [list(summary.threshold_times.get(name, {}).values()) for summary in summaries]
        if any(time.reached for by_seed in times for time in by_seed):
            texts = tuple(map(_format_median, times))
            label = f"{TABLE_THRESHOLD_NAME}({metric_symbol(name)})"
            rows.append(StatisticRow(label, _THRESHOLD_LEGEND, (), format_steps, texts=texts))
    return rows


def _format_median(times: Sequence[EventTime]) -> str:
    """`1150 [900, 2100] (7/8)`; without an interval for fewer than six runs."""
    if not times:
        return "–"
    median = median_time(times)
    last = max(time.step for time in times)
    text = f"> {format_step(last)}" if median.median == inf else format_step(median.median)
    bounds = [format_step(bound) if isfinite(bound) else "∞" for bound in (median.low, median.high)]
    text += f" [{', '.join(bounds)}]" if median.low > 0 or isfinite(median.high) else ""
    return text + (f" ({median.n_reached}/{median.n})" if median.n_reached < median.n else "")


def _legend(statistic: str) -> str:
    return find_statistic(statistic).legend
