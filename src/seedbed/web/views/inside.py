"""Inside: where each token of a text looks, in every layer and head, and what heads do on held-out inputs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.web.model_views import Asked, GivenText, RunName, StepName, TheModels, answer
from seedbed.web.pages import page, sent

router = APIRouter()


class Attended(Asked):
    """A text to look into, token by token or gathered by word."""

    text: GivenText
    by: Literal["token", "word"] = "token"


@router.get("/inside")
def inside(request: Request, models: TheModels) -> Response:
    models.wake()
    return page(request, "inside.html")


@router.post("/api/attention")
async def attention(request: Request, models: TheModels, asked: Attended) -> Response:
    """All maps of a text."""
    return sent(await answer(request, models.question("attention", **asked.model_dump())))


@router.get("/api/heads/{run}")
async def heads(request: Request, models: TheModels, run: RunName, step: StepName = "last") -> Response:
    """The numbers of a run's heads as tables."""
    return sent(await answer(request, models.question("heads", run=run, step=step)))
