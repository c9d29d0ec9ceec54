"""Which runs are compared with which: groups by a setting, balanced over the other settings, one value per seed.

A group is all runs with one value of a setting. If other settings vary inside the groups, a group's value for a seed is
the mean over their *combinations*, so that seeds remain the statistical units. Only combinations that every group has
with the same seeds enter, and only complete runs; the others are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias, TypeVar

import numpy as np

from seedbed.format import format_setting, join_words, pluralise
from seedbed.records import LOST_STATUSES
from seedbed.settings import Settings, Value, matches_value
from seedbed.specs import RunFilter
from seedbed.stats.run_statistics import replay_at_alpha
from seedbed.stats.summary import RunCurves

REPLAY_ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
SettingValues: TypeAlias = tuple[Hashable, ...]
RunGroups: TypeAlias = Mapping[Value, Sequence[RunCurves]]
Key = TypeVar("Key", bound=Hashable)


# ---- filtering and grouping ----


def setting_value(run: RunCurves, name: str) -> Value:
    """A run's value of a setting, `seed`, `parameters` (non-embedding) or `alpha`; None if it has none."""
    if name == "seed":
        return run.run.seed
    if name == "parameters":
        return run.run.parameters.non_embedding
    return run.run.settings.get(name) if "." in name else run.config.get(name)


def filter_runs(runs: Iterable[RunCurves], only: RunFilter) -> list[RunCurves]:
    """The runs that have, for each setting, the requested value or one of several."""
    return [
        run for run in runs if all(matches_value(setting_value(run, name), wanted) for name, wanted in only.items())
    ]


def replay_at_alphas(runs: Iterable[RunCurves], alphas: Sequence[float] = ()) -> list[RunCurves]:
    """Every run once per α, as if stopped at αT; without any α given, at each tenth."""
    return [replay_at_alpha(run, alpha) for run in runs for alpha in alphas or REPLAY_ALPHAS]


def group_by_level(runs: Iterable[RunCurves], over: str) -> dict[Value, list[RunCurves]]:
    """The runs by their value of a setting; for `alpha`, each run replayed at every α."""
    return group_by_setting(replay_at_alphas(runs) if over == "alpha" else runs, over)


def group_by_setting(runs: Iterable[RunCurves], name: str) -> dict[Value, list[RunCurves]]:
    """The runs by their value of a setting, numbers in ascending order; runs without that setting are left out."""
    groups: dict[Value, list[RunCurves]] = {}
    for run in runs:
        if (value := setting_value(run, name)) is not None:
            groups.setdefault(value, []).append(run)
    return {value: groups[value] for value in sorted(groups)} if is_numeric(groups) else groups


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_numeric(values: Iterable[Value]) -> bool:
    return all(map(is_number, values))


def varying_settings(groups: Iterable[Sequence[RunCurves]]) -> list[str]:
    """The fewest settings, in their order, that distinguish the configs inside the groups.

    An LSTM and a GPT differ in their activation too, but their kind already distinguishes them.
    """
    kept: list[str] = []
    for runs in groups:
        # Runs with equal settings have a `dataset` in their config if their text was edited in between. The runs of a
        # config mostly share their settings, whose values are then read once.
        by_identity = {(id(run.run.settings), run.config.get("dataset")): run.run.settings for run in runs}
        configs = [settings.flat() | {"dataset": dataset} for (_, dataset), settings in by_identity.items()]
        distinct = {tuple(config.get(name) for name in kept) for config in configs}
        for name in dict.fromkeys(name for config in configs for name in config):
            if len({config.get(name) for config in configs}) == 1:
                continue
            finer = {tuple(config.get(other) for other in (*kept, name)) for config in configs}
            if len(finer) > len(distinct):
                kept, distinct = [*kept, name], finer
    return kept


def group_by_description(runs: Iterable[RunCurves], settings: Sequence[str]) -> dict[str, list[RunCurves]]:
    """The runs by their values of some settings, with a name per group; one unnamed group if there are no settings."""
    groups: dict[str, list[RunCurves]] = {}
    for run in runs:
        values = {name: setting_value(run, name) for name in settings}
        parts = [format_setting(name, value) for name, value in values.items() if value is not None]
        groups.setdefault(", ".join(parts), []).append(run)
    return groups


# ---- balancing: the same settings and seeds for every group ----


