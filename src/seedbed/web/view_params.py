"""View parameters of a study page, parsed from the URL query, and the runs, figures and tables that match them.

    params = parse_view_params(request.query_params)       ?colour=train.lr&only=model.kind%3Dgpt&t_max=0.5
    get_figure(cache, "arithmetic/sanity", params, 1)      the first figure, coloured by learning rate

The page and its downloads parse the same query, so a download is what is on the screen. Everything is computed once for
all viewers and cached until the store changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.run_selection import distinct_values, is_number
from seedbed.errors import MissingData, UsageError
from seedbed.report.figures import RenderedFigure, default_scale, render_figure
from seedbed.report.metrics_by_step import metrics_by_step_tables
from seedbed.report.sections import study_figures
from seedbed.report.study_runs import check_t_max, load_run_curves
from seedbed.report.summary_tables import config_tables
from seedbed.report.tables import Table
from seedbed.specs import FigureSpec
from seedbed.stats.answers import Answer, answer_questions, format_question
from seedbed.stats.summary import RunCurves, summarise
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.web.store_cache import StoreCache

NO_SETTING: Final = "none"  # in the query: no setting for this channel, even if the figure declares one
CHANNELS: Final = ("colour", "dash", "row", "column")
SCALES: Final = {"x_scale": ("linear", "log", "log2"), "y_scale": ("linear", "log")}
MAX_FILTERS: Final = 40


@dataclass(frozen=True)
class ViewParams:
    """What a viewer chose; the default is the view that the study file declares."""

    only: tuple[str, ...] = ()
    t_max: str | None = None
    channels: tuple[tuple[str, str], ...] = ()  # channel → setting, or `none`
    scales: tuple[tuple[str, str], ...] = ()


def parse_view_params(query: QueryParams) -> ViewParams:
    """The view parameters in a query; unknown names are ignored."""
    only = tuple(query.getlist("only"))
    if len(only) > MAX_FILTERS:
        raise UsageError(f"only: {len(only)} filters; at most {MAX_FILTERS} are accepted")
    for name, accepted in SCALES.items():
        if (value := query.get(name)) and value not in accepted:
            raise UsageError(f"{name} = {value!r}: expected one of {', '.join(accepted)}")
    t_max = query.get("t_max") or None
    check_t_max(t_max, "t_max")
    return ViewParams(only, t_max, _get_pairs(query, CHANNELS), _get_pairs(query, SCALES))


def _get_pairs(query: QueryParams, names: Mapping[str, Any] | Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, query[name]) for name in names if query.get(name))


# ---- runs, figures, answers and tables ----


def get_runs(cache: StoreCache, study: str, params: ViewParams) -> list[RunCurves]:
    """The selected runs with their curves."""
    key = ("runs", study, params.only, params.t_max)
    return cache.get_or_compute(key, lambda store: load_run_curves(store, study, params.only, params.t_max))


def get_declared_specs(cache: StoreCache, study: str) -> Declarations:
    """The figures and questions that the study file declares."""
    return cache.get_or_compute(("declared", study), lambda store: parse_declarations(store.study(study).text))


def get_figure_specs(cache: StoreCache, study: str, params: ViewParams) -> tuple[FigureSpec, ...]:
    """The study's figure specs with the view parameters applied."""
    runs = get_runs(cache, study, params)
    return tuple(
        _apply_view_params(spec, params, runs) for spec in study_figures(get_declared_specs(cache, study), runs)
    )


def _apply_view_params(spec: FigureSpec, params: ViewParams, runs: Sequence[RunCurves]) -> FigureSpec:
    if not CHART_KINDS[spec.kind].is_adjustable:
        return spec
    changes: dict[str, Any] = {name: None if setting == NO_SETTING else setting for name, setting in params.channels}
    if colour := changes.get("colour"):
        changes["colour_scale"] = _infer_colour_scale(runs, colour)
    return spec.model_copy(update=changes | dict(params.scales))


def _infer_colour_scale(runs: Sequence[RunCurves], setting: str) -> str:
    values = distinct_values(runs, setting)
    return default_scale(values) if all(is_number(value) for value in values) else "linear"


def get_figure(cache: StoreCache, study: str, params: ViewParams, number: int) -> RenderedFigure:
    """The rendered figure of this number, counted from 1."""
    specs = get_figure_specs(cache, study, params)
    if not 1 <= number <= len(specs):
        raise MissingData(f"study {study} has figures 1 to {len(specs)}, but no figure {number}")
    runs = get_runs(cache, study, params)
    return cache.get_or_derive(
        ("figure", study, params, number), runs, lambda: render_figure(specs[number - 1], runs, study, params.only)
    )


def get_answers(cache: StoreCache, study: str, params: ViewParams) -> list[dict[str, Any]]:
    """The study's questions, answered from the selected runs."""
    runs = get_runs(cache, study, params)
    key = ("answers", study, params.only, params.t_max)
    questions = get_declared_specs(cache, study).questions
    return cache.get_or_derive(key, runs, lambda: [_answer_as_json(one) for one in answer_questions(questions, runs)])


def _answer_as_json(answer: Answer) -> dict[str, Any]:
    question = answer.question.text or format_question(answer.question)
    return {
        "question": question, "verdict": answer.verdict, "sentence": answer.sentence, "warning": answer.warning,
        "n": answer.n,
    }  # fmt: skip


def get_tables(cache: StoreCache, study: str, params: ViewParams) -> tuple[Table, ...]:
    """The report's tables of the selected runs."""
    runs = get_runs(cache, study, params)
    return cache.get_or_derive(("tables", study, params.only, params.t_max), runs, lambda: _build_tables(runs))


def _build_tables(runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    return (*config_tables(summarise(runs)), *metrics_by_step_tables(runs))
