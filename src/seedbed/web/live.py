"""Live progress of studies and runs as server-sent events, at most two seconds late.

    stream("/api/live/study/quickstart", { update, removed, failure })      page.js

One task polls the store once a second for all viewers, and only while there are any. A stream sends what changed in its
study or run: its progress, and new rows for the figures on the screen. Rendering a whole figure takes about 0.1 s, its
rows 0.01 s: the browser keeps the rest of the figure, extends the axes where new rows exceed them, and requests the
whole figure now and then, like everything else on the pages.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, HTTPException
from fastapi.responses import StreamingResponse

from seedbed.charts.chart_kinds import CHART_KINDS
from seedbed.charts.line_chart import line_datasets
from seedbed.charts.panel_layout import LineChart
from seedbed.errors import SeedbedError
from seedbed.records import RunProgress, RunStatus
from seedbed.report.study_runs import planned_steps
from seedbed.store import ChangeStamp, Store
from seedbed.web.responses import app_state, format_event
from seedbed.web.store_cache import StoreCache
from seedbed.web.study_page import StudyView, StudyViewDep, ViewParams

POLL_SECONDS: Final = 1.0  # between two polls of the store
HEARTBEAT_SECONDS: Final = 15.0  # a silent stream sends a comment after this long, which detects closed connections
MAX_STREAMS: Final = 500
RATE_WINDOW_SECONDS: Final = 60.0  # the step rate is averaged over this long
MIN_RATE_SECONDS: Final = 10.0  # no rate is reported before
TRUSTED_FRACTION: Final = 0.1  # of the steps left, after which their rate says how long they take, and not the estimate
UNFINISHED_STATUSES: Final[tuple[RunStatus, ...]] = ("planned", "running", "stopped", "failed")
FULL_RATE_EVENT_BYTES: Final = 200_000  # an event n times as large is sent only every n-th time
MAX_LIVE_FIGURES: Final = 4  # per viewer
MAX_CACHED_EVENTS: Final = 200

ExtraEvents: TypeAlias = Callable[[Any], Awaitable[list[str]]]

router = APIRouter(prefix="/api/live")


# ---- progress of a study: pure functions, the caller passes the time ----


@dataclass(frozen=True)
class StudyProgress:
    """Progress of one study; steps are summed over its runs, and the total is None if any run's is unknown."""

    states: Mapping[RunStatus, int]
    done_steps: int
    total_steps: int | None
    seconds_left: float | None
    version: int  # increases whenever a run changes

    @property
    def is_running(self) -> bool:
        return bool(self.states.get("running"))


@dataclass
class StepRate:
    """The step rate of running runs over the last minute, and a version that counts their changes.

    >>> rate = StepRate()
    >>> rate.observe(10.0, 100), rate.observe(24.0, 800)
    (None, 50.0)
    """

    samples: deque[tuple[float, int]] = field(default_factory=deque)
    start: tuple[float, int] | None = None  # the first sample since they are running
    estimate: float | None = None  # of the time left at the start; None: unknown
    version: int = 0
    _last_state: object = None

    def observe(self, now: float, done: int) -> float | None:
        """Adds an observation; returns steps per second once MIN_RATE_SECONDS are covered."""
        self.start = self.start or (now, done)
        self.samples.append((now, done))
        while now - self.samples[0][0] > RATE_WINDOW_SECONDS:
            self.samples.popleft()
        start, first = self.samples[0]
        return (done - first) / (now - start) if now - start >= MIN_RATE_SECONDS else None

    def seconds_left(self, now: float, done: int, left: int | None) -> float | None:
        """The time left: the estimate at first, then what the rate says; None while neither is known.

        With a time budget there is no number of steps left, and the estimate alone counts.
        """
        rate = self.observe(now, done)
        measured = left / rate if rate and left is not None else None
        assert self.start is not None
        began, first = self.start
        if self.estimate is None:
            return measured
        if measured is None or left is None:
            return max(0.0, self.estimate - (now - began))
        fraction = (done - first) / max(1, done - first + left)
        trust = min(1.0, fraction / TRUSTED_FRACTION)
        return trust * measured + (1 - trust) * self.estimate * (1 - fraction)

    def restart(self) -> None:
        """Forgets what was observed: nothing is running, and a pause is not a rate."""
        self.samples.clear()
        self.start = self.estimate = None

    def update_version(self, state: object) -> int:
        """The version, incremented if the state differs from the previous one."""
        if state != self._last_state:
            self._last_state, self.version = state, self.version + 1
        return self.version


