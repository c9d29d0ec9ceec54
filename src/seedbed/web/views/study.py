"""One study, live: what its report says, drawn from the store as it is now, seen the way its viewer asks.

The page asks in parts, so that what is seen first comes first: words, each figure when it is on the screen, points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.charts.axes import values_of
from seedbed.charts.labels import dial_in_words, spelled
from seedbed.measures.summary import RunCurves
from seedbed.report.figures import Shown, filter_word
from seedbed.report.sections import commands_of, facts_tables, question_of, state_of, warnings_of
from seedbed.report.tables import Table
from seedbed.settings import Value
from seedbed.store.store import Store
from seedbed.web.chosen import Chosen, answers, chosen_in, figure, figures, runs_of, tables
from seedbed.web.lab import Lab, TheLab
from seedbed.web.pages import page, sent
from seedbed.web.points import points_as_json

router = APIRouter()


@router.get("/study/{name:path}")
def show_study(request: Request, lab: TheLab, name: str) -> Response:
    """The page of a study; 404 with the names that there are when there is none."""
    study = lab.kept(("study", name), lambda store: store.study(name))
    return page(request, "study.html", name=name, question=question_of(study), n_runs=study.n_runs)


@router.get("/api/study/{name:path}")
def tell_study(request: Request, lab: TheLab, name: str) -> Response:
    """How it stands: state, warnings, dials to choose from, and how many figures and tables there are."""
    chosen = chosen_in(request.query_params)
    runs = runs_of(lab, name, chosen)
    return sent(lab.derived(("told", name, chosen), runs, lambda: _told(lab, name, chosen, runs)))


def _told(lab: Lab, name: str, chosen: Chosen, runs: Sequence[RunCurves]) -> dict[str, Any]:
    return {
        "state": state_of(runs),
        "warnings": list(warnings_of(runs)),
        "dials": _dials(lab, name),
        "figures": [one.title for one in figures(lab, name, chosen)],
        "commands": commands_of([name], chosen.words),
    }


def _dials(lab: Lab, name: str) -> list[dict[str, Any]]:
    """What can be coloured and filtered by: dials with several values over all runs of the study, and the seed."""
    every = runs_of(lab, name, Chosen())
    names = [*dict.fromkeys(dial for run in every for dial in run.point), "seed"]
    values = {dial: values_of(every, dial) for dial in names}
    return [_dial(dial, found) for dial, found in values.items() if len(found) > 1]


def _dial(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """A dial with its values as they read, and as the words of a filter spell them."""
    words = [{"text": spelled(value), "word": filter_word(name, value)} for value in values]
    return {"name": name, "key": "seeds" if name == "seed" else name, "label": dial_in_words(name), "values": words}


@router.get("/api/answers/{name:path}")
def tell_answers(request: Request, lab: TheLab, name: str) -> Response:
    """Every question of the study's file, answered from the runs that are asked for."""
    return sent({"answers": answers(lab, name, chosen_in(request.query_params))})


@router.get("/api/figure/{name:path}")
def tell_figure(request: Request, lab: TheLab, name: str, number: int = 1) -> Response:
    """One figure of the study as it is asked for, with its Vega-Lite document."""
    return sent(figure_as_json(figure(lab, name, chosen_in(request.query_params), number), number))


def figure_as_json(shown: Shown, number: int) -> dict[str, Any]:
    """A figure for the page."""
    return {
        "number": number, "title": shown.title, "report": shown.report, "notes": shown.notes,
        "command": shown.command, "spec": shown.spec,
    }  # fmt: skip


@router.get("/api/points/{name:path}")
def tell_points(request: Request, lab: TheLab, name: str) -> Response:
    """The table of points, with the runs behind each mean."""
    chosen = chosen_in(request.query_params)
    runs = runs_of(lab, name, chosen)
    return sent(lab.derived(("points", name, chosen.words, chosen.t_max), runs, lambda: points_as_json(runs)))


@router.get("/api/tables/{name:path}")
def tell_tables(request: Request, lab: TheLab, name: str) -> Response:
    """The report's tables, and what its numbers depend on."""
    chosen = chosen_in(request.query_params)
    facts = lab.kept(("facts", name, chosen), lambda store: _facts(store, lab, name, chosen))
    found = [table_as_json(table) for table in tables(lab, name, chosen)]
    return sent({"tables": found, "facts": facts["tables"], "text": facts["text"]})


def _facts(store: Store, lab: Lab, name: str, chosen: Chosen) -> dict[str, Any]:
    found = facts_tables(store, [name], runs_of(lab, name, chosen))
    return {"tables": [table_as_json(table) for table in found], "text": store.study(name).text}


def table_as_json(table: Table) -> dict[str, Any]:
    """A table for the page."""
    return {
        "title": table.title, "columns": table.columns, "rows": table.rows, "notes": table.notes,
        "best": sorted(table.best), "labels": table.n_labels,
    }  # fmt: skip
