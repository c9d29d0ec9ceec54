"""What a viewer chose to see of a study: the query of the address, and the runs, figures and tables that answer it.

    chosen = chosen_in(request.query_params)            ?colour=train.lr&only=model.kind%3Dgpt&t_max=0.5
    figure(lab, "arithmetic/sanity", chosen, 1)        the first figure, coloured by the learning rate

The page and its downloads read the same query, so that what is downloaded is what is seen. Everything is made once for
all viewers and kept while the store does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams

from seedbed.charts.run_selection import distinct_values, is_number
from seedbed.errors import MissingData, UsageError
from seedbed.report.figures import RenderedFigure, default_scale, render_figure
from seedbed.report.metrics_by_step import metrics_by_step_tables
from seedbed.report.sections import study_figures
from seedbed.report.study_runs import check_t_max, load_run_curves
from seedbed.report.tables import Table, config_tables
from seedbed.specs import FigureSpec
from seedbed.stats.answers import Answer, answer_question, format_question
from seedbed.stats.summary import RunCurves, summarise
from seedbed.study.declarations import Declarations, parse_declarations
from seedbed.web.store_cache import StoreCache

NO_SETTING: Final = "none"  # in the query: without one, also where the study's figure has one
CHANNELS: Final = ("colour", "dash", "row", "column")
SCALES: Final = {"x_scale": ("linear", "log", "log2"), "y_scale": ("linear", "log")}
ADJUSTABLE_KINDS: Final = ("curves", "sweep")  # kinds of figures that take any dial anywhere
MAX_FILTERS: Final = 40


@dataclass(frozen=True)
class ViewParams:
    """A view of a study; empty: as its file declares it."""

    filters: tuple[str, ...] = ()
    t_max: str | None = None
    channels: tuple[tuple[str, str], ...] = ()  # channel → dial, or `none`
    scales: tuple[tuple[str, str], ...] = ()


def parse_view_params(query: QueryParams) -> ViewParams:
    """The view that a query describes; names that it does not know are left to others."""
    words = tuple(query.getlist("only"))
    if len(words) > MAX_FILTERS:
        raise UsageError(f"only: {len(words)} words; at most {MAX_FILTERS} are read")
    for name, known in SCALES.items():
        if (value := query.get(name)) and value not in known:
            raise UsageError(f"{name} = {value!r}: expected one of {', '.join(known)}")
    t_max = query.get("t_max") or None
    check_t_max(t_max, "t_max")
    return ViewParams(words, t_max, _get_pairs(query, CHANNELS), _get_pairs(query, SCALES))


def _get_pairs(query: QueryParams, names: Mapping[str, Any] | Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, query[name]) for name in names if query.get(name))


# ---- what answers it ----


def get_runs(lab: StoreCache, study: str, chosen: ViewParams) -> list[RunCurves]:
    """The runs that are asked for, with their curves."""
    key = ("runs", study, chosen.filters, chosen.t_max)
    return lab.get_or_compute(key, lambda store: load_run_curves(store, study, chosen.filters, chosen.t_max))


def get_declared_specs(lab: StoreCache, study: str) -> Declarations:
    """What the study's file says is shown."""
    return lab.get_or_compute(("declared", study), lambda store: parse_declarations(store.study(study).text))


def get_figure_specs(lab: StoreCache, study: str, chosen: ViewParams) -> tuple[FigureSpec, ...]:
    """The study's figures as they are asked for, not drawn yet."""
    runs = get_runs(lab, study, chosen)
    return tuple(
        _apply_view_params(figure, chosen, runs) for figure in study_figures(get_declared_specs(lab, study), runs)
    )


def _apply_view_params(figure: FigureSpec, chosen: ViewParams, runs: Sequence[RunCurves]) -> FigureSpec:
    if figure.kind not in ADJUSTABLE_KINDS:
        return figure
    changes: dict[str, Any] = {name: None if dial == NO_SETTING else dial for name, dial in chosen.channels}
    if colour := changes.get("colour"):
        changes["colour_scale"] = _infer_colour_scale(runs, colour)
    return figure.model_copy(update=changes | dict(chosen.scales))


def _infer_colour_scale(runs: Sequence[RunCurves], dial: str) -> str:
    values = distinct_values(runs, dial)
    return default_scale(values) if all(is_number(value) for value in values) else "linear"


def get_figure(lab: StoreCache, study: str, chosen: ViewParams, number: int) -> RenderedFigure:
    """The figure of this number, from 1 on, drawn."""
    known = get_figure_specs(lab, study, chosen)
    if not 1 <= number <= len(known):
        raise MissingData(f"study {study} has figures 1 to {len(known)}, and no figure {number}")
    runs = get_runs(lab, study, chosen)
    return lab.get_or_derive(
        ("figure", study, chosen, number), runs, lambda: render_figure(known[number - 1], runs, study)
    )


def get_answers(lab: StoreCache, study: str, chosen: ViewParams) -> list[dict[str, Any]]:
    """Every question of the study's file, answered from the runs that are asked for."""
    runs = get_runs(lab, study, chosen)
    key = ("answers", study, chosen.filters, chosen.t_max)
    return lab.get_or_derive(
        key,
        runs,
        lambda: [_answer_as_json(answer_question(asked, runs)) for asked in get_declared_specs(lab, study).questions],
    )


def _answer_as_json(found: Answer) -> dict[str, Any]:
    asked = found.question.text or format_question(found.question)
    return {"asked": asked, "sentence": found.sentence, "warning": found.warning, "n": found.n}


def get_tables(lab: StoreCache, study: str, chosen: ViewParams) -> tuple[Table, ...]:
    """The report's tables of the runs that are asked for."""
    runs = get_runs(lab, study, chosen)
    return lab.get_or_derive(("tables", study, chosen.filters, chosen.t_max), runs, lambda: _build_tables(runs))


def _build_tables(runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    return (*config_tables(summarise(runs)), *metrics_by_step_tables(runs))
