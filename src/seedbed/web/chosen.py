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

from seedbed.charts.axes import is_number, values_of
from seedbed.errors import MissingData, UsageError
from seedbed.measures.answers import Answer, answer, question_in_words
from seedbed.measures.summary import RunCurves, summarise
from seedbed.report.by_step import step_tables
from seedbed.report.figures import Shown, scale_of, show_figure
from seedbed.report.gather import check_t_max, gather_curves
from seedbed.report.sections import figures_of
from seedbed.report.tables import Table, point_tables
from seedbed.shown import Figure
from seedbed.study.shows import Declared, shown_in
from seedbed.web.lab import Lab

NONE: Final = "none"  # in the query: without one, also where the study's figure has one
CHANNELS: Final = ("colour", "dash", "row", "column")
SCALES: Final = {"x_scale": ("linear", "log", "log2"), "y_scale": ("linear", "log")}
CHOOSABLE: Final = ("curves", "against")  # kinds of figures that take any dial anywhere
MOST_WORDS: Final = 40


@dataclass(frozen=True)
class Chosen:
    """A view of a study; empty: as its file declares it."""

    words: tuple[str, ...] = ()
    t_max: str | None = None
    channels: tuple[tuple[str, str], ...] = ()  # channel → dial, or `none`
    scales: tuple[tuple[str, str], ...] = ()


def chosen_in(query: QueryParams) -> Chosen:
    """The view that a query describes; names that it does not know are left to others."""
    words = tuple(query.getlist("only"))
    if len(words) > MOST_WORDS:
        raise UsageError(f"only: {len(words)} words; at most {MOST_WORDS} are read")
    for name, known in SCALES.items():
        if (value := query.get(name)) and value not in known:
            raise UsageError(f"{name} = {value!r}: expected one of {', '.join(known)}")
    t_max = query.get("t_max") or None
    check_t_max(t_max, "t_max")
    return Chosen(words, t_max, _pairs(query, CHANNELS), _pairs(query, SCALES))


def _pairs(query: QueryParams, names: Mapping[str, Any] | Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, query[name]) for name in names if query.get(name))


# ---- what answers it ----


def runs_of(lab: Lab, study: str, chosen: Chosen) -> list[RunCurves]:
    """The runs that are asked for, with their curves."""
    key = ("runs", study, chosen.words, chosen.t_max)
    return lab.kept(key, lambda store: gather_curves(store, study, chosen.words, chosen.t_max))


def declared(lab: Lab, study: str) -> Declared:
    """What the study's file says is shown."""
    return lab.kept(("declared", study), lambda store: shown_in(store.study(study).text))


def figures(lab: Lab, study: str, chosen: Chosen) -> tuple[Figure, ...]:
    """The study's figures as they are asked for, not drawn yet."""
    runs = runs_of(lab, study, chosen)
    return tuple(_changed(figure, chosen, runs) for figure in figures_of(declared(lab, study), runs))


def _changed(figure: Figure, chosen: Chosen, runs: Sequence[RunCurves]) -> Figure:
    if figure.kind not in CHOOSABLE:
        return figure
    changes: dict[str, Any] = {name: None if dial == NONE else dial for name, dial in chosen.channels}
    if colour := changes.get("colour"):
        changes["colour_scale"] = _colour_scale(runs, colour)
    return figure.model_copy(update=changes | dict(chosen.scales))


def _colour_scale(runs: Sequence[RunCurves], dial: str) -> str:
    values = values_of(runs, dial)
    return scale_of(values) if all(is_number(value) for value in values) else "linear"


def figure(lab: Lab, study: str, chosen: Chosen, number: int) -> Shown:
    """The figure of this number, from 1 on, drawn."""
    known = figures(lab, study, chosen)
    if not 1 <= number <= len(known):
        raise MissingData(f"study {study} has figures 1 to {len(known)}, and no figure {number}")
    runs = runs_of(lab, study, chosen)
    return lab.derived(("figure", study, chosen, number), runs, lambda: show_figure(known[number - 1], runs, study))


def answers(lab: Lab, study: str, chosen: Chosen) -> list[dict[str, Any]]:
    """Every question of the study's file, answered from the runs that are asked for."""
    runs = runs_of(lab, study, chosen)
    key = ("answers", study, chosen.words, chosen.t_max)
    return lab.derived(key, runs, lambda: [_answer(answer(asked, runs)) for asked in declared(lab, study).questions])


def _answer(found: Answer) -> dict[str, Any]:
    asked = found.question.text or question_in_words(found.question)
    return {"asked": asked, "sentence": found.sentence, "warning": found.warning, "n": found.n}


def tables(lab: Lab, study: str, chosen: Chosen) -> tuple[Table, ...]:
    """The report's tables of the runs that are asked for."""
    runs = runs_of(lab, study, chosen)
    return lab.derived(("tables", study, chosen.words, chosen.t_max), runs, lambda: _tables(runs))


def _tables(runs: Sequence[RunCurves]) -> tuple[Table, ...]:
    return (*point_tables(summarise(runs)), *step_tables(runs))
