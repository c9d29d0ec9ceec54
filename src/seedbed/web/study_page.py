"""The pages of all studies and of one study: the content of its report from the current store, as a viewer chose it.

    view = StudyView(cache, "arithmetic/sanity", parse_view_params(request.query_params))
    view.figure(1)            # ?colour=train.lr&only=model.kind%3Dgpt&t_max=0.5: coloured by learning rate

The page requests its parts separately, so that what is seen first arrives first: summary and answers, each figure when
it is on the screen, then the tables. Downloads and live figures parse the same query, so they are what is on the
screen. Everything is computed once for all viewers and cached until the store changes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.datastructures import QueryParams

from seedbed.charts.axis_labels import metric_label, setting_label, value_label
from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.panel_layout import distinct_values
from seedbed.errors import MissingData, UsageError
from seedbed.interp.analysis import is_analysis_metric
from seedbed.records import StoredStudy
from seedbed.report.figures import RenderedFigure, render_figure
from seedbed.report.overview import describe_annotations
from seedbed.report.sections import (
    environment_tables,
    status_summary,
    study_figures,
    study_tables,
    study_warnings,
)
from seedbed.report.study_runs import check_t_max, load_run_curves
from seedbed.report.tables import Table, format_steps, spread_format, to_json
from seedbed.specs import FigureSpec
from seedbed.stats.answers import Answer, answer_questions, format_question
from seedbed.stats.comparison import summarise_seeds
from seedbed.stats.curve_statistics import Extremum, find_extremum, last_value
from seedbed.stats.metric_registry import metric_direction, metric_sort_key, metric_symbol
from seedbed.stats.summary import ConfigSummary, RunCurves, group_by_config, never_left_chance, summarise
from seedbed.store import Store
from seedbed.study.conditions import format_filter, format_filter_value
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.study.study_files import study_question
from seedbed.web.responses import StoreCacheDep, figure_as_json, json_response, render_page
from seedbed.web.store_cache import StoreCache

NO_SETTING: Final = "none"  # in the query: no setting for this channel, even if the figure declares one
CHANNELS: Final = ("colour", "dash", "row", "column")
SCALES: Final = {"x_scale": ("linear", "log", "log2"), "y_scale": ("linear", "log")}
CLOCKS: Final = ("step", "epoch", "tokens", "time")
MAX_FILTERS: Final = 40

router = APIRouter()


@dataclass(frozen=True)
class ViewParams:
    """What a viewer chose; the default is the view that the study file declares."""

    only: tuple[str, ...] = ()
    t_max: str | None = None
    channels: tuple[tuple[str, str], ...] = ()  # channel → setting, or `none`
    scales: tuple[tuple[str, str], ...] = ()
    clock: str = ""  # what learning curves are drawn against; empty: as declared


def parse_view_params(query: QueryParams) -> ViewParams:
    """The view parameters in a query; unknown names are ignored."""
    only = tuple(query.getlist("only"))
    if len(only) > MAX_FILTERS:
        raise UsageError(f"only: {len(only)} filters; at most {MAX_FILTERS} are accepted")
    for name, accepted in (SCALES | {"clock": CLOCKS}).items():
        if (value := query.get(name)) and value not in accepted:
            raise UsageError(f"{name} = {value!r}: expected one of {', '.join(accepted)}")
    t_max = query.get("t_max") or None
    check_t_max(t_max, "t_max")

    def given(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
        return tuple((name, query[name]) for name in names if query.get(name))

    return ViewParams(only, t_max, given(CHANNELS), given(SCALES), query.get("clock", ""))


class StudyView:
    """The runs of a study that a viewer selected, and what their report says about them."""

    def __init__(self, cache: StoreCache, study: str, params: ViewParams = ViewParams()) -> None:
        self.cache, self.study, self.params = cache, study, params
        self._selection = study, params.only, params.t_max  # all that the runs depend on

    def runs(self) -> list[RunCurves]:
        """The selected runs with their curves."""
        return self.cache.get_or_compute(
            ("runs", *self._selection), lambda store: load_run_curves(store, *self._selection)
        )

    def declared(self) -> Declarations:
        """The figures and questions that the study file declares."""
        return self.cache.get_or_compute(
            ("declared", self.study), lambda store: parse_declarations(store.study(self.study).text)
        )

    def figure_specs(self) -> tuple[FigureSpec, ...]:
        """The study's figure specs with the view parameters applied."""
        declared, runs = self.declared(), self.runs()
        specs = self.cache.get_or_derive(("specs", *self._selection), runs, lambda: study_figures(declared, runs))
        return tuple(map(self._adjust, specs))

    def _adjust(self, spec: FigureSpec) -> FigureSpec:
        if not CHART_KINDS[spec.kind].is_adjustable:
            return spec
        channels = dict(self.params.channels)
        changes: dict[str, Any] = {
            name: None if value == NO_SETTING and name != "colour" else value for name, value in channels.items()
        }  # a figure whose colour is `none` is not coloured by what varies
        if "colour" in changes:
            changes["colour_scale"] = "auto"
        if self.params.clock and spec.kind == "curves":
            changes["x"] = self.params.clock
        return spec.model_copy(update=changes | dict(self.params.scales))

    def figure(self, number: int) -> RenderedFigure:
        """The rendered figure of this number, counted from 1."""
        specs, runs = self.figure_specs(), self.runs()
        if not 1 <= number <= len(specs):
            raise MissingData(f"study {self.study} has figures 1 to {len(specs)}, but no figure {number}")
        return self.cache.get_or_derive(
            ("figure", self.study, self.params, number),
            runs,
            lambda: render_figure(specs[number - 1], runs, self.study, self.params.only),
        )

    def answers(self) -> list[dict[str, Any]]:
        """The study's questions, answered from the selected runs."""
        runs, questions = self.runs(), self.declared().questions

        def answer() -> list[dict[str, Any]]:
            figures = study_figures(self.declared(), runs)
            return [_answer_as_json(one, figures, runs) for one in answer_questions(questions, runs)]

        return self.cache.get_or_derive(("answers", *self._selection), runs, answer)

    def tables(self) -> tuple[Table, ...]:
        """The report's tables of the selected runs."""
        return self.cache.get_or_compute(
            ("tables", *self._selection),
            lambda store: study_tables(store, self.study, self.declared(), self.runs()),
        )


