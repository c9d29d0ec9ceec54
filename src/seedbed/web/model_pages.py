"""The pages that query models: Inside shows attention and heads of a text, Playground lets a run continue a prompt.

Requests are validated here and answered by the model worker. A request whose browser has disconnected is cancelled, so
that nothing is computed for a closed tab.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from seedbed.errors import SeedbedError
from seedbed.format import format_config
from seedbed.report.study_runs import run_configs
from seedbed.store import Store
from seedbed.web.model_client import MAX_GENERATED_TOKENS, ModelClient, ReplyStream
from seedbed.web.responses import StoreCacheDep, app_state, format_event, json_response, render_page

MAX_LISTED_RUNS: Final = 3_000
MAX_TEXT_CHARACTERS: Final = 20_000
MAX_INPUT_TOKENS: Final = 20_000

RunId: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
StepOrName: TypeAlias = Annotated[int, Field(ge=0, le=10**12)] | Literal["last", "best"]
InputText: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
TokenIds: TypeAlias = Annotated[list[Annotated[int, Field(ge=0, le=10**9)]], Field(max_length=MAX_INPUT_TOKENS)]
ModelClientDep = Annotated[ModelClient, app_state("model_client")]

router = APIRouter()


# ---- bodies of requests ----


class ModelRequest(BaseModel):
    """The body of a request about one run at one stored step."""

    model_config = ConfigDict(extra="forbid")

    run: RunId
    step: StepOrName = "last"


class AttentionRequest(ModelRequest):
    """A text whose attention is shown by token, or grouped by word."""

    text: InputText
    by: Literal["token", "word"] = "token"


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


# ---- choosing a run ----


@router.get("/api/models")
def list_models(cache: StoreCacheDep) -> Response:
    """Every study with its started runs, each labelled by the settings that vary."""
    if not cache.has_store():
        return json_response({"studies": []})
    return json_response(cache.get_or_compute("models", _list_runs_by_study))


def _list_runs_by_study(store: Store) -> dict[str, Any]:
    studies, n_left = [], MAX_LISTED_RUNS
    for study in store.studies():
        runs = [run for run in store.runs(study.name, skip_unreadable=True) if run.status != "planned"]
        if runs:
            labelled = []
            for run, config in zip(runs, run_configs(store, study.name, runs), strict=True):
                parts = filter(None, (format_config(config), f"seed {run.seed}", run.id[:8]))
                labelled.append({"id": run.id, "name": ", ".join(parts)})
            studies.append({"study": study.name, "runs": labelled[:n_left]})
        n_left = max(0, n_left - len(runs))
    notice = f"the first {MAX_LISTED_RUNS:,} runs are listed; open others from their own page" if not n_left else None
    return {"studies": studies, "notice": notice}


@router.get("/api/models/{run}")
def describe_model(cache: StoreCacheDep, run: RunId) -> Response:
    """A run's task and model, and the steps of its checkpoints."""
    with cache.open_store() as store:
        stored = store.run(run)
        steps = [checkpoint.step for checkpoint in store.checkpoints(stored.id)]
    task, model = stored.settings.task, stored.settings.model
    return json_response(
        {
            "id": stored.id, "seed": stored.seed, "status": stored.status, "task": task.kind, "model": model.kind,
            "layers": model.layers, "heads": getattr(model, "heads", 1), "steps": steps, "best": stored.best_step,
            "prompt": stored.settings.train.prompt, "predicts": task.predicts, "completes": task.completes_prompts,
        }
    )  # fmt: skip


@router.get("/api/models/{run}/example")
async def send_example(
    request: Request, client: ModelClientDep, run: RunId, step: StepOrName = "last", n: int = 0
) -> Response:
    """A held-out input of the run, or a training input if nothing was held out."""
    return json_response(await await_reply(request, client.request("example", run=run, step=step, number=n % 2**31)))


# ---- Inside ----


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


# ---- Playground ----


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


# ---- replies ----


async def await_reply(request: Request, replies: ReplyStream) -> Any:
    """The single value of a request; None if the browser has disconnected."""
    try:
        return await _first_value(request, replies)
    finally:
        replies.cancel()


async def stream_replies(request: Request, replies: ReplyStream) -> Response:
    """The values of a request as server-sent events; an error before the first value is an HTTP error."""
    first = await _first_value(request, replies)
    return StreamingResponse(_event_stream(first, replies), media_type="text/event-stream")


async def _event_stream(value: Any, replies: ReplyStream) -> AsyncIterator[str]:
    try:
        while value is not None:
            yield format_event("value", value)
            value = await run_in_threadpool(next, replies, None)
        yield format_event("end", None)
    except SeedbedError as error:
        yield format_event("failure", str(error))
    finally:
        replies.cancel()


async def _first_value(request: Request, replies: ReplyStream) -> Any:
    """The first value; None if the browser disconnects first, which cancels the request."""
    watcher = asyncio.create_task(_cancel_on_disconnect(request, replies))
    try:
        return await run_in_threadpool(next, replies, None)
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _cancel_on_disconnect(request: Request, replies: ReplyStream) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    replies.cancel()
