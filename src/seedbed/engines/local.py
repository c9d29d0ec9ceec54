"""This machine: packs in worker processes on the CPU, or one after another in this process.

    run_jobs([Task(prepare), …], work, on_event, n_workers=2, stop=lambda: interrupted)

`work(job, stop)` yields events; each reaches `on_event(number of the task, event)` in the caller's process, which alone
writes. A job that raises, or whose process dies, is reported as `Failed` and the others go on; `on_event` may append
tasks to the list, to do the same work in another way. Where tasks take turns here, what one needs first and would hold
up the others with is done ahead, in another process.
"""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event as SharedFlag
from pathlib import Path
from typing import Any, TypeAlias

from seedbed.engines.malloc import keep_freed_heap
from seedbed.engines.precompile import POLL_INTERVAL_SECONDS, PrecompileJob, PrecompilePool
from seedbed.records import Event, StepEvent

PROGRESS_INTERVAL_SECONDS = 0.5  # seconds between progress events that cross a process border
OUT_OF_MEMORY_MESSAGES = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "STATUS_ALLOC_FAILED",
)
EXTRA_SLOTS = 3  # lanes besides, for tasks that something was done ahead for: the longest are among them
MAX_TIME_SLICES = 8  # of a long task while the shortest beside it has one


@dataclass(frozen=True)
class JobFailure:
    """A job that ended with an error of its own; `no_memory` where it did not fit, as far as that can be told."""

    cause: str
    trace: str = ""
    out_of_memory: bool = False


ShouldStop: TypeAlias = Callable[[], bool]  # looked at between updates
Job: TypeAlias = Any  # what `prepare` makes and `work` takes; it must be picklable
JobFunction: TypeAlias = Callable[[Job, ShouldStop], Iterator[Event]]
EventHandler: TypeAlias = Callable[[int, Event | JobFailure], None]


@dataclass(frozen=True)
class QueuedJob:
    """A job to do, prepared just before it starts; `alone`: while nothing else is done on this machine.

    `ahead` makes its start short where it was done before in any process; it must be picklable. `length` is how many
    turns it needs, where that is known, so that long and short ones end together.
    """

    prepare: Callable[[], Job]
    exclusive: bool = False
    precompile: PrecompileJob | None = None
    n_time_slices: int | None = None


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_age_seconds() -> float:
    """Seconds since this process was started, as the system tells it; 0 where it does not."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def find_device() -> str:
    """`cuda` where an NVIDIA driver is loaded, else `cpu`; found without importing torch."""
    return "cuda" if Path("/dev/nvidia0").exists() else "cpu"


def run_jobs(
    jobs: list[QueuedJob],
    run_job: JobFunction,
    on_event: EventHandler,
    n_workers: int,
    should_stop: ShouldStop,
    n_slots: int = 1,
    force_workers: bool = False,
) -> None:
    """Does all tasks: in worker processes (`apart`: in any case), or here, `n_lanes` of them in turn."""
    if force_workers or (n_workers > 1 and len(jobs) > 1):
        _run_in_workers(jobs, run_job, on_event, n_workers, should_stop)
    else:
        _run_in_process(jobs, run_job, on_event, n_slots, should_stop)


class _JobQueue:
    """Which task starts next: in their order those that are ready, and those that must be alone after all others."""

    def __init__(self, jobs: list[QueuedJob], is_ready: Callable[[int], bool] = lambda _: True) -> None:
        self._jobs, self._is_ready = jobs, is_ready
        self._started: set[int] = set()
        self.extra_slots = EXTRA_SLOTS

    def pending(self) -> list[int]:
        """The tasks that have not been started."""
        return [number for number in range(len(self._jobs)) if number not in self._started]

    def pop_ready(self, running: Collection[int], free_slots: int = 1) -> int | None:
        """A task to start beside those that are being done; None where there is none yet, or none any more.

        Where there is no room, but not too little either, one whose start was made short may: it has waited already.
        """
        if free_slots <= -self.extra_slots or any(self._jobs[number].exclusive for number in running):
            return None
        waiting = self.pending()
        shared = [number for number in waiting if not self._jobs[number].exclusive]
        fit = [number for number in shared if self._is_ready(number)] if shared else [] if running else waiting
        if free_slots <= 0:
            fit = [number for number in fit if self._jobs[number].precompile is not None]
        if not fit:
            return None
        self._started.add(fit[0])
        return fit[0]


def _run_in_process(
    jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, n_slots: int, should_stop: ShouldStop
) -> None:
    """Takes turns between lanes: each turn queues one update on the device, so lanes with own streams overlap there.

    Where one did not fit into memory beside others, there are no more lanes from then on than those others have.
    """
    lanes: dict[int, Iterator[Event]] = {}
    with PrecompilePool(_precompile_jobs(jobs), max_processes=max(1, n_cores() // 4)) as ahead:
        queue = _JobQueue(jobs, ahead.is_ready)
        if n_slots == 1:
            queue.extra_slots = 0  # there is no room for two
        while True:
            ahead.poll()
            while not should_stop() and (number := queue.pop_ready(lanes, n_slots - len(lanes))) is not None:
                lanes[number] = run_job(jobs[number].prepare(), should_stop)
            if not lanes:
                if not queue.pending() or should_stop():
                    return
                time.sleep(POLL_INTERVAL_SECONDS)  # until what is done ahead has ended
            for number in _next_time_slices(jobs, lanes):
                if number in lanes and _failed_for_memory(_run_time_slice(lanes, number, on_event)) and lanes:
                    n_slots, queue.extra_slots = min(n_slots, len(lanes)), 0


def _next_time_slices(jobs: Sequence[QueuedJob], running: Collection[int]) -> list[int]:
    """Whose turns are next: each one's once, or as many times as a task is longer than the shortest of them."""
    lengths = {number: length for number in running if (length := jobs[number].n_time_slices) is not None}
    least = max(1, min(lengths.values(), default=1))
    shares = {number: min(MAX_TIME_SLICES, round(lengths.get(number, least) / least)) for number in running}
    return [number for number, share in shares.items() for _ in range(max(1, share))]


