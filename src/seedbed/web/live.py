"""What changes while studies train, told to open pages as server-sent events, at most two seconds late.

    stream("/api/live/study/quickstart", { news, gone, trouble })      page.js

One task reads the store once a second for all viewers, and only while there is one; a stream sends what became
different for its study or run: how far it has come, and the points by which the figures on the screen grow. All else
is read by the views, less often.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse

from seedbed.errors import SeedbedError
from seedbed.records import Standing, jsonable
from seedbed.report.overview import steps_asked
from seedbed.store.store import Store
from seedbed.web.chosen import chosen_in
from seedbed.web.growing import Growing, numbers_in
from seedbed.web.lab import Lab, Stamp
from seedbed.web.progress import Pace, Progress, progress_of

TICK: Final = 1.0  # seconds between two looks at the store
HEARTBEAT: Final = 15.0  # seconds after which a silent stream says that it is there, so that a gone viewer is noticed
MOST_STREAMS: Final = 500

More: TypeAlias = Callable[[Any], Awaitable[list[str]]]

router = APIRouter(prefix="/api/live")


@dataclass(frozen=True)
class Seen:
    """Everything that was there at one look, or why nothing could be seen."""

    studies: Mapping[str, Progress] = field(default_factory=dict)
    runs: Mapping[str, Standing] = field(default_factory=dict)
    trouble: str = ""


class Live:
    """The latest progress of every study, read by one task for as long as somebody follows."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._seen = Seen()
        self._stamp: Stamp = ()
        self._paces: dict[str, Pace] = {}
        self._asked: dict[str, int | None] = {}
        self._news = asyncio.Condition()
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.n_streams = 0
        self.growing = Growing(lab)

    def close(self) -> None:
        """Ends every stream within a tick."""
        self._closed = True

    async def follow(self, pick: Callable[[Seen], Any], more: More | None = None) -> AsyncIterator[str]:
        """Events with what `pick` finds, the first at once, then whenever it differs; after each, those of `more`."""
        self.n_streams += 1
        try:
            await self._look()
            self._start()
            last = ""
            while not self._closed:
                found = pick(self._seen)
                event = _event(self._seen.trouble, found)
                if event != last:
                    yield event
                    for other in await more(found) if more and found else ():
                        yield other
                last = event
                if not await self._wait():
                    yield ": still here\n\n"
        finally:
            self.n_streams -= 1

    async def _wait(self) -> bool:
        """Whether the store was looked at, before it is time to give a sign of life, or to end."""
        for _ in range(round(HEARTBEAT / TICK)):
            if self._closed:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK), self._news:  # nobody may be left who tells that this is closed
                    await self._news.wait()
                return True
        return False

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self.n_streams and not self._closed:
            await asyncio.sleep(TICK)
            if await self._look() or self._closed:
                async with self._news:
                    self._news.notify_all()

    async def _look(self) -> bool:
        """Whether there may be something new; a study that runs may have been killed, which no file tells."""
        async with self._looking:  # who comes while another looks waits for what that one sees
            stamp = self._lab.stamp()
            if stamp == self._stamp and not any(one.is_running for one in self._seen.studies.values()):
                return False
            self._seen = await asyncio.to_thread(self._read)
            self._stamp = stamp
            return True

    def _read(self) -> Seen:
        try:
            with self._lab.look() as store:
                standings = store.standings()
                self._learn(store, standings)
        except SeedbedError as error:
            return Seen(trouble=str(error))
        now = time.monotonic()
        studies = {
            study: progress_of(found, self._asked, self._paces.setdefault(study, Pace()), now)
            for study, found in standings.items()
        }
        return Seen(studies, {one.run: one for found in standings.values() for one in found})

    def _learn(self, store: Store, standings: Mapping[str, Sequence[Standing]]) -> None:
        """The steps asked of runs that were not there before; what a run is never changes."""
        for study, found in standings.items():
            if any(one.run not in self._asked for one in found):
                self._asked |= {run.id: steps_asked(run) for run in store.runs(study)}


def _event(trouble: str, found: Any) -> str:
    kind = "trouble" if trouble else "gone" if found is None else "news"
    return f"event: {kind}\ndata: {json.dumps(jsonable(trouble or found))}\n\n"


# ---- streams ----


@router.get("/studies")
async def follow_studies(request: Request) -> StreamingResponse:
    """Progress of all studies."""
    return _stream(request, lambda seen: {name: asdict(one) for name, one in seen.studies.items()})


@router.get("/study/{name:path}")
async def follow_study(request: Request, name: str, figures: str = "") -> StreamingResponse:
    """Progress of one study, and the points of the figures on the screen; `gone` once it is removed."""
    live: Live = request.app.state.live
    chosen, numbers = chosen_in(request.query_params), numbers_in(figures)

    async def grown(found: Any) -> list[str]:
        return await live.growing.events(name, chosen, numbers, found["version"])

    return _stream(request, lambda seen: asdict(seen.studies[name]) if name in seen.studies else None, grown)


@router.get("/run/{run}")
async def follow_run(request: Request, run: str) -> StreamingResponse:
    """Status and step of one run; `gone` once it is removed."""
    return _stream(request, lambda seen: asdict(seen.runs[run]) if run in seen.runs else None)


def _stream(request: Request, pick: Callable[[Seen], Any], more: More | None = None) -> StreamingResponse:
    live: Live = request.app.state.live
    if live.n_streams >= MOST_STREAMS:
        raise HTTPException(503, f"{MOST_STREAMS} viewers follow already; reload the page to see what is new")
    return StreamingResponse(live.follow(pick, more), media_type="text/event-stream")
