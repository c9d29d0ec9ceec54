"""Pick a study, change its dials, see its plan and price, and start it; pause, resume and stop what was started."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from seedbed.errors import MissingData
from seedbed.store.store import Store
from seedbed.study.files import read_text, shipped_studies
from seedbed.web.aside import TheAside
from seedbed.web.control import Control
from seedbed.web.form import form_asked
from seedbed.web.lab import TheLab
from seedbed.web.pages import page, sent
from seedbed.web.planning import MOST_WORDS, Asked, Planned, plan_asked, question_of
from seedbed.web.standing import Job
from seedbed.web.started import Source
from seedbed.web.views.study import table_as_json

MOST_SHOWN: Final = 30  # of what was started
router = APIRouter()


def _control_of(request: Request) -> Control:
    found: Control = request.app.state.control
    return found


TheControl = Annotated[Control, Depends(_control_of)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[list[str], Query(default_factory=list, max_length=MOST_WORDS)]


class Wanted(BaseModel):
    """The body of a start."""

    model_config = ConfigDict(extra="forbid", strict=True)

    study: Name
    source: Source = "shipped"
    words: list[str] = Field(default_factory=list, max_length=MOST_WORDS)


@router.get("/start")
def show_start(request: Request) -> Response:
    """The page."""
    return page(request, "start.html")


@router.get("/api/start/studies")
def list_studies(lab: TheLab) -> Response:
    """What can be picked: the shipped studies, and those of the store."""
    shipped = [
        {"name": name, "question": question_of(read_text(path), name)} for name, path in shipped_studies().items()
    ]
    return sent({"shipped": shipped, "stored": _stored(lab)})


def _stored(lab: TheLab) -> list[dict[str, Any]]:
    def read(store: Store) -> list[dict[str, Any]]:
        return [
            {"name": study.name, "question": question_of(study.text, study.name), "states": dict(study.statuses)}
            for study in store.studies()
        ]

    try:
        return lab.kept("start", read)
    except MissingData:  # an empty home
        return []


@router.get("/api/start/form")
def show_form(lab: TheLab, aside: TheAside, study: str, word: Words, source: Source = "shipped") -> Response:
    """The dials of a study, for a form."""
    return sent(aside.ask(form_asked, lab.home, Asked(study, source, tuple(word))))


@router.get("/api/start/plan")
def show_plan(lab: TheLab, aside: TheAside, study: str, word: Words, source: Source = "shipped") -> Response:
    """What would be trained and what it takes, or everything that is wrong with it."""
    found = aside.ask(plan_asked, lab.home, Asked(study, source, tuple(word)))
    return sent(_as_json(found))


def _as_json(found: Planned | tuple[Any, ...]) -> dict[str, Any]:
    if isinstance(found, Planned):
        tables = [table_as_json(table) for table in found.tables]
        return {"runs": len(found.order.runs), "tables": tables, "warnings": found.warnings, "problems": []}
    return {"problems": [asdict(wrong) for wrong in found]}


@router.post("/api/start")
def start(lab: TheLab, aside: TheAside, control: TheControl, wanted: Wanted) -> Response:
    """Plan it once more and start it; with problems nothing is started."""
    found = aside.ask(plan_asked, lab.home, Asked(wanted.study, wanted.source, tuple(wanted.words)))
    if not isinstance(found, Planned):
        return sent(_as_json(found))
    return sent({"problems": [], "job": asdict(control.start(found.order))})


@router.get("/api/start/jobs")
def list_jobs(control: TheControl) -> Response:
    """What was started, the latest first."""
    jobs = control.jobs()
    return sent({"jobs": [asdict(job) for job in jobs[:MOST_SHOWN]], "more": max(0, len(jobs) - MOST_SHOWN)})


@router.get("/api/start/log/{id}")
def show_log(control: TheControl, id: str) -> Response:
    """The end of what its processes said, as plain text."""
    return PlainTextResponse(control.log(id))


@router.post("/api/start/{id}/{what}")
def change(control: TheControl, id: str, what: Literal["pause", "resume", "stop", "forget"]) -> Response:
    """Pause, resume, stop or forget one of them."""
    if what == "forget":
        control.forget(id)
        return sent({"job": None})
    acts = {"pause": control.pause, "resume": control.resume, "stop": control.stop}
    job: Job = acts[what](id)
    return sent({"job": asdict(job)})
