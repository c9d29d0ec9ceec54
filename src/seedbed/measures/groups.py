"""Which runs are compared with which: groups by a dial, settings inside them, and one number a seed.

A group is every run with one value of a dial. Where other dials vary inside the groups, each of their combinations is a
*setting*; a group's number for a seed is the mean over the settings, so that seeds stay the units that are counted. Only
settings that every group has with the same seeds enter; the rest is left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

import numpy as np

from seedbed.measures.summary import RunCurves
from seedbed.measures.values import replayed
from seedbed.measures.words import listed, plural
from seedbed.settings import Value
from seedbed.shown import Filter

ALPHAS = tuple(tenth / 10 for tenth in range(1, 11))
Setting: TypeAlias = tuple[Hashable, ...]
Groups: TypeAlias = Mapping[Value, Sequence[RunCurves]]


def dial_value(run: RunCurves, name: str) -> Value:
    """A run's value of a dial, of `parameters` (without tables) or of `alpha`; None where it has none."""
    if name == "parameters":
        return run.run.parameters.non_embedding
    value = run.point["alpha"] if name == "alpha" and "alpha" in run.point else run.run.settings.dials().get(name)
    return tuple(value) if isinstance(value, list) else value


def chosen(runs: Iterable[RunCurves], only: Filter) -> list[RunCurves]:
    """The runs that have, for each dial, the value or one of the values asked for."""
    return [run for run in runs if all(_passes(dial_value(run, name), wanted) for name, wanted in only.items())]


def _passes(found: Value, wanted: Value) -> bool:
    return bool(found == wanted or found == (wanted,) or (isinstance(wanted, tuple) and found in wanted))


def with_alphas(runs: Iterable[RunCurves], alphas: Sequence[float] = ALPHAS) -> list[RunCurves]:
    """Every run once for each α, as if stopped at αT."""
    return [replayed(run, alpha) for run in runs for alpha in alphas]


def group_by(runs: Iterable[RunCurves], name: str) -> dict[Value, list[RunCurves]]:
    """The runs by their value of a dial, numbers in order; runs without that dial stay out."""
    groups: dict[Value, list[RunCurves]] = {}
    for run in runs:
        if (value := dial_value(run, name)) is not None:
            groups.setdefault(value, []).append(run)
    return {value: groups[value] for value in sorted(groups)} if is_numeric(groups) else groups


def is_numeric(values: Iterable[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def inner_dials(groups: Iterable[Sequence[RunCurves]]) -> list[str]:
    """The dials that differ inside at least one group."""
    varied: dict[str, None] = {}
    for runs in groups:
        seen: dict[str, set[Value]] = {}
        for run in runs:
            for name, value in run.run.settings.dials().items():
                seen.setdefault(name, set()).add(value)
        varied |= dict.fromkeys(name for name, values in seen.items() if len(values) > 1)
    return list(varied)


def setting_of(run: RunCurves, dials: Sequence[str]) -> Setting:
    return tuple(dial_value(run, name) for name in dials)


@dataclass(frozen=True)
class Balanced:
    """The same settings and seeds for every group: `rows[group][setting, seed]` is one number."""

    rows: Mapping[Value, Mapping[tuple[Setting, int], float]]
    settings: tuple[Setting, ...]
    n_settings: int  # tried, those left out included

    def by_seed(self, group: Value) -> dict[int, float]:
        """The group's number for each seed: the mean over the settings."""
        values: dict[int, list[float]] = {}
        for (_, seed), value in self.rows[group].items():
            values.setdefault(seed, []).append(value)
        return {seed: float(np.mean(numbers)) for seed, numbers in values.items()}

    @property
    def n(self) -> int:
        """Runs that enter."""
        return sum(len(rows) for rows in self.rows.values())

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for rows in self.rows.values() for _, seed in rows}))


def balance(groups: Groups, number: Callable[[RunCurves], float]) -> Balanced:
    """The settings that all groups have with the most seeds in common; without common seeds, each group's own."""
    dials = inner_dials(groups.values())
    found: dict[Value, dict[Setting, dict[int, float]]] = {group: {} for group in groups}
    tried: dict[Setting, None] = {}
    for group, runs in groups.items():
        for run in runs:
            setting = setting_of(run, dials)
            tried[setting] = None
            if run.counts and isfinite(value := number(run)):
                found[group].setdefault(setting, {})[run.run.seed] = value
    shared = [setting for setting in tried if all(setting in found[group] for group in groups)]
    common = {setting: set.intersection(*(set(found[group][setting]) for group in groups)) for setting in shared}
    wanted = max(common.values(), key=len, default=set())
    kept = [setting for setting in shared if common[setting] >= wanted]
    if len(wanted) < 2 and len(kept) == 1:  # one setting and no pairs: every number counts for itself
        wanted = set.union(*(set(found[group][kept[0]]) for group in groups))
    rows = {
        group: {
            (setting, seed): value
            for setting in kept
            for seed, value in sorted(found[group][setting].items())
            if len(kept) == 1 or seed in wanted
        }
        for group in groups
    }
    return Balanced(rows, tuple(kept), len(tried))


def left_out(runs: Sequence[RunCurves]) -> str:
    """What the reader has to know of runs that are not in the numbers, or not done; empty when all finished."""
    status = Counter(run.run.status for run in {run.run.id: run for run in runs}.values())
    total = sum(status.values())
    said = [f"{status[name]} of {total} runs {name}" for name in ("diverged", "failed") if status[name]]
    if status["planned"]:
        said.append(f"{status['planned']} of {total} runs not started")
    going = status["running"] + status["stopped"]
    notes = [f"left out: {listed(said)}"] if said else []
    if going:
        notes.append(f"{plural(going, 'run')} of {total} not finished: {'its' if going == 1 else 'their'} records so far count")
    return "; ".join(notes)