def compute_progress(
    runs: Sequence[RunProgress], target_steps: Mapping[str, int | None], rate: StepRate, now: float
) -> StudyProgress:
    """The progress of runs from the planned steps of each; a diverged run has no steps left."""
    states: dict[RunStatus, int] = dict(Counter(run.status for run in runs))
    done, left = sum(run.step for run in runs), 0
    is_known = True
    for run in runs:
        target = target_steps.get(run.run)
        if run.status in UNFINISHED_STATUSES:
            is_known &= target is not None
            left += max(0, (target or 0) - run.step)
    version = rate.update_version([(run.status, run.step) for run in runs])
    seconds = None
    if "running" not in states:
        rate.restart()
    else:
        seconds = rate.seconds_left(now, done, left if is_known else None)
    return StudyProgress(states, done, done + left if is_known else None, seconds, version)


def estimate_seconds(store: Store, study: str, wanted: Collection[str]) -> float | None:
    """The time that these runs of a study still take, by the measured costs of their packs; None if it is unknown."""
    from seedbed.estimates import load_estimator, remaining_seconds

    try:
        stored = {run.id: run for run in store.runs(study, skip_unreadable=True)}
        left = [
            (remaining_seconds(pack, members, load_estimator(pack.placement.device)), members)
            for pack in store.study_packs(study)
            if (members := [stored[run] for run in pack.runs if run in stored and run in wanted])
        ]
    except SeedbedError:
        return None
    n_running = sum(any(run.status == "running" for run in members) for _, members in left)
    seconds = [one for one, _ in left]
    return max(max(seconds), sum(seconds) / max(1, n_running)) if seconds else None


# ---- polling ----


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
        self.figures = LiveFigures()

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
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._poll_loop())
            last = ""
            while not self._closed:
                selected, error = select(self._snapshot), self._snapshot.error
                name = "failure" if error else "removed" if selected is None else "update"
                event = format_event(name, error or selected)
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

    async def _poll_loop(self) -> None:
        while self.n_streams and not self._closed:
            await asyncio.sleep(POLL_SECONDS)
            if await self._poll() or self._closed:
                async with self._changed:
                    self._changed.notify_all()

    async def _poll(self) -> bool:
        """Reads a new snapshot if the store changed or a study is running; returns whether it did."""
        async with self._poll_lock:  # concurrent callers share the snapshot of the first
            stamp = await asyncio.to_thread(self._cache.change_stamp)  # the store may be on another machine
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
                studies = {study: self._progress(store, study, study, runs) for study, runs in progress.items()}
        except SeedbedError as error:
            return Snapshot(error=str(error))
        return Snapshot(studies, {run.run: run for runs in progress.values() for run in runs})

    def _progress(self, store: Store, key: str, study: str, runs: Sequence[RunProgress]) -> StudyProgress:
        """The progress of some runs of a study, whose rate is kept under this key."""
        rate = self._rates.setdefault(key, StepRate())
        if rate.start is None and any(run.status == "running" for run in runs):
            rate.estimate = estimate_seconds(store, study, {run.run for run in runs})
        return compute_progress(runs, self._target_steps, rate, time.monotonic())

    def job_progress(self, job: str, study: str, runs: Collection[str]) -> StudyProgress | None:
        """The progress of the runs that a job trains, which may be a part of its study; None if they are not stored."""
        try:
            with self._cache.open_store() as store:
                progress = store.progress()
                self._load_target_steps(store, progress)
                members = [run for run in progress.get(study, ()) if run.run in runs]
                return self._progress(store, f"job {job}", study, members) if members else None
        except SeedbedError:
            return None

    def _load_target_steps(self, store: Store, progress: Mapping[str, Sequence[RunProgress]]) -> None:
        """Looks up the planned steps of new runs; a stored run's settings never change."""
        for study, runs in progress.items():
            if any(run.run not in self._target_steps for run in runs):
                self._target_steps |= dict.fromkeys(run.run for run in runs)
                readable = store.runs(study, skip_unreadable=True)
                self._target_steps |= {run.id: planned_steps(run) for run in readable}


