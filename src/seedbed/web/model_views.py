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
from seedbed.report.gather import points_of
from seedbed.settings import Value
from seedbed.store.store import Store
from seedbed.web.lab import TheLab
from seedbed.web.models import Models, Question
from seedbed.web.pages import sent

MOST_LISTED: Final = 3_000  # runs to choose from
MOST_SIGNS: Final = 20_000  # of a text

RunName: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
StepName: TypeAlias = Annotated[int, Field(ge=0, le=10**12)] | Literal["last", "best"]
GivenText: TypeAlias = Annotated[str, Field(max_length=MOST_SIGNS)]

router = APIRouter(prefix="/api/models")


class Asked(BaseModel):
    """A question about one run at one kept step."""

    model_config = ConfigDict(extra="forbid")

    run: RunName
    step: StepName = "last"


def _models_of(request: Request) -> Models:
    found: Models = request.app.state.models
    return found


TheModels = Annotated[Models, Depends(_models_of)]


@router.get("")
def listed(lab: TheLab) -> Response:
    """Every study with the runs that have begun, each named by what tells it from the others."""
    if not (lab.home / "store.db").exists():
        return sent({"studies": []})
    return sent(lab.kept("models", _runs_by_study))


def _runs_by_study(store: Store) -> dict[str, Any]:
    found, room = [], MOST_LISTED
    for study in store.studies():
        runs = [run for run in store.runs(study.name) if run.status != "planned"]
        if runs:
            found.append({"study": study.name, "runs": _named(runs, points_of(store, study.name, runs))[:room]})
        room = max(0, room - len(runs))
    said = f"the first {MOST_LISTED:,} runs are listed; open others from their own page" if not room else None
    return {"studies": found, "notice": said}


def _named(runs: Sequence[StoredRun], points: Sequence[Mapping[str, Value]]) -> list[dict[str, str]]:
    """Each run by its point, its seed and the start of its id."""
    words = [[f"{name}={value}" for name, value in point.items()] for point in points]
    return [
        {"id": run.id, "name": ", ".join([*some, f"seed {run.seed}", run.id[:8]])}
        for run, some in zip(runs, words, strict=True)
    ]


@router.get("/{run}")
def described(lab: TheLab, run: RunName) -> Response:
    """What a run is, and the steps whose weights were kept."""
    with lab.look() as store:
        found = store.run(run)
        steps = [kept.step for kept in store.checkpoints(found.id)]
    task, model = found.settings.task, found.settings.model
    return sent(
        {
            "id": found.id, "seed": found.seed, "status": found.status, "task": task.kind, "model": model.kind,
            "layers": model.layers, "heads": getattr(model, "heads", 1), "steps": steps, "best": found.best,
            "prompt": found.settings.train.prompt,
        }
    )  # fmt: skip


@router.get("/{run}/example")
async def example(request: Request, models: TheModels, run: RunName, step: StepName = "last", n: int = 0) -> Response:
    """A text that the run was held out from, or trained on where nothing was held out."""
    return sent(await answer(request, models.question("example", run=run, step=step, number=n % 2**31)))


# ---- answers ----


async def answer(request: Request, question: Question) -> Any:
    """The question's one value; None where its browser has gone away meanwhile."""
    try:
        return await _first(request, question)
    finally:
        question.cancel()


async def streamed(request: Request, question: Question) -> Response:
    """The question's values as server-sent events; an error before the first is an error of the request."""
    first = await _first(request, question)
    return StreamingResponse(_events(first, question), media_type="text/event-stream")


async def _events(value: Any, question: Question) -> AsyncIterator[str]:
    try:
        while value is not None:
            yield _event("value", value)
            value = await run_in_threadpool(next, question, None)
        yield _event("end", None)
    except SeedbedError as error:
        yield _event("trouble", str(error))
    finally:
        question.cancel()


def _event(name: str, value: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n"


async def _first(request: Request, question: Question) -> Any:
    """The first value; a browser that goes away meanwhile cancels the question, and who waits gets None."""
    watching = asyncio.create_task(_cancel_when_gone(request, question))
    try:
        return await run_in_threadpool(next, question, None)
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def _cancel_when_gone(request: Request, question: Question) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    question.cancel()
