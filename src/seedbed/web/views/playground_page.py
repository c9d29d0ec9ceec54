"""The Playground page: a run continues a prompt token by token, and shows the alternatives of each token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from seedbed.web.model_client import MAX_GENERATED_TOKENS
from seedbed.web.model_routes import InputText, ModelClientDep, ModelRequest, await_reply, stream_replies
from seedbed.web.responses import json_response, render_page

MAX_INPUT_TOKENS = 20_000

TokenIds = Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], Field(max_length=MAX_INPUT_TOKENS)]

router = APIRouter()


class SamplingRequest(ModelRequest):
    """Sampling parameters."""

    temperature: float = Field(1.0, ge=0.0, le=100.0)
    top_k: int = Field(0, ge=0, le=10**9)
    top_p: float = Field(1.0, gt=0.0, le=1.0)


class GenerateRequest(SamplingRequest):
    """A prompt to continue, as text or as token ids."""

    given: InputText | TokenIds = ""
    tokens: int = Field(200, ge=1, le=MAX_GENERATED_TOKENS)
    seed: int = Field(0, ge=0, lt=2**63)


class AlternativesRequest(SamplingRequest):
    """A position in a text: the token ids before it, how many of them are the prompt, and the token chosen there."""

    ids: Annotated[TokenIds, Field(min_length=1)]
    n_prompt: int = Field(ge=1, le=MAX_INPUT_TOKENS)
    chosen: int | None = Field(None, ge=0, le=10**9)


@router.get("/playground")
def show_playground(request: Request, client: ModelClientDep) -> Response:
    client.start_worker()
    return render_page(request, "playground.html", max_tokens=MAX_GENERATED_TOKENS)


@router.post("/api/write")
async def stream_generation(request: Request, client: ModelClientDep, body: GenerateRequest) -> Response:
    """The prompt's tokens, then the new ones as they are sampled; for a classifier, its label probabilities."""
    return await stream_replies(request, client.request("write", **body.model_dump()))


@router.post("/api/alternatives")
async def send_alternatives(request: Request, client: ModelClientDep, body: AlternativesRequest) -> Response:
    """The most likely tokens at a position."""
    return json_response(await await_reply(request, client.request("alternatives", **body.model_dump())))
