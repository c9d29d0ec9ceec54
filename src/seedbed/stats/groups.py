"""Which runs are compared with which: groups by a dial, settings inside them, and one number a seed.

A group is every run with one value of a dial. Where other dials vary inside the groups, each of their combinations is a
*setting*; a group's number for a seed is the mean over the settings, so that seeds stay the units that are counted.
Only settings that every group has with the same seeds enter; the rest is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias, TypeVar

import numpy as np

from seedbed.settings import Value, matches_value
from seedbed.specs import RunFilter
from seedbed.stats.format import format_setting, join_words, pluralise
from seedbed.stats.run_statistics import replay_at_alpha
from seedbed.stats.summary import RunCurves

REPLAY_ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
SettingValues: TypeAlias = tuple[Hashable, ...]
RunGroups: TypeAlias = Mapping[Value, Sequence[RunCurves]]
Key = TypeVar("Key", bound=Hashable)


# ---- choosing and grouping ----


def setting_value(run: RunCurves, name: str) -> Value:
    """A run's value of a setting, `seed`, `parameters` (non-embedding) or `alpha`; None where it has none."""
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


def replay_at_alphas(runs: Iterable[RunCurves], alphas: Sequence[float] = REPLAY_ALPHAS) -> list[RunCurves]:
    """Every run once for each α, as if stopped at αT."""
    return [replay_at_alpha(run, alpha) for run in runs for alpha in alphas]


def group_by_level(runs: Iterable[RunCurves], over: str) -> dict[Value, list[RunCurves]]:
    """The runs by their value of a dial; along `alpha`, each run at every α."""
    return group_by_setting(replay_at_alphas(runs) if over == "alpha" else runs, over)


def group_by_setting(runs: Iterable[RunCurves], name: str) -> dict[Value, list[RunCurves]]:
    """The runs by their value of a dial, numbers in order; runs without that dial stay out."""
    groups: dict[Value, list[RunCurves]] = {}
    for run in runs:
        if (value := setting_value(run, name)) is not None:
            groups.setdefault(value, []).append(run)
    return {value: groups[value] for value in sorted(groups)} if is_numeric(groups) else groups


def is_numeric(values: Iterable[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def varying_settings(groups: Iterable[Sequence[RunCurves]]) -> list[str]:
    """The fewest dials, in their order, that tell the points inside the groups apart.

    An LSTM and a GPT differ in their activation too, but their kind says it all.
    """
    kept: list[str] = []
    for runs in groups:
        dials = [run.run.settings.flat() for run in runs]
        told = {tuple(one.get(name) for name in kept) for one in dials}
        for name in dict.fromkeys(name for one in dials for name in one):
            finer = {tuple(one.get(other) for other in (*kept, name)) for one in dials}
            if len(finer) > len(told):
                kept, told = [*kept, name], finer
    return kept


def group_by_description(runs: Iterable[RunCurves], settings: Sequence[str]) -> dict[str, list[RunCurves]]:
    """The runs by their values of some dials, named in words; one group without a name where there are no dials."""
    groups: dict[str, list[RunCurves]] = {}
    for run in runs:
        values = {name: setting_value(run, name) for name in settings}
        words = [format_setting(name, value) for name, value in values.items() if value is not None]
        groups.setdefault(", ".join(words), []).append(run)
    return groups


# ---- the same settings and seeds for every group ----


@dataclass(frozen=True)
class BalancedTable:
    """`rows[group][setting, seed]` is one number; every group has the same settings."""

    rows: Mapping[Value, Mapping[tuple[SettingValues, int], float]]
    combinations: tuple[SettingValues, ...]
    n_combinations: int  # tried, those left out included
    n_non_finite: int  # runs that count but have no finite number

    def mean_by_seed(self, group: Value) -> dict[int, float]:
        """The group's number for each seed: the mean over the settings."""
        values: dict[int, list[float]] = {}
        for (_, seed), value in self.rows[group].items():
            values.setdefault(seed, []).append(value)
        return {seed: float(np.mean(numbers)) for seed, numbers in values.items()}

    @property
    def n_runs(self) -> int:
        """Runs that enter."""
        return sum(len(rows) for rows in self.rows.values())

    def notes(self) -> list[str]:
        """What is not in the numbers."""
        missing = self.n_combinations - len(self.combinations)
        said = (
            [f"{missing} of {self.n_combinations} settings left out: not there with the same seeds"] if missing else []
        )
        return said + ([f"{pluralise(self.n_non_finite, 'run')} without a finite number"] if self.n_non_finite else [])


def balance_groups(groups: RunGroups, statistic: Callable[[RunCurves], float]) -> BalancedTable:
    """The settings and seeds that all groups have; with a single setting, every seed of each group."""
    dials = varying_settings(groups.values())
    found: dict[Value, dict[SettingValues, dict[int, float]]] = {group: {} for group in groups}
    tried: dict[SettingValues, None] = {}
    n_without = 0
    for group, runs in groups.items():
        for run in runs:
            setting = tuple(setting_value(run, name) for name in dials)
            tried[setting] = None
            if run.is_included and isfinite(value := statistic(run)):
                found[group].setdefault(setting, {})[run.run.seed] = value
            n_without += run.is_included and not isfinite(value)
    seeds = {setting: _common_seeds(found[group].get(setting, {}) for group in groups) for setting in tried}
    if len(tried) == 1:  # nothing is averaged, so nothing has to match
        seeds = {setting: {seed for group in groups for seed in found[group].get(setting, {})} for setting in tried}
    kept, wanted = largest_complete_table(seeds)
    rows = {
        group: {
            (setting, seed): found[group][setting][seed]
            for setting in kept
            for seed in sorted(wanted)
            if seed in found[group].get(setting, {})
        }
        for group in groups
    }
    return BalancedTable(rows, tuple(kept), len(tried), n_without)


def _common_seeds(values: Iterable[Mapping[int, float]]) -> set[int]:
    return set.intersection(*map(set, values))


def largest_complete_table(seeds: Mapping[Key, set[int]]) -> tuple[list[Key], set[int]]:
    """The keys and seeds that make the largest full table: every one of these keys has every one of these seeds."""
    tables = []
    for wanted in [*seeds.values(), set.intersection(*seeds.values()) if seeds else set()]:
        kept = [key for key, found in seeds.items() if wanted and found >= wanted]
        tables.append((kept, wanted))
    return max(tables, key=lambda table: (len(table[0]) * len(table[1]), len(table[0])), default=([], set()))


def describe_excluded_runs(runs: Sequence[RunCurves]) -> list[str]:
    """What the reader has to know of runs that are not in the numbers, or not done; nothing when all finished."""
    status = Counter(run.run.status for run in runs)
    counts = [f"{status[name]} of {len(runs)} runs {name}" for name in ("diverged", "failed") if status[name]]
    if status["planned"]:
        counts.append(f"{status['planned']} of {len(runs)} runs not started")
    going = status["running"] + status["stopped"]
    notes = [f"left out: {join_words(counts)}"] if counts else []
    return notes + ([f"{going} of {len(runs)} runs not finished, their records so far count"] if going else [])
