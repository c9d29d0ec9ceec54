"""The local engine: jobs in worker processes on the CPU, or time-sliced in this process on a GPU.

    run_jobs([QueuedJob(prepare), …], run_job, on_event, n_workers=2, should_stop=lambda: interrupted)

`run_job(job, should_stop)` yields events; each is passed to `on_event(job_index, event)` in the caller's process, the
only one that writes. A job that raises, or whose process dies, is reported as `JobFailure` and the others continue;
`on_event` may append jobs to the list, to retry the work in another way. Where jobs share this process, compiling would
block all of them, so it is done beforehand in another process.
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

PROGRESS_INTERVAL_SECONDS = 0.5  # between step events that a worker process sends
OUT_OF_MEMORY_MESSAGES = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "[CUDA]: out of memory",
    "STATUS_ALLOC_FAILED",
)
EXTRA_SLOTS = 3  # beyond the limit, for precompiled jobs: the longest are among them
MAX_TIME_SLICES = 8  # of a long job in a round in which the shortest gets one


@dataclass(frozen=True)
class JobFailure:
    """A job that ended with an error; `out_of_memory` if it did not fit, as far as that can be detected."""

    cause: str
    trace: str = ""
    out_of_memory: bool = False


ShouldStop: TypeAlias = Callable[[], bool]  # polled between updates
Job: TypeAlias = Any  # what `prepare` returns and `run_job` takes; must be picklable
JobFunction: TypeAlias = Callable[[Job, ShouldStop], Iterator[Event]]
EventHandler: TypeAlias = Callable[[int, Event | JobFailure], None]


@dataclass(frozen=True)
class QueuedJob:
    """A job, prepared just before it starts; an `exclusive` one runs while no other job does.

    `precompile` (picklable) shortens its start if it has run before in any process. `n_time_slices` is the number of
    slices it needs, if known, so that long and short jobs end together.
    """

    prepare: Callable[[], Job]
    exclusive: bool = False
    precompile: PrecompileJob | None = None
    n_time_slices: int | None = None


def n_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_age_seconds() -> float:
    """Seconds since this process was started; 0 where the system does not report it."""
    stat = Path("/proc/self/stat")
    if not stat.exists():
        return 0.0
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def find_device() -> str:
    """`cuda` if an NVIDIA driver is loaded, else `cpu`; without importing torch."""
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
    """Runs all jobs: in worker processes, or (one worker or one job) in this process, `n_slots` of them time-sliced."""
    if force_workers or (n_workers > 1 and len(jobs) > 1):
        _run_in_workers(jobs, run_job, on_event, n_workers, should_stop)
    else:
        _run_in_process(jobs, run_job, on_event, n_slots, should_stop)


class _JobQueue:
    """Decides which job starts next: ready ones in order, exclusive ones after all others."""

    def __init__(self, jobs: list[QueuedJob], is_ready: Callable[[int], bool] = lambda _: True) -> None:
        self._jobs, self._is_ready = jobs, is_ready
        self._started: set[int] = set()
        self.extra_slots = EXTRA_SLOTS

    def pending(self) -> list[int]:
        """Indices of the jobs that have not been started."""
        return [index for index in range(len(self._jobs)) if index not in self._started]

    def pop_ready(self, running: Collection[int], free_slots: int = 1) -> int | None:
        """Index of a job to start beside the running ones; None if there is none now.

        Precompiled jobs may start up to `extra_slots` beyond the limit: they have waited for their compile.
        """
        if free_slots <= -self.extra_slots or any(self._jobs[index].exclusive for index in running):
            return None
        pending = self.pending()
        shared = [index for index in pending if not self._jobs[index].exclusive]
        startable = [index for index in shared if self._is_ready(index)]
        if not shared and not running:
            startable = pending  # only exclusive jobs are left
        if free_slots <= 0:
            startable = [index for index in startable if self._jobs[index].precompile is not None]
        if not startable:
            return None
        self._started.add(startable[0])
        return startable[0]


def _run_in_process(
    jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, n_slots: int, should_stop: ShouldStop
) -> None:
    """Time-slices the running jobs: a slice queues one update, so jobs on separate CUDA streams overlap on the device.

    When a job runs out of memory beside others, the number of slots drops to the number of those others.
    """
    running: dict[int, Iterator[Event]] = {}
    with PrecompilePool(_precompile_jobs(jobs), max_processes=max(1, n_cores() // 4)) as pool:
        queue = _JobQueue(jobs, pool.is_ready)
        if n_slots == 1:
            queue.extra_slots = 0  # one slot means that two packs do not fit into memory
        while True:
            pool.poll()
            while not should_stop() and (index := queue.pop_ready(running, n_slots - len(running))) is not None:
                running[index] = run_job(jobs[index].prepare(), should_stop)
            if not running:
                if not queue.pending() or should_stop():
                    return
                time.sleep(POLL_INTERVAL_SECONDS)  # all pending jobs are being precompiled
            for index in _next_time_slices(jobs, running):
                # An earlier slice of the same round may have ended the job.
                if index in running and _failed_for_memory(_run_time_slice(running, index, on_event)) and running:
                    n_slots, queue.extra_slots = min(n_slots, len(running)), 0


def _next_time_slices(jobs: Sequence[QueuedJob], running: Collection[int]) -> list[int]:
    """One round of slices: one per job, or in proportion to its length relative to the shortest job."""
    lengths = {index: length for index in running if (length := jobs[index].n_time_slices) is not None}
    shortest = max(1, min(lengths.values(), default=1))
    counts = {index: min(MAX_TIME_SLICES, round(lengths.get(index, shortest) / shortest)) for index in running}
    return [index for index, count in counts.items() for _ in range(max(1, count))]


def _precompile_jobs(jobs: Sequence[QueuedJob]) -> dict[int, PrecompileJob]:
    """Precompile functions by job index, of jobs that share this process."""
    shared = [index for index, job in enumerate(jobs) if not job.exclusive]
    functions = {index: function for index in shared if (function := jobs[index].precompile) is not None}
    if len(functions) == len(shared):
        functions.pop(next(iter(functions), -1), None)  # nothing else could run meanwhile: the first compiles itself
    return functions


def _run_time_slice(
    running: dict[int, Iterator[Event]], job_index: int, on_event: EventHandler
) -> Event | JobFailure | None:
    event: Event | JobFailure | None
    try:
        event = next(running[job_index], None)
    except Exception as error:  # of the job; errors of on_event are not caught
        event = make_failure(error)
    if event is None or isinstance(event, JobFailure):
        del running[job_index]
    if _failed_for_memory(event):
        _release_memory()
    if event is not None:
        on_event(job_index, event)
    return event


def _release_memory() -> None:
    """Returns a failed job's GPU memory to the driver, so that libraries with their own allocators can use it too."""
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
    """Starts one more job on an idle or new worker; returns whether there was one to start."""
    idle = [worker for worker in workers if worker.job_index is None]
    busy = [worker.job_index for worker in workers if worker.job_index is not None]
    index = queue.pop_ready(busy) if idle or len(workers) < n_workers else None
    if index is None:
        return False
    if not idle:
        workers.append(make_worker())
    (idle or workers)[-1].start(index, jobs[index].prepare)
    return True


