"""All studies of the store: progress, time left, and each one's headline answer."""

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
def show_studies(request: Request, lab: StoreCacheDep) -> Response:
    """The page; what it lists comes by `/api/studies` and a stream."""
    return render_page(request, "studies.html", home=str(lab.home), has_store=(lab.home / "store.db").exists())


@router.get("/api/studies")
def list_studies(lab: StoreCacheDep) -> Response:
    """Every study with its question, the newest first."""
    if not (lab.home / "store.db").exists():
        return json_response({"studies": []})
    found = lab.get_or_compute("studies", lambda store: [_study_as_json(study) for study in reversed(store.studies())])
    return json_response({"studies": found})


def _study_as_json(study: StoredStudy) -> dict[str, object]:
    return {
        "name": study.name, "question": study_question(study), "created": study.created, "runs": study.n_runs,
        "states": dict(study.statuses), "varies": study.axes,
    }  # fmt: skip


@router.get("/api/headline/{name:path}")
def send_headline(lab: StoreCacheDep, name: str) -> Response:
    """The first question of a study's file and its answer; empty where it asks nothing."""
    first = next(iter(get_answers(lab, name, ViewParams())), None)
    return json_response(first or {"asked": "", "sentence": "", "warning": ""})
