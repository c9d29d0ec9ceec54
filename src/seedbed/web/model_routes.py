"""What the views of models share: which runs can be asked, what a question may hold, and answers to a browser.

A question whose browser has gone away is cancelled, so that nobody computes for a closed tab.
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
from seedbed.store.store import Store
from seedbed.web.model_client import ModelClient, ReplyStream
from seedbed.web.responses import json_response
from seedbed.web.store_cache import StoreCacheDep

MAX_LISTED_RUNS: Final = 3_000  # runs to choose from
MAX_TEXT_CHARACTERS: Final = 20_000  # of a text

RunId: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
StepOrName: TypeAlias = Annotated[int, Field(ge=0, le=10**12)] | Literal["last", "best"]
InputText: TypeAlias = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]

router = APIRouter(prefix="/api/models")


class ModelRequest(BaseModel):
    """A question about one run at one kept step."""

    model_config = ConfigDict(extra="forbid")

    run: RunId
    step: StepOrName = "last"


def _get_model_client(request: Request) -> ModelClient:
    found: ModelClient = request.app.state.models
    return found


ModelClientDep = Annotated[ModelClient, Depends(_get_model_client)]


@router.get("")
def list_models(lab: StoreCacheDep) -> Response:
    """Every study with the runs that have begun, each named by what tells it from the others."""
    if not (lab.home / "store.db").exists():
        return json_response({"studies": []})
    return json_response(lab.get_or_compute("models", _list_runs_by_study))


def _list_runs_by_study(store: Store) -> dict[str, Any]:
    found, room = [], MAX_LISTED_RUNS
    for study in store.studies():
        runs = [run for run in store.runs(study.name) if run.status != "planned"]
        if runs:
            found.append({"study": study.name, "runs": _label_runs(runs, run_configs(store, study.name, runs))[:room]})
        room = max(0, room - len(runs))
    said = f"the first {MAX_LISTED_RUNS:,} runs are listed; open others from their own page" if not room else None
    return {"studies": found, "notice": said}


def _label_runs(runs: Sequence[StoredRun], points: Sequence[Mapping[str, Value]]) -> list[dict[str, str]]:
    """Each run by its point, its seed and the start of its id."""
    words = [[f"{name}={value}" for name, value in point.items()] for point in points]
    return [
        {"id": run.id, "name": ", ".join([*some, f"seed {run.seed}", run.id[:8]])}
        for run, some in zip(runs, words, strict=True)
    ]


@router.get("/{run}")
def describe_model(lab: StoreCacheDep, run: RunId) -> Response:
    """What a run is, and the steps whose weights were kept."""
    with lab.open_store() as store:
        found = store.run(run)
        steps = [kept.step for kept in store.checkpoints(found.id)]
    task, model = found.settings.task, found.settings.model
    return json_response(
        {
            "id": found.id, "seed": found.seed, "status": found.status, "task": task.kind, "model": model.kind,
            "layers": model.layers, "heads": getattr(model, "heads", 1), "steps": steps, "best": found.best_step,
            "prompt": found.settings.train.prompt,
        }
    )  # fmt: skip


@router.get("/{run}/example")
async def send_example(
    request: Request, models: ModelClientDep, run: RunId, step: StepOrName = "last", n: int = 0
) -> Response:
    """A text that the run was held out from, or trained on where nothing was held out."""
    return json_response(await await_reply(request, models.request("example", run=run, step=step, number=n % 2**31)))


# ---- answers ----


async def await_reply(request: Request, question: ReplyStream) -> Any:
    """The question's one value; None where its browser has gone away meanwhile."""
    try:
        return await _first_value(request, question)
    finally:
        question.cancel()


async def stream_replies(request: Request, question: ReplyStream) -> Response:
    """The question's values as server-sent events; an error before the first is an error of the request."""
    first = await _first_value(request, question)
    return StreamingResponse(_event_stream(first, question), media_type="text/event-stream")


async def _event_stream(value: Any, question: ReplyStream) -> AsyncIterator[str]:
    try:
        while value is not None:
            yield _format_event("value", value)
            value = await run_in_threadpool(next, question, None)
        yield _format_event("end", None)
    except SeedbedError as error:
        yield _format_event("trouble", str(error))
    finally:
        question.cancel()


def _format_event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n"


async def _first_value(request: Request, question: ReplyStream) -> Any:
    """The first value; a browser that goes away meanwhile cancels the question, and who waits gets None."""
    watching = asyncio.create_task(_cancel_on_disconnect(request, question))
    try:
        return await run_in_threadpool(next, question, None)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _cancel_on_disconnect(request: Request, question: ReplyStream) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    question.cancel()