class _Worker:
    """A worker process and the job it is running."""

    def __init__(self, context: Any, run_job: JobFunction, stop_flag: SharedFlag) -> None:
        self.job_index: int | None = None
        self._context, self._run_job, self._stop_flag = context, run_job, stop_flag
        self._spawn_process()

    def _spawn_process(self) -> None:
        self.pipe, child_pipe = self._context.Pipe()
        self._process = self._context.Process(
            target=_worker_main, args=(child_pipe, self._run_job, self._stop_flag), daemon=True
        )
        self._process.start()
        child_pipe.close()

    def start(self, job_index: int, prepare: Callable[[], Job]) -> None:
        self.pipe.send(prepare())
        self.job_index = job_index

    def forward_message(self, on_event: EventHandler) -> None:
        """Passes one message to `on_event`; after the last one of its job the worker is idle again."""
        job_index = self.job_index
        assert job_index is not None
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            was_killed = self._process.exitcode == -signal.SIGKILL  # as the kernel's OOM killer does
            message = JobFailure(
                f"its worker process died ({_format_exit_code(self._process.exitcode)})", out_of_memory=was_killed
            )
            self._spawn_process()
        if message is None or isinstance(message, JobFailure):
            self.job_index = None
        if message is not None:
            on_event(job_index, message)

    def terminate(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _worker_main(pipe: Connection, run_job: JobFunction, stop_flag: SharedFlag) -> None:
    """Main loop of a worker: receive a job, send its events, send None; until the pipe is closed."""
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
    last_sent = 0.0
    try:
        for event in events:
            if isinstance(event, StepEvent):
                if time.monotonic() - last_sent < PROGRESS_INTERVAL_SECONDS:
                    continue
                last_sent = time.monotonic()
            pipe.send(event)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(make_failure(error))
        return
    pipe.send(None)


def make_failure(error: Exception) -> JobFailure:
    """An exception as an event; call it inside the `except` block."""
    return JobFailure(_format_error(error), traceback.format_exc(), _is_memory_error(error))


def _is_memory_error(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, means that memory ran out."""
    if error is None:
        return False
    # By name, since torch is not imported here; libraries such as cuBLAS and Triton have messages of their own.
    class_names = {cls.__name__ for cls in type(error).__mro__}
    is_memory_error = bool(class_names & {"MemoryError", "OutOfMemoryError"}) or any(
        message in str(error) for message in OUT_OF_MEMORY_MESSAGES
    )
    return is_memory_error or _is_memory_error(error.__cause__ or error.__context__)


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _format_exit_code(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"{name}, perhaps out of memory" if name == "SIGKILL" else name
    return f"exit code {code}"
