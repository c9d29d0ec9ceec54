"""The best config of a study, which others cannot be told from it, and how much each setting matters.

    describe_best(runs, MetricStatistic("val/accuracy", "best"))     # one or two sentences

The importance of a setting is the share of the variance over configs that its main effect explains (functional ANOVA,
Hutter et al. 2014), less what it would explain by chance (ε², Kelley 1935). Interactions and noise are the rest. Shares
of settings that vary together overlap. `optimum` tells which configs cannot be told from the best.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from seedbed.format import format_config, format_number, format_percent, join_words, setting_label
from seedbed.settings import Value
from seedbed.stats.decision import seeds_needed
from seedbed.stats.groups import is_numeric
from seedbed.stats.metric_registry import Direction
from seedbed.stats.optimum import find_optimum
from seedbed.stats.summary import RunCurves, group_by_config

if TYPE_CHECKING:
    from seedbed.stats.answers.finding import MetricStatistic

MIN_CONFIGS = 4  # fewer are all in view
MAX_LEVELS = 8  # a number with more distinct values, as in a random search, is divided into quarters
MIN_SHOWN_SHARE = 0.01


@dataclass(frozen=True)
class ConfigValues:
    """A config and its value for each seed."""

    config: Mapping[str, Value]
    values: Mapping[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.values.values())))

    def __str__(self) -> str:
        """`GPT, learning rate 0.01`."""
        return format_config(self.config)


def describe_best(runs: Sequence[RunCurves], subject: MetricStatistic) -> tuple[str, ...]:
    """The best config by a statistic of complete runs, and the importance of the settings; empty for few configs."""
    return describe_best_config(config_values(runs, subject), str(subject), subject.direction)


def config_values(runs: Sequence[RunCurves], subject: MetricStatistic) -> list[ConfigValues]:
    """A statistic of the complete runs of each config, by seed."""
    configs = []
    for members in group_by_config(run for run in runs if run.is_complete):
        values = {run.run.seed: subject.compute(run) for run in members}
        if finite := {seed: value for seed, value in values.items() if isfinite(value)}:
            configs.append(ConfigValues(members[0].config, finite))
    return configs


def describe_best_config(configs: Sequence[ConfigValues], name: str, direction: Direction | None) -> tuple[str, ...]:
    """The sentences of `describe_best` from the values of each config; `name` is that of the statistic."""
    usable = [config for config in configs if config.values and isfinite(config.mean)]
    if len(usable) < MIN_CONFIGS or direction is None:
        return ()
    ranked = sorted(usable, key=lambda config: config.mean, reverse=direction == "max")
    return tuple(filter(None, (_format_best(ranked, name, direction), _format_importance(usable, name))))


def _format_best(ranked: Sequence[ConfigValues], name: str, direction: Direction) -> str:
    best, second = ranked[:2]
    numbers = list(best.values.values())
    spread = f" ± {format_number(float(np.std(numbers)))}" if len(numbers) > 1 else ""
    text = f"The config with the best {name.removeprefix('best ')} is {best} ({format_number(best.mean)}{spread}, "
    text += f"n = {len(numbers)}); the next best is {second} ({format_number(second.mean)})"
    rivals = _rivals_of_best(ranked, direction)
    if rivals is None:
        return f"{text}, and a test needs {seeds_needed()} seeds that all configs share."
    if not rivals:
        return f"{text}, significantly worse, as are all others."
    return f"{text}; {len(rivals)} of {len(ranked) - 1} other configs cannot be told from the best."


def _rivals_of_best(ranked: Sequence[ConfigValues], direction: Direction) -> set[int] | None:
    """The other configs that may be as good as the first; None with too few common seeds to exclude any."""
    seeds = sorted(set.intersection(*(set(config.values) for config in ranked)))
    if len(seeds) < seeds_needed():
        return None
    optimum = find_optimum(np.array([[config.values[seed] for config in ranked] for seed in seeds]), direction)
    return set(optimum.confidence_set) - {0}


def _format_importance(configs: Sequence[ConfigValues], name: str) -> str:
    shares = setting_importance(configs)
    if len(shares) < 2:
        return ""
    shown = {setting: share for setting, share in shares.items() if share >= MIN_SHOWN_SHARE}
    if not shown:
        return f"No setting alone explains the variance of {name} over {len(configs)} configs (main effects)."
    parts = [f"{setting_label(setting)} explains {format_percent(share)}" for setting, share in shown.items()]
    overlap = "; shares overlap, since settings vary together" if sum(shares.values()) > 1 else ""
    rest = "" if overlap else "; the rest is interactions and noise"
    return f"Of the variance of {name} over {len(configs)} configs, {join_words(parts)} (main effects){rest}{overlap}."


def setting_importance(configs: Sequence[ConfigValues]) -> dict[str, float]:
    """The share of the variance over configs that each varied setting explains alone, largest first.

    >>> grid = [ConfigValues({"a": a, "b": b}, {0: 10.0 * a + b}) for a in (0, 1, 2) for b in (0, 1, 2)]
    >>> {name: round(share, 2) for name, share in setting_importance(grid).items()}
    {'a': 0.99, 'b': 0.0}
    """
    means = np.array([config.mean for config in configs])
    names = dict.fromkeys(name for config in configs for name in config.config)
    levels = {name: _levels([config.config.get(name) for config in configs]) for name in names}
    shares = {name: _explained_share(means, own) for name, own in levels.items() if len(set(own)) > 1}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _levels(values: Sequence[Value]) -> list[Hashable]:
    """The level of each config: its value, or the quarter of many numbers that it lies in."""
    keys = [tuple(value) if isinstance(value, list) else value for value in values]
    if not is_numeric(keys) or len(set(keys)) <= MAX_LEVELS:
        return keys
    return np.searchsorted(np.quantile(keys, (0.25, 0.5, 0.75)), keys).tolist()  # type: ignore[no-any-return]


def _explained_share(means: np.ndarray, levels: Sequence[Hashable]) -> float:
    """ε²: the share of the sum of squares between levels, less that expected of as many random levels; at least 0."""
    total = float(((means - means.mean()) ** 2).sum())
    groups = [means[[level == own for level in levels]] for own in dict.fromkeys(levels)]
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    n_free = len(means) - len(groups)
    if total <= 0 or n_free < 1:
        return 0.0
    return max(0.0, 1 - within / n_free * (len(means) - 1) / total)
