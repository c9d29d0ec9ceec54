"""Groups of runs beside each other: paired differences with intervals, curves, and all dials at once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.report.compared import Compared
from seedbed.web.comparing import Comparing, choices_of, compare_asked, metrics_of
from seedbed.web.lab import TheLab
from seedbed.web.pages import page, sent
from seedbed.web.views.study import figure_as_json, table_as_json

router = APIRouter()


@router.get("/compare")
def show_compare(request: Request, lab: TheLab) -> Response:
    """The page; the studies to choose from are in it, the rest is asked for as it is chosen."""
    return page(request, "compare.html", has_store=(lab.home / "store.db").exists())


@router.get("/api/compare/study")
def choose_from(lab: TheLab, name: str) -> Response:
    """What of a study can be compared."""
    return sent(lab.kept(("choices", name), lambda store: choices_of(store, name)))


@router.get("/api/compare")
def compare(request: Request, lab: TheLab) -> Response:
    """The comparison that the address asks for."""
    asked = Comparing.of(request.query_params)
    found = compare_asked(lab, asked)
    return sent(lab.derived(("compared as JSON", asked), found, lambda: _as_json(found)))


def _as_json(found: Compared) -> dict[str, Any]:
    return {
        "sentence": found.found.sentence,
        "notes": found.found.notes,
        "n": found.found.n,
        "metric": found.subject.metric,
        "value": found.subject.value,
        "metrics": metrics_of([run for runs in found.groups.values() for run in runs]),
        "groups": [{"name": name, "runs": len(runs)} for name, runs in found.groups.items()],
        "tables": [table_as_json(table) for table in found.tables()],
        "figures": {
            name: figure_as_json(figure, number)
            for number, (name, figure) in enumerate(found.figures(live=True).items(), 1)
        },
        "command": found.command,
    }
