"""Playground: a run writes on from a prompt, token by token, and says what else it could have written."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from seedbed.web.model_views import Asked, GivenText, TheModels, answer, streamed
from seedbed.web.models import MOST_TOKENS
from seedbed.web.pages import page, sent

MOST_IDS = 20_000  # tokens of a text that goes on

Ids = Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], Field(max_length=MOST_IDS)]

router = APIRouter()


class Drawn(Asked):
    """How tokens are drawn."""

    temperature: float = Field(1.0, ge=0.0, le=100.0)
    top_k: int = Field(0, ge=0, le=10**9)
    top_p: float = Field(1.0, gt=0.0, le=1.0)


class Written(Drawn):
    """A text to write on from: as it was typed, or as the tokens that it has come to."""

    given: GivenText | Ids = ""
    tokens: int = Field(200, ge=1, le=MOST_TOKENS)
    seed: int = Field(0, ge=0, lt=2**63)


class Alternatives(Drawn):
    """A place in a text: the tokens before it, how many of them were given, and the one that stands there."""

    ids: Annotated[Ids, Field(min_length=1)]
    begun: int = Field(ge=1, le=MOST_IDS)
    chosen: int | None = Field(None, ge=0, le=10**9)


@router.get("/playground")
def playground(request: Request, models: TheModels) -> Response:
    models.wake()
    return page(request, "playground.html", most_tokens=MOST_TOKENS)


@router.post("/api/write")
async def write(request: Request, models: TheModels, asked: Written) -> Response:
    """The tokens that were given, then the new ones as they come; of a classifier its labels."""
    return await streamed(request, models.question("write", **asked.model_dump()))


@router.post("/api/alternatives")
async def alternatives(request: Request, models: TheModels, asked: Alternatives) -> Response:
    """What could stand at a place."""
    return sent(await answer(request, models.question("alternatives", **asked.model_dump())))
