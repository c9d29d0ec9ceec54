"""The Start page: pick a study, change its settings, see plan and estimate, start it; pause, resume and stop jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from seedbed.errors import MissingData
from seedbed.report.stored_analyses import count_missing_analyses
from seedbed.report.tables import to_json
from seedbed.store import Store
from seedbed.study.study_files import read_study_text, shipped_studies, study_question
from seedbed.web.jobs import JobManager, StudySource
from seedbed.web.live import LiveProgressDep
from seedbed.web.plan_preview import MAX_OVERRIDES, FieldProblem, PlanPreview, PlanRequest, build_form, preview_plan
from seedbed.web.responses import ProcessPoolDep, StoreCacheDep, app_state, json_response, render_page

MAX_LISTED_JOBS: Final = 30

JobManagerDep = Annotated[JobManager, app_state("job_manager")]
StudyName = Annotated[str, Field(min_length=1, max_length=200)]
OverridesQuery = Annotated[list[str], Query(default_factory=list, max_length=MAX_OVERRIDES)]

router = APIRouter()


class StartRequest(BaseModel):
    """The body of a request to start a study."""

    model_config = ConfigDict(extra="forbid", strict=True)

    study: StudyName
    source: StudySource = "shipped"
    overrides: list[str] = Field(default_factory=list, max_length=MAX_OVERRIDES)


@router.get("/start")
def show_start(request: Request) -> Response:
    """The page."""
    return render_page(request, "start.html")


@router.get("/api/start/studies")
def list_startable_studies(cache: StoreCacheDep) -> Response:
    """The studies that can be started: shipped ones and those in the store."""
    shipped = [
        {"name": name, "question": study_question(read_study_text(path), name)}
        for name, path in shipped_studies().items()
    ]
    try:
        stored = cache.get_or_compute("start", _list_stored_studies)
    except MissingData:  # an empty home
        stored = []
    return json_response({"shipped": shipped, "stored": stored})


def _list_stored_studies(store: Store) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "question": study_question(one.text, one.name), "states": dict(one.statuses)}
        for one in store.studies()
    ]


def _get_plan_request(study: str, override: OverridesQuery, source: StudySource = "shipped") -> PlanRequest:
    return PlanRequest(study, source, tuple(override))


PlanRequestDep = Annotated[PlanRequest, Depends(_get_plan_request)]


@router.get("/api/start/form")
def send_form(cache: StoreCacheDep, pool: ProcessPoolDep, request: PlanRequestDep) -> Response:
    """The settings of a study as form fields."""
    return json_response(pool.run(build_form, cache.home, request))


@router.get("/api/start/plan")
def send_plan(cache: StoreCacheDep, pool: ProcessPoolDep, request: PlanRequestDep) -> Response:
    """The plan of a study and its estimate, or all problems."""
    return json_response(_plan_as_json(pool.run(preview_plan, cache.home, request)))


def _plan_as_json(preview: PlanPreview | tuple[FieldProblem, ...]) -> dict[str, Any]:
    if isinstance(preview, PlanPreview):
        return {
            "runs": len(preview.job_spec.runs), "ended": preview.n_ended, "seconds": preview.seconds,
            "basis": preview.basis, "tables": list(map(to_json, preview.tables)), "warnings": preview.warnings,
            "problems": [],
        }  # fmt: skip
    return {"problems": [asdict(problem) for problem in preview]}


@router.post("/api/start")
def start_study(cache: StoreCacheDep, pool: ProcessPoolDep, manager: JobManagerDep, body: StartRequest) -> Response:
    """Plans the study again and starts it, unless there are problems."""
    preview = pool.run(preview_plan, cache.home, PlanRequest(body.study, body.source, tuple(body.overrides)))
    if not isinstance(preview, PlanPreview):
        return json_response(_plan_as_json(preview))
    return json_response({"problems": [], "job": asdict(manager.start(preview.job_spec))})


@router.get("/api/start/jobs")
def list_jobs(manager: JobManagerDep, live: LiveProgressDep) -> Response:
    """The jobs, most recent first; those that train with the progress of their own runs."""
    jobs = manager.jobs()
    listed = []
    for job in jobs[:MAX_LISTED_JOBS]:
        is_training = job.state == "running" and job.kind == "run"
        progress = live.job_progress(job.id, job.study, manager.job_runs(job.id)) if is_training else None
        listed.append(asdict(job) | {"progress": progress and asdict(progress)})
    return json_response({"jobs": listed, "more": max(0, len(jobs) - MAX_LISTED_JOBS)})


# ---- analyses ----


@router.get("/api/analyses/{name:path}")
def send_missing_analyses(cache: StoreCacheDep, manager: JobManagerDep, name: str) -> Response:
    """How many analyses of checkpoints a study lacks, and the latest job that computes them."""
    missing = cache.get_or_compute(("analyses", name), lambda store: count_missing_analyses(store, name))
    jobs = (job for job in manager.jobs() if (job.kind, job.study) == ("analyze", name))
    return json_response({"missing": missing, "job": (job := next(jobs, None)) and asdict(job)})


@router.post("/api/analyses/{name:path}")
def start_analyses(cache: StoreCacheDep, manager: JobManagerDep, name: str) -> Response:
    """Starts computing the analyses that a study lacks."""
    with cache.open_store() as store:
        study = store.study(name).name
    return json_response({"job": asdict(manager.analyze(study))})


# ---- one job ----


@router.get("/api/start/log/{id}")
def send_log(manager: JobManagerDep, id: str) -> Response:
    """The end of a job's log as plain text."""
    return PlainTextResponse(manager.read_log(id))


@router.post("/api/start/{id}/{action}")
def change_job(manager: JobManagerDep, id: str, action: Literal["pause", "resume", "stop", "forget"]) -> Response:
    """Pauses, resumes, stops or forgets a job."""
    if action == "forget":
        manager.forget(id)
        return json_response({"job": None})
    change = {"pause": manager.pause, "resume": manager.resume, "stop": manager.stop}[action]
    return json_response({"job": asdict(change(id))})
