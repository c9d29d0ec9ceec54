"""What the Compare view's address asks for: groups of runs by name, what is compared of them, and what can be chosen.

    /compare?a=arithmetic/sanity model.kind=gpt&b=arithmetic/sanity model.kind=lstm&metric=val/loss&value=best
    /compare?a=arithmetic/sanity&by=model.kind

A group is a stored study, a study with words after it, or a run's id; `by` splits one study into the values of a dial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from seedbed.errors import StudyError, UsageError
from seedbed.records import StoredRun
from seedbed.report.group_comparison import GroupComparison, compare_named_groups
from seedbed.report.overview import format_config
from seedbed.report.study_answers import load_groups, parse_subject
from seedbed.report.study_runs import run_configs
from seedbed.settings import Value
from seedbed.stats.answers.comparison_text import MetricStatistic
from seedbed.stats.curve_statistics import metric_direction
from seedbed.stats.metric_registry import metric_sort_key
from seedbed.stats.run_statistics import StatisticName
from seedbed.stats.summary import RunCurves
from seedbed.store.store import Store
from seedbed.study.overrides import matches_overrides, parse_overrides
from seedbed.web.store_cache import StoreCache
from seedbed.web.study_form import format_override_value

GROUP_KEYS: Final = "abcdefghijkl"  # one a group
MAX_LISTED_CONFIGS: Final = 200  # that are listed to choose from
MAX_COMPARED_RUNS: Final = 2_000  # in all groups together
N_RUNS_FOR_METRIC_NAMES: Final = 20  # runs whose readings tell what can be compared


@dataclass(frozen=True)
class CompareQuery:
    """One address of the view."""

    groups: tuple[str, ...]
    by: str
    metric: str
    value: str

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> CompareQuery:
        groups = tuple(query[letter].strip() for letter in GROUP_KEYS if query.get(letter, "").strip())
        return cls(groups, query.get("by", ""), query.get("metric", ""), query.get("value", "best"))


@dataclass(frozen=True)
class CompareGroups:
    """The groups of an address with their runs, and the arguments of `seedbed compare` that name them."""

    arguments: tuple[str, ...]
    groups: Mapping[str, Sequence[RunCurves]]


def compute_comparison(lab: StoreCache, asked: CompareQuery) -> GroupComparison:
    """The comparison that an address asks for; another reading of the same groups reads nothing again."""
    if not asked.groups:
        raise UsageError("nothing is chosen yet: choose two groups, or a study and a dial to split it by")
    found = lab.get_or_compute(("groups", asked.groups, asked.by), lambda store: _gather_compare_groups(store, asked))
    return lab.get_or_derive(("compared", asked), found, lambda: _compare_gathered(found, asked))


def _gather_compare_groups(store: Store, asked: CompareQuery) -> CompareGroups:
    names = _command_arguments(asked, {study.name for study in store.studies()})
    groups = load_groups(store, names)
    _check_size(groups)
    return CompareGroups(tuple(names), groups)


def _compare_gathered(found: CompareGroups, asked: CompareQuery) -> GroupComparison:
    return compare_named_groups(found.groups, choose_subject(asked, found.groups), found.arguments)


def choose_subject(asked: CompareQuery, groups: Mapping[str, Sequence[RunCurves]]) -> MetricStatistic:
    """What is asked for, or the first reading that these runs have and that is better one way."""
    known = list_metrics([run for runs in groups.values() for run in runs])
    return parse_subject(asked.metric or next(iter(known), "val/accuracy"), asked.value)


def list_metrics(runs: Sequence[RunCurves]) -> list[str]:
    """The readings of these runs: held-out accuracy and loss first, then as tables have them."""
    names = {name for run in runs for name in run.curves}
    first = ("val/accuracy", "val/loss", "val/perplexity")
    ranked = sorted(names, key=lambda name: (metric_direction(name) is None, metric_sort_key(name)))
    return [*(name for name in first if name in names), *(name for name in ranked if name not in first)]


def _command_arguments(asked: CompareQuery, studies: set[str]) -> list[str]:
    """The same as arguments of `seedbed compare`: a study, the words of each of its groups, the next study."""
    if asked.by:
        if len(asked.groups) > 1:
            raise UsageError(f"by={asked.by} splits one study, and {len(asked.groups)} groups are named; take one out")
        return [asked.groups[0], asked.by]
    found: list[str] = []
    last: str | None = None
    for text in asked.groups:
        study = max((name for name in studies if text == name or text.startswith(f"{name} ")), key=len, default=None)
        if study is None:
            found.append(text)
        else:
            words = text.removeprefix(study).strip()
            found += [] if study == last and words else [study]
            found += [words] if words else []
            last = study if words else None
    return found


def _check_size(groups: Mapping[str, Sequence[RunCurves]]) -> None:
    if len(groups) > len(GROUP_KEYS):
        raise UsageError(f"these are {len(groups)} groups; at most {len(GROUP_KEYS)} are compared at a time")
    n = sum(map(len, groups.values()))
    if n > MAX_COMPARED_RUNS:
        raise UsageError(
            f"these are {n:,} runs; the page compares {MAX_COMPARED_RUNS:,} at most, `seedbed compare` any number"
        )


# ---- what can be chosen ----


def list_choices(store: Store, study: str) -> dict[str, Any]:
    """A study's dials that vary, its points as words that name them, and its readings."""
    runs = store.runs(study)
    points: dict[str, tuple[dict[str, Value], list[StoredRun]]] = {}
    for run, point in zip(runs, run_configs(store, study, runs), strict=True):
        words = _format_filters(point)
        points.setdefault(words, (point, []))[1].append(run)
    axes = list(dict.fromkeys(name for point, _ in points.values() for name in point))
    listed = [
        {"words": words, "label": format_config(point) or "all runs", "runs": len(some)}
        for words, (point, some) in points.items()
        if words and _filters_select_exactly(words, len(words.split()) == len(axes), some, runs)
    ]
    curves = store.curves([run.id for run in runs[:N_RUNS_FOR_METRIC_NAMES]])
    known = [RunCurves(run, {}, curves.get(run.id, {})) for run in runs[:N_RUNS_FOR_METRIC_NAMES]]
    return {
        "study": study, "runs": len(runs), "axes": axes, "points": listed[:MAX_LISTED_CONFIGS], "n_points": len(points),
        "metrics": list_metrics(known), "values": get_args(StatisticName),
    }  # fmt: skip


def _format_filters(point: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={format_override_value(value)}" for name, value in point.items() if value is not None)


def _filters_select_exactly(words: str, all_axes: bool, some: Sequence[StoredRun], runs: Sequence[StoredRun]) -> bool:
    """Whether these words name these runs and no others: an unset dial or a text with blanks cannot be told so.

    Words that name every axis can only name one point; so one of its runs tells.
    """
    try:
        wanted = parse_overrides(words.split())
    except StudyError:
        return False
    looked_at, expected = (some[:1], 1) if all_axes else (runs, len(some))
    return sum(matches_overrides(run.settings, run.seed, wanted) for run in looked_at) == expected