def _precompile_jobs(jobs: Sequence[QueuedJob]) -> dict[int, PrecompileJob]:
    """What is done ahead, by task; where all that share the lanes need it, the first does it itself at once."""
    shared = [number for number, task in enumerate(jobs) if not task.exclusive]
    due = {number: piece for number in shared if (piece := jobs[number].precompile) is not None}
    if len(due) == len(shared):
        due.pop(next(iter(due), -1), None)
    return due


def _run_time_slice(
    running: dict[int, Iterator[Event]], job_index: int, on_event: EventHandler
) -> Event | JobFailure | None:
    event: Event | JobFailure | None
    try:
        event = next(running[job_index], None)
    except Exception as error:  # what training raised; what on_event raises is not caught
        event = make_failure(error)
    if event is None or isinstance(event, JobFailure):
        del running[job_index]
    if _failed_for_memory(event):
        _release_memory()
    if event is not None:
        on_event(job_index, event)
    return event


def _release_memory() -> None:
    """Frees what a job held of the device, also for libraries that do not ask torch, before the next one asks."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _failed_for_memory(event: Event | JobFailure | None) -> bool:
    return isinstance(event, JobFailure) and event.out_of_memory


def _run_in_workers(
    jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, n_workers: int, should_stop: ShouldStop
) -> None:
    context = mp.get_context("spawn")  # fresh interpreters: a fork would copy threads and open stores
    flag = context.Event()
    queue, workers = _JobQueue(jobs), list[_Worker]()
    try:
        while True:
            while not should_stop() and _start_next_job(
                queue, jobs, workers, n_workers, lambda: _Worker(context, run_job, flag)
            ):
                pass
            busy = [worker for worker in workers if worker.job_index is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], timeout=PROGRESS_INTERVAL_SECONDS)
            if should_stop():
                flag.set()
            for worker in busy:
                if worker.pipe in ready:
                    worker.forward_message(on_event)
    finally:
        for worker in workers:
            worker.terminate()


def _start_next_job(
    queue: _JobQueue, jobs: list[QueuedJob], workers: list[_Worker], n_workers: int, make_worker: Callable[[], _Worker]
) -> bool:
    """Gives one more task to an idle or a new worker; says whether there was one to give."""
    idle = [worker for worker in workers if worker.job_index is None]
    busy = [worker.job_index for worker in workers if worker.job_index is not None]
    number = queue.pop_ready(busy) if idle or len(workers) < n_workers else None
    if number is None:
        return False
    if not idle:
        workers.append(make_worker())
    (idle or workers)[-1].start(number, jobs[number].prepare)
    return True


class _Worker:
    """One process and the job it is busy with."""

    def __init__(self, context: Any, run_job: JobFunction, stop_flag: SharedFlag) -> None:
        self.job_index: int | None = None
        self._context, self._run_job, self._stop_flag = context, run_job, stop_flag
        self._spawn_process()

    def _spawn_process(self) -> None:
        self.pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(
            target=_worker_main, args=(theirs, self._run_job, self._stop_flag), daemon=True
        )
        self._process.start()
        theirs.close()

    def start(self, job_index: int, prepare: Callable[[], Job]) -> None:
        self.pipe.send(prepare())
        self.job_index = job_index

    def forward_message(self, on_event: EventHandler) -> None:
        """Hands on one message; the worker is free again after the last one of its job."""
        number = self.job_index
        assert number is not None
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            killed = self._process.exitcode == -signal.SIGKILL
            message = JobFailure(
                f"its worker process died ({_format_exit_code(self._process.exitcode)})", out_of_memory=killed
            )
            self._spawn_process()
        if message is None or isinstance(message, JobFailure):
            self.job_index = None
        if message is not None:
            on_event(number, message)

    def terminate(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _worker_main(pipe: Connection, run_job: JobFunction, stop_flag: SharedFlag) -> None:
    """The worker's life: take a job, send its events, send None; ends when the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_freed_heap()
    while True:
        try:
            job = pipe.recv()
            _send_events(pipe, run_job(job, stop_flag.is_set))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _send_events(pipe: Connection, events: Iterator[Event]) -> None:
    last_tick = 0.0
    try:
        for event in events:
            if isinstance(event, StepEvent):
                if time.monotonic() - last_tick < PROGRESS_INTERVAL_SECONDS:
                    continue
                last_tick = time.monotonic()
            pipe.send(event)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(make_failure(error))
        return
    pipe.send(None)


def make_failure(error: Exception) -> JobFailure:
    """What a job raised, as it is told; to be called while the error is being handled."""
    return JobFailure(_format_error(error), traceback.format_exc(), _is_memory_error(error))


def _is_memory_error(error: BaseException | None) -> bool:
    """A refusal of memory, or what one led to; torch's class is known by its name, since torch is not imported here.

    Libraries on a GPU that find none left say so in their own words.
    """
    if error is None:
        return False
    kinds = {kind.__name__ for kind in type(error).__mro__}
    refused = bool(kinds & {"MemoryError", "OutOfMemoryError"}) or any(
        said in str(error) for said in OUT_OF_MEMORY_MESSAGES
    )
    return refused or _is_memory_error(error.__cause__ or error.__context__)


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _format_exit_code(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"{name}, perhaps out of memory" if name == "SIGKILL" else name
    return f"exit code {code}"