def _get_study_view(request: Request, cache: StoreCacheDep, name: str) -> StudyView:
    return StudyView(cache, name, parse_view_params(request.query_params))


StudyViewDep = Annotated[StudyView, Depends(_get_study_view)]


def _answer_as_json(answer: Answer, figures: Sequence[FigureSpec], runs: Sequence[RunCurves]) -> dict[str, Any]:
    """An answer with the number of the first figure that shows its metric, and whether it waits for an analysis."""
    asked = answer.question
    shown = (number for number, figure in enumerate(figures, 1) if asked.metric in figure.metrics)
    return {
        "question": asked.text or format_question(asked), "verdict": answer.verdict, "sentence": answer.sentence,
        "warning": answer.warning, "n": answer.n, "figure": next(shown, None),
        "waits": is_analysis_metric(asked.metric) and not any(asked.metric in run.curves for run in runs),
    }  # fmt: skip


# ---- all studies ----


@router.get("/")
def show_studies(request: Request, cache: StoreCacheDep) -> Response:
    """The page of all studies; its script requests `/api/studies` and a live stream."""
    return render_page(request, "studies.html", home=str(cache.home), has_store=cache.has_store())


@router.get("/api/studies")
def list_studies(cache: StoreCacheDep) -> Response:
    """Every study with its question, newest first."""
    if not cache.has_store():
        return json_response({"studies": []})
    return json_response(
        {"studies": cache.get_or_compute("studies", lambda store: list(map(_listed_study, store.studies()[::-1])))}
    )


def _listed_study(study: StoredStudy) -> dict[str, object]:
    return {
        "name": study.name, "question": study_question(study.text, study.name), "created": study.created,
        "runs": study.n_runs, "states": dict(study.statuses), "varies": study.axes,
    }  # fmt: skip


@router.get("/api/headline/{name:path}")
def send_headline(cache: StoreCacheDep, name: str) -> Response:
    """The first question of a study and its answer; empty if the study declares none."""
    first = next(iter(StudyView(cache, name).answers()), None)
    return json_response(first or {"question": "", "sentence": "", "warning": ""})


# ---- one study ----


@router.get("/study/{name:path}")
def show_study(request: Request, cache: StoreCacheDep, name: str) -> Response:
    """The page of a study; a 404 lists the studies that exist."""
    study = cache.get_or_compute(("study", name), lambda store: store.study(name))
    question = study_question(study.text, study.name)
    return render_page(request, "study.html", name=name, question=question, n_runs=study.n_runs)


@router.get("/api/study/{name:path}")
def send_study(view: StudyViewDep) -> Response:
    """Status, warnings, the settings to filter and colour by, figure titles and commands of a study."""
    key = ("study as JSON", view.study, view.params)
    return json_response(view.cache.get_or_derive(key, view.runs(), lambda: _study_as_json(view)))


def _study_as_json(view: StudyView) -> dict[str, Any]:
    runs = view.runs()
    return {
        "state": status_summary(runs),
        "warnings": list(study_warnings(runs)),
        "annotations": view.cache.get_or_compute(
            ("annotations", view.study, view.params),
            lambda store: describe_annotations(store.annotations(), view.study, [run.run.id for run in runs]),
        ),
        "settings": _filterable_settings(StudyView(view.cache, view.study).runs()),
        "figures": [{"title": spec.title, "waits": _waits_for_analysis(spec, runs)} for spec in view.figure_specs()],
        "commands": _reproduction_commands(view),
    }


def _waits_for_analysis(spec: FigureSpec, runs: Sequence[RunCurves]) -> bool:
    """Whether a figure shows what no run has been analysed for."""
    analysed = {name for run in runs for name in run.curves}
    if any(is_analysis_metric(name) and name not in analysed for name in spec.metrics):
        return True
    return CHART_KINDS[spec.kind].needs_analysis is not None and not any(run.analyses for run in runs)


