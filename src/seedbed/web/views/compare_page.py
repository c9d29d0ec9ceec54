"""The Compare page: paired differences between groups of runs with intervals, curves, and all settings at once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.report.group_comparison import GroupComparison
from seedbed.report.study_answers import common_metrics
from seedbed.stats.run_statistics import STATISTICS
from seedbed.web.compare_query import CompareQuery, compute_comparison, list_choices
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.views.study_page import figure_as_json, table_as_json

router = APIRouter()


@router.get("/compare")
def show_compare(request: Request, cache: StoreCacheDep) -> Response:
    """The page; its content is requested by its script."""
    return render_page(request, "compare.html", has_store=cache.has_store(), statistics=STATISTICS.values())


@router.get("/api/compare/study")
def send_choices(cache: StoreCacheDep, name: str) -> Response:
    """The configs and metrics of a study that can be compared."""
    return json_response(cache.get_or_compute(("choices", name), lambda store: list_choices(store, name)))


@router.get("/api/compare")
def send_comparison(request: Request, cache: StoreCacheDep) -> Response:
    """The comparison described by the query."""
    query = CompareQuery.from_query(request.query_params)
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
        "tables": [table_as_json(table) for table in comparison.tables()],
        "figures": {
            name: figure_as_json(figure, number)
            for number, (name, figure) in enumerate(comparison.figures(interactive=True).items(), 1)
        },
        "command": comparison.command,
    }
