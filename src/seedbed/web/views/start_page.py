"""Pick a study, change its dials, see its plan and price, and start it; pause, resume and stop what was started."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from seedbed.errors import MissingData
from seedbed.store.store import Store
from seedbed.study.study_files import read_study_text, shipped_studies
from seedbed.web.job_manager import JobManager
from seedbed.web.job_status import Job
from seedbed.web.jobs import StudySource
from seedbed.web.plan_preview import MAX_OVERRIDES, PlanPreview, PlanRequest, get_question, preview_plan
from seedbed.web.process_pool import ProcessPoolDep
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.study_form import build_form
from seedbed.web.views.study_page import table_as_json

MAX_LISTED_JOBS: Final = 30  # of what was started
router = APIRouter()


def _get_job_manager(request: Request) -> JobManager:
    found: JobManager = request.app.state.control
    return found


JobManagerDep = Annotated[JobManager, Depends(_get_job_manager)]
StudyName = Annotated[str, Field(min_length=1, max_length=200)]
OverridesQuery = Annotated[list[str], Query(default_factory=list, max_length=MAX_OVERRIDES)]


class StartRequest(BaseModel):
    """The body of a start."""

    model_config = ConfigDict(extra="forbid", strict=True)

    study: StudyName
    source: StudySource = "shipped"
    words: list[str] = Field(default_factory=list, max_length=MAX_OVERRIDES)


@router.get("/start")
def show_start(request: Request) -> Response:
    """The page."""
    return render_page(request, "start.html")


@router.get("/api/start/studies")
def list_startable_studies(lab: StoreCacheDep) -> Response:
    """What can be picked: the shipped studies, and those of the store."""
    shipped = [
        {"name": name, "question": get_question(read_study_text(path), name)}
        for name, path in shipped_studies().items()
    ]
    return json_response({"shipped": shipped, "stored": _list_stored_studies(lab)})


def _list_stored_studies(lab: StoreCacheDep) -> list[dict[str, Any]]:
    def read(store: Store) -> list[dict[str, Any]]:
        return [
            {"name": study.name, "question": get_question(study.text, study.name), "states": dict(study.statuses)}
            for study in store.studies()
        ]

    try:
        return lab.get_or_compute("start", read)
    except MissingData:  # an empty home
        return []


@router.get("/api/start/form")
def send_form(
    lab: StoreCacheDep, aside: ProcessPoolDep, study: str, word: OverridesQuery, source: StudySource = "shipped"
) -> Response:
    """The dials of a study, for a form."""
    return json_response(aside.run(build_form, lab.home, PlanRequest(study, source, tuple(word))))


@router.get("/api/start/plan")
def send_plan(
    lab: StoreCacheDep, aside: ProcessPoolDep, study: str, word: OverridesQuery, source: StudySource = "shipped"
) -> Response:
    """What would be trained and what it takes, or everything that is wrong with it."""
    found = aside.run(preview_plan, lab.home, PlanRequest(study, source, tuple(word)))
    return json_response(_plan_as_json(found))


def _plan_as_json(found: PlanPreview | tuple[Any, ...]) -> dict[str, Any]:
    if isinstance(found, PlanPreview):
        tables = [table_as_json(table) for table in found.tables]
        return {"runs": len(found.job_spec.runs), "tables": tables, "warnings": found.warnings, "problems": []}
    return {"problems": [asdict(wrong) for wrong in found]}


@router.post("/api/start")
def start_study(lab: StoreCacheDep, aside: ProcessPoolDep, control: JobManagerDep, wanted: StartRequest) -> Response:
    """Plan it once more and start it; with problems nothing is started."""
    found = aside.run(preview_plan, lab.home, PlanRequest(wanted.study, wanted.source, tuple(wanted.words)))
    if not isinstance(found, PlanPreview):
        return json_response(_plan_as_json(found))
    return json_response({"problems": [], "job": asdict(control.start(found.job_spec))})


@router.get("/api/start/jobs")
def list_jobs(control: JobManagerDep) -> Response:
    """What was started, the latest first."""
    jobs = control.jobs()
    return json_response(
        {"jobs": [asdict(job) for job in jobs[:MAX_LISTED_JOBS]], "more": max(0, len(jobs) - MAX_LISTED_JOBS)}
    )


@router.get("/api/start/log/{id}")
def send_log(control: JobManagerDep, id: str) -> Response:
    """The end of what its processes said, as plain text."""
    return PlainTextResponse(control.read_log(id))


@router.post("/api/start/{id}/{what}")
def change_job(control: JobManagerDep, id: str, what: Literal["pause", "resume", "stop", "forget"]) -> Response:
    """Pause, resume, stop or forget one of them."""
    if what == "forget":
        control.forget(id)
        return json_response({"job": None})
    acts = {"pause": control.pause, "resume": control.resume, "stop": control.stop}
    job: Job = acts[what](id)
    return json_response({"job": asdict(job)})
