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
from seedbed.records import RunProgress, to_jsonable
from seedbed.report.overview import planned_steps
from seedbed.store.store import Store
from seedbed.web.live_figures import LiveFigures, parse_figure_numbers
from seedbed.web.store_cache import ChangeStamp, StoreCache
from seedbed.web.study_progress import StepRate, StudyProgress, compute_progress
from seedbed.web.view_params import parse_view_params

POLL_SECONDS: Final = 1.0  # seconds between two looks at the store
HEARTBEAT_SECONDS: Final = (
    15.0  # seconds after which a silent stream says that it is there, so that a gone viewer is noticed
)
MAX_STREAMS: Final = 500

ExtraEvents: TypeAlias = Callable[[Any], Awaitable[list[str]]]

router = APIRouter(prefix="/api/live")


@dataclass(frozen=True)
class Snapshot:
    """Everything that was there at one look, or why nothing could be seen."""

    studies: Mapping[str, StudyProgress] = field(default_factory=dict)
    runs: Mapping[str, RunProgress] = field(default_factory=dict)
    error: str = ""


class LiveProgress:
    """The latest progress of every study, read by one task for as long as somebody follows."""

    def __init__(self, lab: StoreCache) -> None:
        self._lab = lab
        self._snapshot = Snapshot()
        self._stamp: ChangeStamp = ()
        self._rates: dict[str, StepRate] = {}
        self._target_steps: dict[str, int | None] = {}
        self._changed = asyncio.Condition()
        self._poll_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.n_streams = 0
        self.figures = LiveFigures(lab)

    def close(self) -> None:
        """Ends every stream within a tick."""
        self._closed = True

    async def stream_events(
        self, select: Callable[[Snapshot], Any], extra_events: ExtraEvents | None = None
    ) -> AsyncIterator[str]:
        """Events with what `pick` finds, the first at once, then whenever it differs; after each, those of `more`."""
        self.n_streams += 1
        try:
            await self._poll()
            self._ensure_polling()
            last = ""
            while not self._closed:
                found = select(self._snapshot)
                event = _format_event(self._snapshot.error, found)
                if event != last:
                    yield event
                    for other in await extra_events(found) if extra_events and found else ():
                        yield other
                last = event
                if not await self._wait_for_change():
                    yield ": still here\n\n"
        finally:
            self.n_streams -= 1

    async def _wait_for_change(self) -> bool:
        """Whether the store was looked at, before it is time to give a sign of life, or to end."""
        for _ in range(round(HEARTBEAT_SECONDS / POLL_SECONDS)):
            if self._closed:
                break
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(POLL_SECONDS),
                    self._changed,
                ):  # nobody may be left who tells that this is closed
                    await self._changed.wait()
                return True
        return False

    def _ensure_polling(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll_loop())

    async def _poll_loop(self) -> None:
        while self.n_streams and not self._closed:
            await asyncio.sleep(POLL_SECONDS)
            if await self._poll() or self._closed:
                async with self._changed:
                    self._changed.notify_all()

    async def _poll(self) -> bool:
        """Whether there may be something new; a study that runs may have been killed, which no file tells."""
        async with self._poll_lock:  # who comes while another looks waits for what that one sees
            stamp = self._lab.change_stamp()
            if stamp == self._stamp and not any(one.is_running for one in self._snapshot.studies.values()):
                return False
            self._snapshot = await asyncio.to_thread(self._read_snapshot)
            self._stamp = stamp
            return True

    def _read_snapshot(self) -> Snapshot:
        try:
            with self._lab.open_store() as store:
                standings = store.progress()
                self._load_target_steps(store, standings)
        except SeedbedError as error:
            return Snapshot(error=str(error))
        now = time.monotonic()
        studies = {
            study: compute_progress(found, self._target_steps, self._rates.setdefault(study, StepRate()), now)
            for study, found in standings.items()
        }
        return Snapshot(studies, {one.run: one for found in standings.values() for one in found})

    def _load_target_steps(self, store: Store, standings: Mapping[str, Sequence[RunProgress]]) -> None:
        """The steps asked of runs that were not there before; what a run is never changes."""
        for study, found in standings.items():
            if any(one.run not in self._target_steps for one in found):
                self._target_steps |= {run.id: planned_steps(run) for run in store.runs(study)}


def _format_event(trouble: str, found: Any) -> str:
    kind = "trouble" if trouble else "gone" if found is None else "news"
    return f"event: {kind}\ndata: {json.dumps(to_jsonable(trouble or found))}\n\n"


# ---- streams ----


@router.get("/studies")
async def stream_studies(request: Request) -> StreamingResponse:
    """Progress of all studies."""
    return _stream_response(request, lambda seen: {name: asdict(one) for name, one in seen.studies.items()})


@router.get("/study/{name:path}")
async def stream_study(request: Request, name: str, figures: str = "") -> StreamingResponse:
    """Progress of one study, and the points of the figures on the screen; `gone` once it is removed."""
    live: LiveProgress = request.app.state.live
    chosen, numbers = parse_view_params(request.query_params), parse_figure_numbers(figures)

    async def grown(found: Any) -> list[str]:
        return await live.figures.events(name, chosen, numbers, found["version"])

    return _stream_response(request, lambda seen: asdict(seen.studies[name]) if name in seen.studies else None, grown)


@router.get("/run/{run}")
async def stream_run(request: Request, run: str) -> StreamingResponse:
    """Status and step of one run; `gone` once it is removed."""
    return _stream_response(request, lambda seen: asdict(seen.runs[run]) if run in seen.runs else None)


def _stream_response(
    request: Request, pick: Callable[[Snapshot], Any], more: ExtraEvents | None = None
) -> StreamingResponse:
    live: LiveProgress = request.app.state.live
    if live.n_streams >= MAX_STREAMS:
        raise HTTPException(503, f"{MAX_STREAMS} viewers follow already; reload the page to see what is new")
    return StreamingResponse(live.stream_events(pick, more), media_type="text/event-stream")
