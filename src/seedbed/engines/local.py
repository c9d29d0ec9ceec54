"""The local engine: processes on a CPU, time slices in this process on a GPU, a process for each of several GPUs.

    LocalEngine(EngineResources(n_workers=2)).run(jobs, run_job, on_event, should_stop)
    LocalEngine(EngineResources(n_slots=12, devices=("cuda:0", "cuda:1"))).run(jobs, run_job, on_event, should_stop)

Where jobs share a process, compiling would block all of them, so it is done beforehand in another process. A job that
runs out of memory beside others leaves its device with fewer slots; what becomes of the job is up to `on_event`.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, TypeAlias

from seedbed.engines.base import (
    EXTRA_SLOTS,
    DropJob,
    Engine,
    EventHandler,
    Job,
    JobFailure,
    JobFunction,
    PrecompileJob,
    QueuedJob,
    ShouldStop,
    make_failure,
)
from seedbed.engines.child_process import (
    HAS_PROCESSES,
    count_oom_kills,
    keep_freed_heap,
    kept_heap,
    start_process,
)
from seedbed.engines.machine import n_cores, restrict_to_device
from seedbed.engines.precompile import POLL_INTERVAL_SECONDS, PrecompilePool
from seedbed.records import Event, StepEvent

PROGRESS_INTERVAL_SECONDS = 0.5  # between step events of a job that a worker process sends
STOP = "stop"  # message to a worker process
STOP_SECONDS = 7.0  # that a worker has to save and end its jobs before it is killed
MAX_TIME_SLICES = 8  # of a long job in a round in which the shortest gets one
ReceivedJob: TypeAlias = tuple[int, int | None, bytes]  # its index, its number of time slices, and itself, pickled


class LocalEngine(Engine):
    """Runs jobs on this machine, in as few processes as its devices allow."""

    def run(self, jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, should_stop: ShouldStop) -> None:
        n_workers, n_slots = self.resources.n_workers, self.resources.n_slots
        if self.resources.devices:
            workers = [(device, n_slots) for device in self.resources.devices]
            _run_in_workers(jobs, run_job, on_event, workers, should_stop)
        elif HAS_PROCESSES and (self.resources.needs_processes or (n_workers > 1 and len(jobs) > 1)):
            _run_in_workers(jobs, run_job, on_event, [(None, 1)] * n_workers, should_stop)
        else:
            with kept_heap():
                _run_in_process(jobs, run_job, on_event, n_slots, should_stop)


class JobQueue:
    """Decides which job starts next: ready ones in order, exclusive ones after all others and after all compiling."""

    def __init__(self, jobs: list[QueuedJob], pool: PrecompilePool | None = None) -> None:
        self._jobs, self._pool = jobs, pool
        self._started: set[int] = set()

    def pending(self) -> list[int]:
        """Indices of the jobs that have not been started."""
        return [index for index in range(len(self._jobs)) if index not in self._started]

    def pop_ready(self, running: Collection[int], has_slot: Callable[[QueuedJob], bool]) -> int | None:
        """Index of a job to start beside the running ones; None if there is none now."""
        if any(self._jobs[index].exclusive for index in running):
            return None
        pending = self.pending()
        shared = [index for index in pending if not self._jobs[index].exclusive]
        startable = [index for index in shared if self._pool is None or self._pool.is_ready(index)]
        if not shared and not running and (self._pool is None or self._pool.is_idle):
            startable = pending  # only exclusive jobs are left, and nothing else is using the device
        for index in startable:
            if has_slot(self._jobs[index]):
                self._started.add(index)
                return index
        return None


class Slots:
    """How many jobs run concurrently in one process.

    Precompiled jobs may start up to EXTRA_SLOTS beyond the limit: they have waited for their compile.
    """

    def __init__(self, n_slots: int) -> None:
        self._n_slots = n_slots
        self._n_extra = EXTRA_SLOTS if n_slots > 1 else 0  # one slot means that two packs do not fit into memory

    def has_slot(self, job: QueuedJob, n_running: int) -> bool:
        return n_running < self._n_slots + (0 if job.precompile is None else self._n_extra)

    def is_full(self, n_running: int) -> bool:
        """Whether no job at all has a slot; cheap, since it is asked before every round of updates."""
        return n_running >= self._n_slots + self._n_extra

    def reduce(self, n_running: int) -> None:
        """After a job ran out of memory beside this many others, no more than those run concurrently."""
        if n_running:
            self._n_slots, self._n_extra = min(self._n_slots, n_running), 0


def _run_in_process(
    jobs: list[QueuedJob], run_job: JobFunction, on_event: EventHandler, n_slots: int, should_stop: ShouldStop
) -> None:
    """Time-slices the running jobs: a slice queues one update, so jobs on separate CUDA streams overlap."""
    running: dict[int, Iterator[Event]] = {}
    slots = Slots(n_slots)
    with PrecompilePool(_precompile_jobs(jobs), max_processes=max(1, n_cores() // 4)) as pool:
        queue = JobQueue(jobs, pool)

        def pop_ready() -> int | None:
            if slots.is_full(len(running)):
                return None
            return queue.pop_ready(running, lambda job: slots.has_slot(job, len(running)))

        while True:
            pool.poll()
            while not should_stop() and (index := pop_ready()) is not None:
                running[index] = run_job(jobs[index].prepare(None), should_stop)
            if not running:
                if not queue.pending() or should_stop():
                    return
                time.sleep(POLL_INTERVAL_SECONDS)  # all pending jobs are being precompiled
            for index in _next_time_slices(running, lambda index: jobs[index].n_time_slices):
                if index not in running:  # an earlier slice of the same round has ended the job
                    continue
                if (event := _run_time_slice(running, index, should_stop)) is not None:
                    try:
                        on_event(index, event)
                    except DropJob:
                        running.pop(index, None)
                if failed_for_memory(event):
                    slots.reduce(len(running))


def _next_time_slices(running: Collection[int], length_of: Callable[[int], int | None]) -> list[int]:
    """One round of slices: one per job, or in proportion to its length relative to the shortest job."""
    if len(running) == 1:
        return list(running)
    lengths = {index: length for index in running if (length := length_of(index)) is not None}
    shortest = max(1, min(lengths.values(), default=1))
    counts = {index: min(MAX_TIME_SLICES, round(lengths.get(index, shortest) / shortest)) for index in running}
    return [index for index, count in counts.items() for _ in range(max(1, count))]


def _precompile_jobs(jobs: Sequence[QueuedJob], devices: Sequence[str | None] = (None,)) -> dict[int, PrecompileJob]:
    """Precompile functions by job index; several devices take turns."""
    functions = {index: function for index, job in enumerate(jobs) if (function := job.precompile) is not None}
    shared = [index for index, job in enumerate(jobs) if not job.exclusive]
    if all(index in functions for index in shared):
        for index in shared[: len(devices)]:  # a device has nothing else to do meanwhile: its first compiles itself
            del functions[index]
    if len(functions) == 1 and not shared:  # the only job that compiles may as well do it itself
        functions.clear()
    return {
        index: function if device is None else partial(_precompile_on_device, device, function)
        for position, (index, function) in enumerate(functions.items())
        for device in [devices[position % len(devices)]]
    }


def _precompile_on_device(device: str, function: PrecompileJob) -> None:
    restrict_to_device(device)
    function()


def _run_time_slice(
    running: dict[int, Iterator[Event]], job_index: int, should_stop: ShouldStop
) -> Event | JobFailure | None:
    """The next event of a job; None when it has ended."""
    event: Event | JobFailure | None
    try:
        event = next(running[job_index], None)
    except Exception as error:
        event = make_failure(error)
        if should_stop():  # the signal may have ended what the job was waiting for, such as a compiler's processes
            event = replace(event, out_of_memory=False, stopped=True)
    if event is None or isinstance(event, JobFailure):
        del running[job_index]
    if failed_for_memory(event):
        _release_memory()
    return event


def _release_memory() -> None:
    """Returns a failed job's GPU memory to the driver, so that libraries with their own allocators can use it too."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def failed_for_memory(event: Event | JobFailure | None) -> bool:
    return isinstance(event, JobFailure) and event.out_of_memory


