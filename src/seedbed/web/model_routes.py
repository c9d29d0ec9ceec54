"""Shared by the pages that query models: the list of runs, validated requests, and replies to the browser.

A request whose browser has disconnected is cancelled, so that nothing is computed for a closed tab.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from seedbed.errors import SeedbedError
from seedbed.records import StoredRun
from seedbed.report.study_runs import run_configs
from seedbed.settings import Value
from seedbed.store import Store
from seedbed.web.model_client import ModelClient, ReplyStream
from seedbed.web.responses import json_response
from seedbed.web.store_cache import StoreCacheDep

MAX_LISTED_RUNS: Final = 3_000
MAX_TEXT_CHARACTERS: Final = 20_000

RunId: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
StepOrName: TypeAlias = Annotated[int, Field(ge=0, le=10**12)] | Literal["last", "best"]
InputText: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]

router = APIRouter(prefix="/api/models")


class ModelRequest(BaseModel):
    """The body of a request about one run at one stored step."""

    model_config = ConfigDict(extra="forbid")

    run: RunId
    step: StepOrName = "last"


def _get_model_client(request: Request) -> ModelClient:
    client: ModelClient = request.app.state.model_client
    return client


ModelClientDep = Annotated[ModelClient, Depends(_get_model_client)]


@router.get("")
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
            labelled = _label_runs(runs, run_configs(store, study.name, runs))
            studies.append({"study": study.name, "runs": labelled[:n_left]})
        n_left = max(0, n_left - len(runs))
    notice = f"the first {MAX_LISTED_RUNS:,} runs are listed; open others from their own page" if not n_left else None
    return {"studies": studies, "notice": notice}


def _label_runs(runs: Sequence[StoredRun], configs: Sequence[Mapping[str, Value]]) -> list[dict[str, str]]:
    """Each run's id with a label: its config, its seed and the start of its id."""
    return [
        {"id": run.id, "name": ", ".join([*_format_items(config), f"seed {run.seed}", run.id[:8]])}
        for run, config in zip(runs, configs, strict=True)
    ]


def _format_items(config: Mapping[str, Value]) -> list[str]:
    return [f"{name}={value}" for name, value in config.items()]


@router.get("/{run}")
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


@router.get("/{run}/example")
async def send_example(
    request: Request, client: ModelClientDep, run: RunId, step: StepOrName = "last", n: int = 0
) -> Response:
    """A held-out input of the run, or a training input if nothing was held out."""
    return json_response(await await_reply(request, client.request("example", run=run, step=step, number=n % 2**31)))


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
            yield _format_event("value", value)
            value = await run_in_threadpool(next, replies, None)
        yield _format_event("end", None)
    except SeedbedError as error:
        yield _format_event("failure", str(error))
    finally:
        replies.cancel()


def _format_event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n"


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