def _reproduction_commands(view: StudyView) -> list[str]:
    """The commands that go on with the stored study, whose text has the overrides it was run with, and report it."""
    selection = [word for text in view.params.only for word in ("--only", text)]
    return [shlex.join(["seedbed", verb, view.study, *selection]) for verb in ("run", "report")]


def _filterable_settings(runs: Sequence[RunCurves]) -> list[dict[str, Any]]:
    """Settings with several values over all runs of the study, and the seed: what one can filter and colour by.

    Their values come as labels, and as written in a filter.
    """
    settings = []
    for name in (*dict.fromkeys(setting for run in runs for setting in run.config), "seed"):
        values = distinct_values(runs, name)
        choices = [{"text": value_label(value), "filter": format_filter_value(value)} for value in values]
        if len(values) > 1:
            settings.append({"name": name, "key": name, "label": setting_label(name), "values": choices})
    return settings


@router.get("/api/answers/{name:path}")
def send_answers(view: StudyViewDep) -> Response:
    """The study's questions, answered from the selected runs."""
    return json_response({"answers": view.answers()})


@router.get("/api/figure/{name:path}")
def send_figure(view: StudyViewDep, number: int = 1) -> Response:
    """One figure of the study with its Vega-Lite spec."""
    return json_response(figure_as_json(view.figure(number), number))


@router.get("/api/tables/{name:path}")
def send_tables(view: StudyViewDep) -> Response:
    """The report's tables, and the data, versions and hardware behind them."""

    def load_provenance(store: Store) -> dict[str, Any]:
        tables = environment_tables(store, view.study, view.runs())
        return {"provenance": list(map(to_json, tables)), "text": store.study(view.study).text}

    provenance = view.cache.get_or_compute(("provenance", view.study, view.params), load_provenance)
    return json_response({"tables": list(map(to_json, view.tables()))} | provenance)


# ---- the table of configs ----


@router.get("/api/configs/{name:path}")
def send_configs(view: StudyViewDep) -> Response:
    """Mean ± std and n of every metric of every config, and the runs behind each mean."""
    runs, params = view.runs(), view.params
    return json_response(
        view.cache.get_or_derive(
            ("configs", view.study, params.only, params.t_max), runs, lambda: _configs_as_json(runs)
        )
    )


STEP_OF_BEST: Final = "t_f "  # before a metric's name: the column of the first step with its best value


def _configs_as_json(runs: Sequence[RunCurves]) -> dict[str, Any]:
    """Every config with its runs, and a description of each column."""
    summaries = summarise(runs)
    names = sorted({name for summary in summaries for name in summary.metrics}, key=metric_sort_key)
    settings = dict.fromkeys(name for summary in summaries for name in summary.config)
    members = group_by_config(runs)
    which = {"min": "smallest", "max": "largest", None: "last"}
    metrics = [
        {"name": name, "label": metric_symbol(name), "meaning": f"{which[metric_direction(name)]} {metric_label(name)}"}
        for name in names
    ]
    steps = [
        {
            "name": STEP_OF_BEST + name, "label": f"t_f({metric_symbol(name)})", "folded": True,
            "meaning": f"first step with the {which[metric_direction(name)]} {metric_label(name)}",
        }
        for name in names if metric_direction(name)
    ]  # fmt: skip
    return {
        "settings": [{"name": name, "label": setting_label(name)} for name in settings],
        "metrics": metrics + steps,
        "configs": [_config_as_json(summary, group, names) for summary, group in zip(summaries, members, strict=True)],
    }


def _config_as_json(summary: ConfigSummary, runs: Sequence[RunCurves], names: Sequence[str]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for name, metric in summary.metrics.items():
        cells[name] = {"mean": metric.value.mean, "text": spread_format(name)(metric.value)}
        if metric.t_f is not None and metric.t_f.n:
            cells[STEP_OF_BEST + name] = {"mean": metric.t_f.mean, "text": format_steps(metric.t_f)}
    return {
        "settings": {name: {"text": value_label(value), "value": value} for name, value in summary.config.items()},
        "filters": [format_filter(name, value) for name, value in summary.config.items()],
        "n": summary.n_included, "of": summary.n_runs, "states": dict(summary.status_counts), "values": cells,
        "runs": [_run_as_json(run, names) for run in runs],
    }  # fmt: skip


def _run_as_json(run: RunCurves, names: Sequence[str]) -> dict[str, Any]:
    stored = run.run
    return {
        "id": stored.id, "seed": stored.seed, "status": stored.status, "step": stored.step, "cause": stored.cause,
        "values": dict(_run_cells(run, names)),
    }  # fmt: skip


def _run_cells(run: RunCurves, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The best value of each metric and its first step; the last one of a metric without a better direction."""
    for name in names:
        curve, direction = run.curves.get(name), metric_direction(name)
        if curve is None or not curve.steps.size:
            continue
        best = find_extremum(curve, direction) if direction else Extremum(last_value(curve), nan)
        if not isnan(best.value):
            yield name, spread_format(name)(summarise_seeds({0: best.value}))
            if direction and not never_left_chance(run, name):
                yield STEP_OF_BEST + name, f"{best.step:.0f}"