# ---- new rows of figures ----


EventKey: TypeAlias = tuple[str, ViewParams, int]


@dataclass
class LiveFigures:
    """Server-sent events with the rows of figures, computed once per version of a study for all its viewers."""

    _tasks: dict[EventKey, tuple[int, asyncio.Task[str]]] = field(default_factory=dict)

    async def events(self, view: StudyView, numbers: Sequence[int], version: int) -> list[str]:
        """The events for a viewer who has these figures on the screen."""
        events = [await self._get_event(view, number, version) for number in numbers]
        return [text for text in events if text and version % (1 + len(text) // FULL_RATE_EVENT_BYTES) == 0]

    async def _get_event(self, view: StudyView, number: int, version: int) -> str:
        key = view.study, view.params, number
        entry = self._tasks.get(key)
        if entry is None or entry[0] != version:
            if len(self._tasks) >= MAX_CACHED_EVENTS:
                self._tasks.clear()
            entry = version, asyncio.create_task(asyncio.to_thread(_format_rows_event, view, number))
            self._tasks[key] = entry
        return await asyncio.shield(entry[1])  # one viewer leaving must not cancel it for the others


def _format_rows_event(view: StudyView, number: int) -> str:
    """The rows of one figure as an event; empty for a figure without lines or a study that was removed."""
    try:
        specs = view.figure_specs()
        figure = specs[number - 1] if 1 <= number <= len(specs) else None
        gathered = figure and CHART_KINDS[figure.kind].gather_figure(figure, view.runs())
    except SeedbedError:
        return ""
    if not isinstance(gathered, LineChart) or gathered.is_empty:
        return ""
    return format_event("rows", {"number": number, **line_datasets(gathered)})


# ---- streams ----


LiveProgressDep = Annotated[LiveProgress, app_state("live")]


@router.get("/studies")
async def stream_studies(live: LiveProgressDep) -> StreamingResponse:
    """Progress of all studies."""
    return _stream_response(live, lambda now: {name: asdict(one) for name, one in now.studies.items()})


@router.get("/study/{name:path}")
async def stream_study(live: LiveProgressDep, view: StudyViewDep, figures: str = "") -> StreamingResponse:
    """Progress of one study and new rows of its visible figures (`1,2`); `removed` once it is no longer stored."""
    parts = [int(part) for part in figures.split(",") if part.isdecimal() and len(part) < 4]
    numbers = tuple(parts[:MAX_LIVE_FIGURES])

    async def figure_rows(progress: Any) -> list[str]:
        return await live.figures.events(view, numbers, progress["version"])

    def select(now: Snapshot) -> Any:
        return asdict(now.studies[view.study]) if view.study in now.studies else None

    return _stream_response(live, select, figure_rows)


@router.get("/run/{run}")
async def stream_run(live: LiveProgressDep, run: str) -> StreamingResponse:
    """Status and step of one run; `removed` once it is no longer stored."""
    return _stream_response(live, lambda now: asdict(now.runs[run]) if run in now.runs else None)


def _stream_response(
    live: LiveProgress, select: Callable[[Snapshot], Any], extra_events: ExtraEvents | None = None
) -> StreamingResponse:
    if live.n_streams >= MAX_STREAMS:
        raise HTTPException(
            503, f"{MAX_STREAMS} pages are already receiving live updates; reload the page for the current state"
        )
    return StreamingResponse(live.stream_events(select, extra_events), media_type="text/event-stream")
