"""Live progress of studies and runs as server-sent events, at most two seconds late.

    stream("/api/live/study/quickstart", { update, removed, failure })      page.js

One task polls the store once a second for all viewers, and only while there are any. A stream sends what changed in its
study or run: its progress, and new rows for the figures on the screen. Everything else is requested by the pages, less
often.
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
from seedbed.report.study_runs import planned_steps
from seedbed.store import ChangeStamp, Store
from seedbed.web.live_figures import LiveFigures, parse_figure_numbers
from seedbed.web.store_cache import StoreCache
from seedbed.web.study_progress import StepRate, StudyProgress, compute_progress
from seedbed.web.view_params import parse_view_params

POLL_SECONDS: Final = 1.0  # between two polls of the store
HEARTBEAT_SECONDS: Final = 15.0  # a silent stream sends a comment after this long, which detects closed connections
MAX_STREAMS: Final = 500

ExtraEvents: TypeAlias = Callable[[Any], Awaitable[list[str]]]

router = APIRouter(prefix="/api/live")


@dataclass(frozen=True)
class Snapshot:
    """The state of all studies and runs at one poll, or the error that prevented it."""

    studies: Mapping[str, StudyProgress] = field(default_factory=dict)
    runs: Mapping[str, RunProgress] = field(default_factory=dict)
    error: str = ""


class LiveProgress:
    """The latest progress of every study, polled by one task while any stream is open."""

    def __init__(self, cache: StoreCache) -> None:
        self._cache = cache
        self._snapshot = Snapshot()
        self._stamp: ChangeStamp = None  # not polled yet
        self._rates: dict[str, StepRate] = {}
        self._target_steps: dict[str, int | None] = {}
        self._changed = asyncio.Condition()
        self._poll_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.n_streams = 0
        self.figures = LiveFigures(cache)

    def close(self) -> None:
        """Ends every stream within one poll."""
        self._closed = True

    async def stream_events(
        self, select: Callable[[Snapshot], Any], extra_events: ExtraEvents | None = None
    ) -> AsyncIterator[str]:
        """Yields what `select` returns as an event, at once and whenever it changes, then `extra_events`."""
        self.n_streams += 1
        try:
            await self._poll()
            self._ensure_polling()
            last = ""
            while not self._closed:
                selected = select(self._snapshot)
                event = _format_event(self._snapshot.error, selected)
                if event != last:
                    yield event
                    for extra in await extra_events(selected) if extra_events and selected else ():
                        yield extra
                last = event
                if not await self._wait_for_change():
                    yield ": heartbeat\n\n"
        finally:
            self.n_streams -= 1

    async def _wait_for_change(self) -> bool:
        """Waits for a poll that found changes; False when a heartbeat is due, or on close."""
        for _ in range(round(HEARTBEAT_SECONDS / POLL_SECONDS)):
            if self._closed:
                break
            with suppress(TimeoutError):
                # The timeout matters: on close the polling task may be gone, and nobody would notify.
                async with asyncio.timeout(POLL_SECONDS), self._changed:
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
        """Reads a new snapshot if the store changed or a study is running; returns whether it did."""
        async with self._poll_lock:  # concurrent callers share the snapshot of the first
            stamp = self._cache.change_stamp()
            # A running study is read even when no file changed: its process may have been killed.
            if stamp == self._stamp and not any(one.is_running for one in self._snapshot.studies.values()):
                return False
            self._snapshot = await asyncio.to_thread(self._read_snapshot)
            self._stamp = stamp
            return True

    def _read_snapshot(self) -> Snapshot:
        try:
            with self._cache.open_store() as store:
                progress = store.progress()
                self._load_target_steps(store, progress)
        except SeedbedError as error:
            return Snapshot(error=str(error))
        now = time.monotonic()
        studies = {
            study: compute_progress(runs, self._target_steps, self._rates.setdefault(study, StepRate()), now)
            for study, runs in progress.items()
        }
        return Snapshot(studies, {run.run: run for runs in progress.values() for run in runs})

    def _load_target_steps(self, store: Store, progress: Mapping[str, Sequence[RunProgress]]) -> None:
        """Looks up the planned steps of new runs; a stored run's settings never change."""
        for study, runs in progress.items():
            if any(run.run not in self._target_steps for run in runs):
                self._target_steps |= dict.fromkeys(run.run for run in runs)
                readable = store.runs(study, skip_unreadable=True)
                self._target_steps |= {run.id: planned_steps(run) for run in readable}


def _format_event(error: str, value: Any) -> str:
    kind = "failure" if error else "removed" if value is None else "update"
    return f"event: {kind}\ndata: {json.dumps(to_jsonable(error or value))}\n\n"


# ---- streams ----


@router.get("/studies")
async def stream_studies(request: Request) -> StreamingResponse:
    """Progress of all studies."""
    return _stream_response(request, lambda now: {name: asdict(one) for name, one in now.studies.items()})


@router.get("/study/{name:path}")
async def stream_study(request: Request, name: str, figures: str = "") -> StreamingResponse:
    """Progress of one study and new rows of its visible figures; `removed` once it is no longer stored."""
    live: LiveProgress = request.app.state.live
    params, numbers = parse_view_params(request.query_params), parse_figure_numbers(figures)

    async def figure_rows(progress: Any) -> list[str]:
        return await live.figures.events(name, params, numbers, progress["version"])

    def select(now: Snapshot) -> Any:
        return asdict(now.studies[name]) if name in now.studies else None

    return _stream_response(request, select, figure_rows)


@router.get("/run/{run}")
async def stream_run(request: Request, run: str) -> StreamingResponse:
    """Status and step of one run; `removed` once it is no longer stored."""
    return _stream_response(request, lambda now: asdict(now.runs[run]) if run in now.runs else None)


def _stream_response(
    request: Request, select: Callable[[Snapshot], Any], extra_events: ExtraEvents | None = None
) -> StreamingResponse:
    live: LiveProgress = request.app.state.live
    if live.n_streams >= MAX_STREAMS:
        raise HTTPException(
            503, f"{MAX_STREAMS} pages are already receiving live updates; reload the page for the current state"
        )
    return StreamingResponse(live.stream_events(select, extra_events), media_type="text/event-stream")
