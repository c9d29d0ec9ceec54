"""Playground: a run writes on from a prompt, token by token, and says what else it could have written."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from seedbed.web.model_client import MAX_GENERATED_TOKENS
from seedbed.web.model_routes import InputText, ModelClientDep, ModelRequest, await_reply, stream_replies
from seedbed.web.responses import json_response, render_page

MAX_INPUT_TOKENS = 20_000  # tokens of a text that goes on

TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], Field(max_length=MAX_INPUT_TOKENS)]

router = APIRouter()


class SamplingRequest(ModelRequest):
    """How tokens are drawn."""

    temperature: float = Field(1.0, ge=0.0, le=100.0)
    top_k: int = Field(0, ge=0, le=10**9)
    top_p: float = Field(1.0, gt=0.0, le=1.0)


class GenerateRequest(SamplingRequest):
    """A text to write on from: as it was typed, or as the tokens that it has come to."""

    given: InputText | TokenIds = ""
    tokens: int = Field(200, ge=1, le=MAX_GENERATED_TOKENS)
    seed: int = Field(0, ge=0, lt=2**63)


class AlternativesRequest(SamplingRequest):
    """A place in a text: the tokens before it, how many of them were given, and the one that stands there."""

    ids: Annotated[TokenIds, Field(min_length=1)]
    begun: int = Field(ge=1, le=MAX_INPUT_TOKENS)
    chosen: int | None = Field(None, ge=0, le=10**9)


@router.get("/playground")
def show_playground(request: Request, models: ModelClientDep) -> Response:
    models.start_worker()
    return render_page(request, "playground.html", most_tokens=MAX_GENERATED_TOKENS)


@router.post("/api/write")
async def stream_generation(request: Request, models: ModelClientDep, asked: GenerateRequest) -> Response:
    """The tokens that were given, then the new ones as they come; of a classifier its labels."""
    return await stream_replies(request, models.request("write", **asked.model_dump()))


@router.post("/api/alternatives")
async def send_alternatives(request: Request, models: ModelClientDep, asked: AlternativesRequest) -> Response:
    """What could stand at a place."""
    return json_response(await await_reply(request, models.request("alternatives", **asked.model_dump())))