@dataclass(frozen=True)
class BalancedTable:
    """`rows[group][combination, seed]` is one value; every group has the same combinations of the other settings."""

    rows: Mapping[Value, Mapping[tuple[SettingValues, int], float]]
    combinations: tuple[SettingValues, ...]
    n_combinations: int  # including those left out
    n_non_finite: int  # complete runs without a finite value
    configs: Mapping[Value, Mapping[SettingValues, Settings]]  # of the runs in the rows

    def mean_by_seed(self, group: Value) -> dict[int, float]:
        """The group's value for each seed: the mean over the combinations."""
        values: dict[int, list[float]] = {}
        for (_, seed), value in self.rows[group].items():
            values.setdefault(seed, []).append(value)
        return {seed: float(np.mean(by_combination)) for seed, by_combination in values.items()}

    @property
    def n_runs(self) -> int:
        """Number of runs in the table."""
        return sum(len(rows) for rows in self.rows.values())

    def averaging_note(self) -> list[str]:
        """That values are means over the other settings, if they are."""
        n = len(self.combinations)
        return [f"each seed's value is its mean over {n} combinations of the other settings"] if n > 1 else []

    def notes(self) -> list[str]:
        """What was left out, for the reader."""
        notes = []
        if n_missing := self.n_combinations - len(self.combinations):
            total = f"{self.n_combinations} combinations of settings"
            notes.append(f"{n_missing} of {total} left out: not available with the same seeds in every group")
        if self.n_non_finite:
            notes.append(f"{pluralise(self.n_non_finite, 'run')} without a finite value")
        return notes


def balance_groups(
    groups: RunGroups, statistic: Callable[[RunCurves], float] | Mapping[Value, Callable[[RunCurves], float]]
) -> BalancedTable:
    """The combinations and seeds that all groups have; with a single combination, every seed of each group.

    Groups of the same runs may have a statistic each, to compare two metrics of a run.
    """
    statistics = statistic if isinstance(statistic, Mapping) else dict.fromkeys(groups, statistic)
    names = varying_settings(groups.values())
    configs: dict[Value, dict[SettingValues, Settings]] = {group: {} for group in groups}
    values: dict[Value, dict[SettingValues, dict[int, float]]] = {group: {} for group in groups}
    combinations: dict[SettingValues, None] = {}
    n_non_finite = 0
    for group, runs in groups.items():
        for run in runs:
            combination = tuple(setting_value(run, name) for name in names)
            combinations[combination] = None
            if run.is_complete and isfinite(value := statistics[group](run)):
                configs[group].setdefault(combination, run.run.settings)
                values[group].setdefault(combination, {})[run.run.seed] = value
            n_non_finite += run.is_complete and not isfinite(value)
    seeds = {one: set.intersection(*(set(values[group].get(one, ())) for group in groups)) for one in combinations}
    if len(combinations) == 1:  # nothing is averaged, so seeds need not match
        seeds = {one: {seed for group in groups for seed in values[group].get(one, {})} for one in combinations}
    kept, kept_seeds = largest_complete_table(seeds)
    rows = {
        group: {
            (combination, seed): values[group][combination][seed]
            for combination in kept
            for seed in sorted(kept_seeds)
            if seed in values[group].get(combination, {})
        }
        for group in groups
    }
    used = {group: {one: by_name[one] for one in kept if one in by_name} for group, by_name in configs.items()}
    return BalancedTable(rows, tuple(kept), len(combinations), n_non_finite, used)


def largest_complete_table(seeds: Mapping[Key, set[int]]) -> tuple[list[Key], set[int]]:
    """The keys and seeds of the largest complete table: each of these keys has each of these seeds."""
    tables = []
    for required in [*seeds.values(), set.intersection(*seeds.values()) if seeds else set()]:
        kept = [key for key, available in seeds.items() if required and available >= required]
        tables.append((kept, required))
    return max(tables, key=lambda table: (len(table[0]) * len(table[1]), len(table[0])), default=([], set()))


def describe_excluded_runs(runs: Sequence[RunCurves]) -> list[str]:
    """Notes on the runs that are left out of the statistics, and why; empty if all are complete."""
    status = Counter(run.run.status for run in runs)
    counts = [f"{status[name]} of {len(runs)} runs {name}" for name in LOST_STATUSES if status[name]]
    if status["planned"]:
        counts.append(f"{status['planned']} of {len(runs)} runs not started")
    notes = [f"left out: {join_words(counts)}"] if counts else []
    unfinished = [run for run in runs if run.run.status in ("running", "stopped") and not run.is_complete]
    return [*notes, describe_unfinished_runs(unfinished, len(runs))] if unfinished else notes


def describe_unfinished_runs(unfinished: Sequence[RunCurves], n_runs: int) -> str:
    """`2 of 8 runs are unfinished (stopped at step 200 of 3,001) and left out`."""
    verb, progress = "is" if len(unfinished) == 1 else "are", describe_progress(unfinished)
    return f"{len(unfinished)} of {pluralise(n_runs, 'run')} {verb} unfinished ({progress}) and left out"


def describe_progress(runs: Sequence[RunCurves]) -> str:
    """How far unfinished runs have been trained: `stopped at step 200 of 3,001`, `at steps 200 to 400 of 3,001`."""
    done, planned = {run.run.step for run in runs}, {run.planned_steps for run in runs}
    steps = f"step {min(done):,}" if len(done) == 1 else f"steps {min(done):,} to {max(done):,}"
    [total] = planned if len(planned) == 1 else [None]
    verb = "stopped " if all(run.run.status == "stopped" for run in runs) else ""
    return f"{verb}at {steps}" + (f" of {total:,}" if total else "")
