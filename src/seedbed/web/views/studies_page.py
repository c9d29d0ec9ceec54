"""The page of all studies in the store: progress, time left, and the first answer of each."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.records import StoredStudy
from seedbed.report.sections import study_question
from seedbed.web.responses import json_response, render_page
from seedbed.web.store_cache import StoreCacheDep
from seedbed.web.view_params import ViewParams, get_answers

router = APIRouter()


@router.get("/")
def show_studies(request: Request, cache: StoreCacheDep) -> Response:
    """The page; its script requests `/api/studies` and a live stream."""
    return render_page(request, "studies.html", home=str(cache.home), has_store=cache.has_store())


@router.get("/api/studies")
def list_studies(cache: StoreCacheDep) -> Response:
    """Every study with its question, newest first."""
    if not cache.has_store():
        return json_response({"studies": []})
    studies = cache.get_or_compute(
        "studies", lambda store: [_study_as_json(study) for study in reversed(store.studies())]
    )
    return json_response({"studies": studies})


def _study_as_json(study: StoredStudy) -> dict[str, object]:
    return {
        "name": study.name, "question": study_question(study), "created": study.created, "runs": study.n_runs,
        "states": dict(study.statuses), "varies": study.axes,
    }  # fmt: skip


@router.get("/api/headline/{name:path}")
def send_headline(cache: StoreCacheDep, name: str) -> Response:
    """The first question of a study and its answer; empty if the study declares none."""
    first = next(iter(get_answers(cache, name, ViewParams())), None)
    return json_response(first or {"question": "", "sentence": "", "warning": ""})