# ---- worker processes ----


def _run_in_workers(
    jobs: list[QueuedJob],
    run_job: JobFunction,
    on_event: EventHandler,
    workers_wanted: Sequence[tuple[str | None, int]],
    should_stop: ShouldStop,
) -> None:
    """Runs jobs in processes with these devices and numbers of slots, each started when it first has a job."""
    workers = [_Process(run_job, device, n_slots) for device, n_slots in workers_wanted]
    devices = [device for device, _ in workers_wanted if device is not None]
    precompile = _precompile_jobs(jobs, devices) if devices else {}
    with ExitStack() as stack:
        for worker in workers:
            stack.callback(worker.terminate)
        pool = stack.enter_context(PrecompilePool(precompile, max_processes=max(1, n_cores() // 4)))
        queue = JobQueue(jobs, pool)
        while True:
            pool.poll()
            while not should_stop() and start_next_job(queue, jobs, workers):
                pass
            busy = {worker.pipe: worker for worker in workers if worker.running}
            if not busy:
                if not queue.pending() or should_stop():
                    return
                time.sleep(POLL_INTERVAL_SECONDS)  # all pending jobs are being precompiled
                continue
            ready = wait(list(busy), timeout=PROGRESS_INTERVAL_SECONDS)
            if should_stop():
                for worker in busy.values():
                    worker.stop_jobs()
            for pipe, worker in busy.items():
                if pipe in ready:
                    worker.forward_message(on_event)
                elif worker.is_overdue:
                    worker.abandon_jobs(on_event)


def start_next_job(queue: JobQueue, jobs: list[QueuedJob], workers: Sequence[Worker]) -> bool:
    """Starts one more job on the least loaded worker that has a slot for it; returns whether there was one to start."""
    running = [index for worker in workers for index in worker.running]
    index = queue.pop_ready(running, lambda job: bool(_workers_with_slot(job, workers)))
    if index is None:
        return False
    free = _workers_with_slot(jobs[index], workers)
    # A worker that is already running comes first where loads are equal, so that few processes are started.
    worker = min(free, key=lambda worker: (worker.load_seconds, len(worker.running), not worker.is_started))
    worker.start(index, jobs[index])
    return True


def _workers_with_slot(job: QueuedJob, workers: Sequence[Worker]) -> list[Worker]:
    """The workers that could start a job now: all of them, or only that of its device, if there is one."""
    wanted = [worker for worker in workers if worker.device == job.device is not None] or workers
    return [worker for worker in wanted if worker.has_slot(job)]


class Worker(ABC):
    """A process somewhere, and the jobs that it is running."""

    def __init__(self, device: str | None, n_slots: int) -> None:
        self.device, self.running = device, dict[int, QueuedJob]()
        self._slots = Slots(n_slots)
        self._stopping_since: float | None = None

    @property
    def is_started(self) -> bool:
        return True

    @property
    def is_stopping(self) -> bool:
        return self._stopping_since is not None

    @property
    def is_overdue(self) -> bool:
        """Whether it was told to stop and has had its time."""
        return self._stopping_since is not None and time.monotonic() - self._stopping_since > STOP_SECONDS

    @property
    def load_seconds(self) -> float:
        """Estimated seconds of the running jobs."""
        return sum(job.seconds for job in self.running.values())

    def has_slot(self, job: QueuedJob) -> bool:
        return self._slots.has_slot(job, len(self.running))

    @abstractmethod
    def start(self, job_index: int, job: QueuedJob) -> None:
        """Prepare a job here and start it there."""

    @abstractmethod
    def terminate(self) -> None:
        """End the process at once."""

    @abstractmethod
    def _send_stop(self) -> None: ...

    @abstractmethod
    def _send_job(self, job_index: int, n_time_slices: int | None, pickled: bytes | memoryview) -> None:
        """Send a job, or that it is to be dropped if there are no bytes."""

    def stop_jobs(self) -> None:
        """Makes the `should_stop` of its jobs true."""
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()
            self._send_stop()

    def pass_on(self, job_index: int, event: Event | JobFailure | None, on_event: EventHandler) -> None:
        """Passes an event of a job to `on_event`; None: it has ended."""
        if job_index not in self.running:  # dropped, which its process does not know yet
            return
        if event is None or isinstance(event, JobFailure):
            del self.running[job_index]
        if failed_for_memory(event):
            self._slots.reduce(len(self.running))
        if event is not None:
            try:
                on_event(job_index, event)
            except DropJob:
                if self.running.pop(job_index, None) is not None:
                    self._send_job(job_index, None, b"")

    def abandon_jobs(self, on_event: EventHandler) -> None:
        """Kills the process; its jobs end as stopped, where they last saved."""
        self.terminate()
        self.fail_jobs(JobFailure("it did not stop in time and was killed", stopped=True), on_event)

    def fail_jobs(self, failure: JobFailure, on_event: EventHandler) -> None:
        """Ends all its jobs: the process is gone."""
        if failure.out_of_memory:
            self._slots.reduce(len(self.running) - 1)
        failed = list(self.running)
        self.running.clear()
        for job_index in failed:
            on_event(job_index, failure)


class _Process(Worker):
    """A process of this machine, started with its first job."""

    def __init__(self, run_job: JobFunction, device: str | None, n_slots: int) -> None:
        super().__init__(device, n_slots)
        self._run_job = run_job
        self._process: subprocess.Popen[bytes] | None = None
        self._n_oom_kills: int | None = None  # when it was started

    @property
    def is_started(self) -> bool:
        return self._process is not None

    def start(self, job_index: int, job: QueuedJob) -> None:
        prepared = job.prepare(self.device)
        if self._process is None:
            self._n_oom_kills = count_oom_kills()
            self._process, self.pipe = start_process(_worker_main, self._run_job, self.device)
        self.running[job_index] = job
        self._send_job(job_index, job.n_time_slices, ForkingPickler.dumps(prepared))

    def _send_job(self, job_index: int, n_time_slices: int | None, pickled: bytes | memoryview) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has just died: the next read reports that
            self.pipe.send((job_index, n_time_slices))
            self.pipe.send_bytes(pickled)

    def _send_stop(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(STOP)

    def forward_message(self, on_event: EventHandler) -> None:
        """Passes one message to `on_event`; if the process has died, the failures of all its jobs."""
        try:
            job_index, event = self.pipe.recv()
        except (EOFError, OSError):
            self.fail_jobs(self._reap(), on_event)
        else:
            self.pass_on(job_index, event, on_event)

    def _reap(self) -> JobFailure:
        process, self._process = self._process, None
        assert process is not None
        exit_code = process.wait()
        self.pipe.close()
        cause, was_oom = _describe_exit(exit_code, self._n_oom_kills, count_oom_kills())
        return JobFailure(
            f"its worker process {cause}", out_of_memory=was_oom and not self.is_stopping, stopped=self.is_stopping
        )

    def terminate(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.pipe.close()
            process.kill()  # it ignores the signals that ask to stop
            process.wait()


def _worker_main(pipe: Connection, run_job: JobFunction, device: str | None) -> None:
    keep_freed_heap()
    if device is not None:
        restrict_to_device(device)
    received: SimpleQueue[ReceivedJob] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_receive_jobs, args=(pipe, received, stop), daemon=True).start()
    with suppress(BrokenPipeError, ConnectionResetError):
        for message in serve_jobs(run_job, received, stop.is_set):
            pipe.send(message)


def serve_jobs(
    run_job: JobFunction,
    received: SimpleQueue[ReceivedJob],
    should_stop: ShouldStop,
    interval: float = PROGRESS_INTERVAL_SECONDS,
) -> Iterator[tuple[int, Event | JobFailure | None]]:
    """Main loop of a worker: time-slices the jobs that it receives; yields their events, and None when one has ended.

    Of the step events of a job, only one in each interval of seconds.
    """
    running: dict[int, Iterator[Event]] = {}
    lengths: dict[int, int | None] = {}
    last_step_sent: dict[int, float] = {}
    while True:
        while not running or not received.empty():
            job_index, lengths[job_index], pickled = received.get()
            if not pickled:  # to be dropped
                running.pop(job_index, None)
                continue
            running[job_index] = _start_events(run_job, pickled, should_stop)
            del pickled  # with the state to resume from, which is copied to the device
        for job_index in _next_time_slices(running, lengths.__getitem__):
            if job_index not in running:
                continue
            event = _run_time_slice(running, job_index, should_stop)
            if isinstance(event, StepEvent):
                if time.monotonic() - last_step_sent.get(job_index, 0.0) < interval:
                    continue
                last_step_sent[job_index] = time.monotonic()
            yield job_index, event


def _receive_jobs(pipe: Connection, received: SimpleQueue[Any], stop: threading.Event) -> None:
    """Receives jobs in a thread: the parent may send one while this process waits for it to read an event.

    Without its parent, which alone writes to the store, the process ends at once.
    """
    try:
        while True:
            header = pipe.recv()
            if header == STOP:
                stop.set()
            else:
                received.put((*header, pipe.recv_bytes()))
    except (EOFError, OSError):
        os._exit(0)


def _start_events(run_job: JobFunction, pickled: bytes, should_stop: ShouldStop) -> Iterator[Event]:
    """The events of a job; what fails while it starts is a failure of the job, not of its worker."""
    job: Job = pickle.loads(pickled)  # from the parent
    del pickled
    events = run_job(job, should_stop)
    del job
    yield from events


def _describe_exit(code: int, oom_kills_before: int | None, oom_kills_after: int | None) -> tuple[str, bool]:
    """How a worker process ended, and whether memory had run out: the kernel counts the processes it kills for that.

    >>> _describe_exit(-9, 3, 4)
    ('was killed by the kernel: memory ran out', True)
    >>> _describe_exit(-9, 4, 4)
    ('was killed (SIGKILL) by another program or user: the kernel did not run out of memory', False)
    """
    if code >= 0:
        return f"ended with exit code {code}", False
    name = signal.Signals(-code).name
    if name != "SIGKILL":
        return f"died ({name})", False
    if oom_kills_before is None or oom_kills_after is None:
        return "was killed (SIGKILL), perhaps because memory ran out", True
    if oom_kills_after > oom_kills_before:
        return "was killed by the kernel: memory ran out", True
    return f"was killed ({name}) by another program or user: the kernel did not run out of memory", False
