"""One study, live: what its report says, drawn from the store as it is now, seen the way its viewer asks.

The page asks in parts, so that what is seen first comes first: words, each figure when it is on the screen, points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.labels import setting_label, value_label
from seedbed.charts.run_selection import distinct_values
from seedbed.report.figures import RenderedFigure, format_filter_value
from seedbed.report.sections import (
    environment_tables,
    reproduction_commands,
    status_summary,
    study_question,
    study_warnings,
)
from seedbed.report.tables import Table
from seedbed.settings import Value
from seedbed.stats.summary import RunCurves
from seedbed.store.store import Store
from seedbed.web.config_table import configs_as_json
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCache, StoreCacheDep
from seedbed.web.view_params import (
    ViewParams,
    get_answers,
    get_figure,
    get_figure_specs,
    get_runs,
    get_tables,
    parse_view_params,
)

router = APIRouter()


@router.get("/study/{name:path}")
def show_study(request: Request, lab: StoreCacheDep, name: str) -> Response:
    """The page of a study; 404 with the names that there are when there is none."""
    study = lab.get_or_compute(("study", name), lambda store: store.study(name))
    return render_page(request, "study.html", name=name, question=study_question(study), n_runs=study.n_runs)


@router.get("/api/study/{name:path}")
def send_study(request: Request, lab: StoreCacheDep, name: str) -> Response:
    """How it stands: state, warnings, dials to choose from, and how many figures and tables there are."""
    chosen = parse_view_params(request.query_params)
    runs = get_runs(lab, name, chosen)
    return json_response(
        lab.get_or_derive(("told", name, chosen), runs, lambda: _study_as_json(lab, name, chosen, runs))
    )


def _study_as_json(lab: StoreCache, name: str, chosen: ViewParams, runs: Sequence[RunCurves]) -> dict[str, Any]:
    return {
        "state": status_summary(runs),
        "warnings": list(study_warnings(runs)),
        "dials": _filterable_settings(lab, name),
        "figures": [one.title for one in get_figure_specs(lab, name, chosen)],
        "commands": reproduction_commands([name], chosen.filters),
    }


def _filterable_settings(lab: StoreCache, name: str) -> list[dict[str, Any]]:
    """What can be coloured and filtered by: dials with several values over all runs of the study, and the seed."""
    every = get_runs(lab, name, ViewParams())
    names = [*dict.fromkeys(dial for run in every for dial in run.config), "seed"]
    values = {dial: distinct_values(every, dial) for dial in names}
    return [_setting_as_json(dial, found) for dial, found in values.items() if len(found) > 1]


def _setting_as_json(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """A dial with its values as they read, and as the words of a filter spell them."""
    words = [{"text": value_label(value), "word": format_filter_value(name, value)} for value in values]
    return {"name": name, "key": "seeds" if name == "seed" else name, "label": setting_label(name), "values": words}


@router.get("/api/answers/{name:path}")
def send_answers(request: Request, lab: StoreCacheDep, name: str) -> Response:
    """Every question of the study's file, answered from the runs that are asked for."""
    return json_response({"answers": get_answers(lab, name, parse_view_params(request.query_params))})


@router.get("/api/figure/{name:path}")
def send_figure(request: Request, lab: StoreCacheDep, name: str, number: int = 1) -> Response:
    """One figure of the study as it is asked for, with its Vega-Lite document."""
    return json_response(figure_as_json(get_figure(lab, name, parse_view_params(request.query_params), number), number))


def figure_as_json(shown: RenderedFigure, number: int) -> dict[str, Any]:
    """A figure for the page."""
    return {
        "number": number, "title": shown.title, "report": shown.report, "notes": shown.notes,
        "command": shown.command, "spec": shown.spec,
    }  # fmt: skip


@router.get("/api/points/{name:path}")
def send_configs(request: Request, lab: StoreCacheDep, name: str) -> Response:
    """The table of points, with the runs behind each mean."""
    chosen = parse_view_params(request.query_params)
    runs = get_runs(lab, name, chosen)
    return json_response(
        lab.get_or_derive(("points", name, chosen.filters, chosen.t_max), runs, lambda: configs_as_json(runs))
    )


@router.get("/api/tables/{name:path}")
def send_tables(request: Request, lab: StoreCacheDep, name: str) -> Response:
    """The report's tables, and what its numbers depend on."""
    chosen = parse_view_params(request.query_params)
    facts = lab.get_or_compute(("facts", name, chosen), lambda store: _provenance_as_json(store, lab, name, chosen))
    found = [table_as_json(table) for table in get_tables(lab, name, chosen)]
    return json_response({"tables": found, "facts": facts["tables"], "text": facts["text"]})


def _provenance_as_json(store: Store, lab: StoreCache, name: str, chosen: ViewParams) -> dict[str, Any]:
    found = environment_tables(store, [name], get_runs(lab, name, chosen))
    return {"tables": [table_as_json(table) for table in found], "text": store.study(name).text}


def table_as_json(table: Table) -> dict[str, Any]:
    """A table for the page."""
    return {
        "title": table.title, "columns": table.columns, "rows": table.rows, "notes": table.notes,
        "best": sorted(table.best), "labels": table.n_labels,
    }  # fmt: skip
