"""The live page of one study: the content of its report from the current store, with the viewer's parameters.

The page requests its parts separately, so that what is seen first arrives first: summary and answers, each figure when
it is on the screen, then the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.axis_labels import setting_label, value_label
from seedbed.charts.run_selection import distinct_values
from seedbed.report.figures import RenderedFigure
from seedbed.report.overview import describe_annotations
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
from seedbed.store import Store
from seedbed.study.run_filter import format_filter_value
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
def show_study(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """The page of a study; a 404 lists the studies that exist."""
    study = cache.get_or_compute(("study", name), lambda store: store.study(name))
    return render_page(request, "study.html", name=name, question=study_question(study), n_runs=study.n_runs)


@router.get("/api/study/{name:path}")
def send_study(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """Status, warnings, the settings to filter and colour by, figure titles and commands of a study."""
    params = parse_view_params(request.query_params)
    runs = get_runs(cache, name, params)
    return json_response(
        cache.get_or_derive(("study as JSON", name, params), runs, lambda: _study_as_json(cache, name, params, runs))
    )


def _study_as_json(cache: StoreCache, name: str, params: ViewParams, runs: Sequence[RunCurves]) -> dict[str, Any]:
    return {
        "state": status_summary(runs),
        "warnings": list(study_warnings(runs)),
        "annotations": cache.get_or_compute(
            ("annotations", name, params),
            lambda store: describe_annotations(store.annotations(), name, [run.run.id for run in runs]),
        ),
        "settings": _filterable_settings(cache, name),
        "figures": [spec.title for spec in get_figure_specs(cache, name, params)],
        "commands": reproduction_commands([name], params.only),
    }


def _filterable_settings(cache: StoreCache, name: str) -> list[dict[str, Any]]:
    """Settings with several values over all runs of the study, and the seed: what one can filter and colour by."""
    runs = get_runs(cache, name, ViewParams())
    names = [*dict.fromkeys(setting for run in runs for setting in run.config), "seed"]
    values = {setting: distinct_values(runs, setting) for setting in names}
    return [_setting_as_json(setting, distinct) for setting, distinct in values.items() if len(distinct) > 1]


def _setting_as_json(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """A setting with its values as labels, and as written in a filter."""
    choices = [{"text": value_label(value), "filter": format_filter_value(value)} for value in values]
    return {"name": name, "key": name, "label": setting_label(name), "values": choices}


@router.get("/api/answers/{name:path}")
def send_answers(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """The study's questions, answered from the selected runs."""
    return json_response({"answers": get_answers(cache, name, parse_view_params(request.query_params))})


@router.get("/api/figure/{name:path}")
def send_figure(request: Request, cache: StoreCacheDep, name: str, number: int = 1) -> Response:
    """One figure of the study with its Vega-Lite spec."""
    figure = get_figure(cache, name, parse_view_params(request.query_params), number)
    return json_response(figure_as_json(figure, number))


def figure_as_json(figure: RenderedFigure, number: int) -> dict[str, Any]:
    """A rendered figure for the page."""
    return {
        "number": number, "title": figure.title, "report": figure.report, "notes": figure.notes,
        "command": figure.command, "spec": figure.spec,
    }  # fmt: skip


@router.get("/api/configs/{name:path}")
def send_configs(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """The table of configs, with the runs behind each mean."""
    params = parse_view_params(request.query_params)
    runs = get_runs(cache, name, params)
    return json_response(
        cache.get_or_derive(("configs", name, params.only, params.t_max), runs, lambda: configs_as_json(runs))
    )


@router.get("/api/tables/{name:path}")
def send_tables(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """The report's tables, and the data, versions and hardware behind them."""
    params = parse_view_params(request.query_params)
    provenance = cache.get_or_compute(
        ("provenance", name, params), lambda store: _provenance_as_json(store, cache, name, params)
    )
    tables = [table_as_json(table) for table in get_tables(cache, name, params)]
    return json_response({"tables": tables, "provenance": provenance["tables"], "text": provenance["text"]})


def _provenance_as_json(store: Store, cache: StoreCache, name: str, params: ViewParams) -> dict[str, Any]:
    tables = environment_tables(store, [name], get_runs(cache, name, params))
    return {"tables": [table_as_json(table) for table in tables], "text": store.study(name).text}


def table_as_json(table: Table) -> dict[str, Any]:
    """A table for the page."""
    return {
        "title": table.title, "columns": table.columns, "rows": table.rows, "notes": table.notes,
        "best": sorted(table.best), "labels": table.n_labels,
    }  # fmt: skip
