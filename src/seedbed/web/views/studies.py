"""All studies of the store: progress, time left, and each one's headline answer."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.records import StoredStudy
from seedbed.report.sections import question_of
from seedbed.web.chosen import Chosen, answers
from seedbed.web.lab import TheLab
from seedbed.web.pages import page, sent

router = APIRouter()


@router.get("/")
def show_studies(request: Request, lab: TheLab) -> Response:
    """The page; what it lists comes by `/api/studies` and a stream."""
    return page(request, "studies.html", home=str(lab.home), has_store=(lab.home / "store.db").exists())


@router.get("/api/studies")
def list_studies(lab: TheLab) -> Response:
    """Every study with its question, the newest first."""
    if not (lab.home / "store.db").exists():
        return sent({"studies": []})
    found = lab.kept("studies", lambda store: [_as_json(study) for study in reversed(store.studies())])
    return sent({"studies": found})


def _as_json(study: StoredStudy) -> dict[str, object]:
    return {
        "name": study.name, "question": question_of(study), "created": study.created, "runs": study.n_runs,
        "states": dict(study.statuses), "varies": study.axes,
    }  # fmt: skip


@router.get("/api/headline/{name:path}")
def headline(lab: TheLab, name: str) -> Response:
    """The first question of a study's file and its answer; empty where it asks nothing."""
    first = next(iter(answers(lab, name, Chosen())), None)
    return sent(first or {"asked": "", "sentence": "", "warning": ""})
