"""The Inside page: attention maps of a text in every layer and head, and head statistics on held-out inputs."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from seedbed.web.model_routes import InputText, ModelClientDep, ModelRequest, RunId, StepOrName, await_reply
from seedbed.web.responses import json_response, render_page

router = APIRouter()


class AttentionRequest(ModelRequest):
    """A text whose attention is shown by token, or grouped by word."""

    text: InputText
    by: Literal["token", "word"] = "token"


@router.get("/inside")
def show_interp(request: Request, client: ModelClientDep) -> Response:
    client.start_worker()
    return render_page(request, "inside.html")


@router.post("/api/attention")
async def send_attention(request: Request, client: ModelClientDep, body: AttentionRequest) -> Response:
    """All attention maps of a text."""
    return json_response(await await_reply(request, client.request("attention", **body.model_dump())))


@router.get("/api/heads/{run}")
async def send_heads(request: Request, client: ModelClientDep, run: RunId, step: StepOrName = "last") -> Response:
    """Tables of a run's head statistics."""
    return json_response(await await_reply(request, client.request("heads", run=run, step=step)))
