"""Inside: where each token of a text looks, in every layer and head, and what heads do on held-out inputs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.web.model_routes import InputText, ModelClientDep, ModelRequest, RunId, StepOrName, await_reply
from seedbed.web.responses import json_response, render_page

router = APIRouter()


class AttentionRequest(ModelRequest):
    """A text to look into, token by token or gathered by word."""

    text: InputText
    by: Literal["token", "word"] = "token"


@router.get("/inside")
def show_interp(request: Request, models: ModelClientDep) -> Response:
    models.start_worker()
    return render_page(request, "inside.html")


@router.post("/api/attention")
async def send_attention(request: Request, models: ModelClientDep, asked: AttentionRequest) -> Response:
    """All maps of a text."""
    return json_response(await await_reply(request, models.request("attention", **asked.model_dump())))


@router.get("/api/heads/{run}")
async def send_heads(request: Request, models: ModelClientDep, run: RunId, step: StepOrName = "last") -> Response:
    """The numbers of a run's heads as tables."""
    return json_response(await await_reply(request, models.request("heads", run=run, step=step)))
