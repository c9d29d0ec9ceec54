"""The Compare page: paired differences between named groups of runs with intervals, curves, and all settings at once.

    /compare?a=arithmetic/sanity model.kind=gpt&b=arithmetic/sanity model.kind=lstm&metric=val/loss&value=best
    /compare?a=arithmetic/sanity&by=model.kind

A group is a stored study, a study followed by filters, or a run's id; `by` splits one study by the values of a setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from seedbed.errors import UsageError
from seedbed.format import format_config
from seedbed.records import StoredRun
from seedbed.report.group_comparison import GroupComparison, compare_named_groups
from seedbed.report.study_answers import choose_subject, common_metrics, load_groups
from seedbed.report.study_runs import run_configs
from seedbed.report.tables import to_json
from seedbed.settings import Value
from seedbed.stats.answers.defaults import list_metrics
from seedbed.stats.run_statistics import STATISTICS
from seedbed.stats.summary import RunCurves
from seedbed.store import Store
from seedbed.study.conditions import format_filter, parse_filters
from seedbed.web.responses import StoreCacheDep, figure_as_json, json_response, render_page
from seedbed.web.store_cache import StoreCache

GROUP_KEYS: Final = "abcdefghijkl"  # query parameter of each group
MAX_LISTED_CONFIGS: Final = 200
MAX_COMPARED_RUNS: Final = 2_000  # in all groups together
N_RUNS_FOR_METRIC_NAMES: Final = 20  # metric names are taken from this many runs

router = APIRouter()


@dataclass(frozen=True)
class CompareQuery:
    """The parsed query of the Compare page."""

    groups: tuple[str, ...]
    by: str
    metric: str
    value: str
    allow_confounds: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> CompareQuery:
        groups = tuple(query[letter].strip() for letter in GROUP_KEYS if query.get(letter, "").strip())
        allow = query.get("confounded", "") == "true"
        return cls(groups, query.get("by", ""), query.get("metric", ""), query.get("value", "best"), allow)


def _get_query(request: Request) -> CompareQuery:
    return CompareQuery.from_query(request.query_params)


CompareQueryDep = Annotated[CompareQuery, Depends(_get_query)]


def compute_comparison(cache: StoreCache, query: CompareQuery) -> GroupComparison:
    """The requested comparison; another metric of the same groups reuses the loaded runs."""
    if not query.groups:
        raise UsageError("nothing is chosen yet: choose two groups, or a study and a setting to split it by")

    def load(store: Store) -> tuple[list[str], dict[str, list[RunCurves]]]:
        arguments = _command_arguments(query, {study.name for study in store.studies()})
        groups = load_groups(store, arguments)
        _check_size(groups)
        return arguments, groups

    loaded = cache.get_or_compute(("groups", query.groups, query.by), load)
    arguments, groups = loaded

    def compare() -> GroupComparison:
        subject = choose_subject(groups, query.metric or None, query.value)
        return compare_named_groups(groups, subject, arguments, query.allow_confounds)

    return cache.get_or_derive(("compared", query), loaded, compare)


def _command_arguments(query: CompareQuery, studies: set[str]) -> list[str]:
    """The equivalent arguments of `seedbed compare`: a study, the filters of each of its groups, the next study."""
    if query.by:
        if len(query.groups) > 1:
            raise UsageError(f"by={query.by} splits one study, but {len(query.groups)} groups are given; keep one")
        return [query.groups[0], query.by]
    arguments: list[str] = []
    last: str | None = None
    for text in query.groups:
        study = max((name for name in studies if text == name or text.startswith(f"{name} ")), key=len, default=None)
        if study is None:
            arguments.append(text)
        else:
            filters = text.removeprefix(study).strip()
            arguments += [] if study == last and filters else [study]
            arguments += [filters] if filters else []
            last = study if filters else None
    return arguments


def _check_size(groups: Mapping[str, Sequence[RunCurves]]) -> None:
    if len(groups) > len(GROUP_KEYS):
        raise UsageError(f"{len(groups)} groups; at most {len(GROUP_KEYS)} are compared at a time")
    n = sum(map(len, groups.values()))
    if n > MAX_COMPARED_RUNS:
        raise UsageError(f"{n:,} runs; the page compares at most {MAX_COMPARED_RUNS:,}, `seedbed compare` any number")


# ---- routes ----


@router.get("/compare")
def show_compare(request: Request, cache: StoreCacheDep) -> Response:
    """The page; its content is requested by its script."""
    return render_page(request, "compare.html", has_store=cache.has_store(), statistics=STATISTICS.values())


@router.get("/api/compare")
def send_comparison(cache: StoreCacheDep, query: CompareQueryDep) -> Response:
    """The comparison described by the query."""
    comparison = compute_comparison(cache, query)
    return json_response(
        cache.get_or_derive(("compared as JSON", query), comparison, lambda: _comparison_as_json(comparison))
    )


def _comparison_as_json(comparison: GroupComparison) -> dict[str, Any]:
    return {
        "verdict": comparison.result.verdict,
        "sentence": comparison.result.sentence,
        "notes": comparison.result.notes,
        "n": comparison.result.n,
        "metric": comparison.subject.metric,
        "value": comparison.subject.statistic,
        "metrics": common_metrics(comparison.groups),
        "groups": [{"name": name, "runs": len(runs)} for name, runs in comparison.groups.items()],
        "tables": list(map(to_json, comparison.tables())),
        "figures": {
            name: figure_as_json(figure, number)
            for number, (name, figure) in enumerate(comparison.figures(interactive=True).items(), 1)
        },
        "command": comparison.command,
    }


@router.get("/api/compare/study")
def send_choices(cache: StoreCacheDep, name: str) -> Response:
    """The configs and metrics of a study that can be compared."""
    return json_response(cache.get_or_compute(("choices", name), lambda store: _list_choices(store, name)))


def _list_choices(store: Store, study: str) -> dict[str, Any]:
    """A study's varying settings, its configs as filters that select them, and its metrics."""
    runs = store.runs(study)
    configs: dict[str, tuple[dict[str, Value], list[StoredRun]]] = {}
    for run, config in zip(runs, run_configs(store, study, runs), strict=True):
        filters = " ".join(format_filter(name, value) for name, value in config.items())
        configs.setdefault(filters, (config, []))[1].append(run)
    axes = list(dict.fromkeys(name for config, _ in configs.values() for name in config))
    listed = [
        {"filters": filters, "label": format_config(config) or "all runs", "runs": len(members)}
        for filters, (config, members) in configs.items()
        if filters and _filters_select_exactly(filters, len(config) == len(axes), members, runs)
    ]
    sampled = runs[:N_RUNS_FOR_METRIC_NAMES]
    curves = store.curves([run.id for run in sampled])
    return {
        "study": study, "runs": len(runs), "axes": axes, "configs": listed[:MAX_LISTED_CONFIGS],
        "n_configs": len(configs),
        "metrics": list_metrics([RunCurves(run, {}, curves.get(run.id, {})) for run in sampled]),
    }  # fmt: skip


def _filters_select_exactly(
    filters: str, all_axes: bool, members: Sequence[StoredRun], runs: Sequence[StoredRun]
) -> bool:
    """Whether the filters select these members and no other run.

    Filters that name every axis select at most one config, so checking one member is enough.
    """
    terms = parse_filters([filters])
    checked, expected = (members[:1], 1) if all_axes else (runs, len(members))
    return sum(all(term.matches(run) for term in terms) for run in checked) == expected
