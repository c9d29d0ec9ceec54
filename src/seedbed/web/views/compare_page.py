"""Groups of runs beside each other: paired differences with intervals, curves, and all dials at once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.report.group_comparison import GroupComparison
from seedbed.web.compare_query import CompareQuery, compute_comparison, list_choices, list_metrics
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.views.study_page import figure_as_json, table_as_json

router = APIRouter()


@router.get("/compare")
def show_compare(request: Request, lab: StoreCacheDep) -> Response:
    """The page; the studies to choose from are in it, the rest is asked for as it is chosen."""
    return render_page(request, "compare.html", has_store=(lab.home / "store.db").exists())


@router.get("/api/compare/study")
def send_choices(lab: StoreCacheDep, name: str) -> Response:
    """What of a study can be compared."""
    return json_response(lab.get_or_compute(("choices", name), lambda store: list_choices(store, name)))


@router.get("/api/compare")
def send_comparison(request: Request, lab: StoreCacheDep) -> Response:
    """The comparison that the address asks for."""
    asked = CompareQuery.from_query(request.query_params)
    found = compute_comparison(lab, asked)
    return json_response(lab.get_or_derive(("compared as JSON", asked), found, lambda: _comparison_as_json(found)))


def _comparison_as_json(found: GroupComparison) -> dict[str, Any]:
    return {
        "sentence": found.result.sentence,
        "notes": found.result.notes,
        "n": found.result.n,
        "metric": found.subject.metric,
        "value": found.subject.statistic,
        "metrics": list_metrics([run for runs in found.groups.values() for run in runs]),
        "groups": [{"name": name, "runs": len(runs)} for name, runs in found.groups.items()],
        "tables": [table_as_json(table) for table in found.tables()],
        "figures": {
            name: figure_as_json(figure, number)
            for number, (name, figure) in enumerate(found.figures(interactive=True).items(), 1)
        },
        "command": found.command,
    }
