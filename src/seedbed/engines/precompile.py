"""What tasks need done before they start, done in processes of their own while other tasks are under way.

    with Ahead({3: compile_it, 5: compile_that}, most=4) as ahead:
        ahead.go_on()
        ahead.is_ready(3)

Only what it leaves on disk counts (a compiler's caches): how it ends is not told, since a task whose process failed
does the same itself, and then says what is wrong. It is the background: the processes yield to all others, are silent,
and end with this one; where this one is killed, after their one piece of work.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Self, TypeAlias

PrecompileJob: TypeAlias = Callable[[], None]  # it must be picklable
POLL_INTERVAL_SECONDS = 0.1  # seconds between looks at the processes, which are system calls
NICENESS = 5  # of 19; whoever feeds the device has the cores first


class PrecompilePool:
    """Pieces of work by the number of their task, begun in their order, at most so many at a time."""

    def __init__(self, jobs: Mapping[int, PrecompileJob], max_processes: int) -> None:
        self._pending, self._max_processes = dict(jobs), max_processes
        self._running: dict[int, BaseProcess] = {}
        self._last_poll = -POLL_INTERVAL_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.clear()
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.join()

    def is_ready(self, job_index: int) -> bool:
        """Whether nothing is done for this task any more, as far as was seen."""
        return job_index not in self._pending and job_index not in self._running

    def poll(self) -> None:
        """Looks which processes have ended, and starts the next; cheap enough to be called all the time."""
        if not (self._pending or self._running) or time.monotonic() - self._last_poll < POLL_INTERVAL_SECONDS:
            return
        self._last_poll = time.monotonic()
        self._running = {number: process for number, process in self._running.items() if process.is_alive()}
        while self._pending and len(self._running) < self._max_processes:
            number = next(iter(self._pending))
            self._running[number] = _start_process(self._pending.pop(number))


def _start_process(job: PrecompileJob) -> BaseProcess:
    # A daemon ends with this process. It may have no children of multiprocessing, but torch's compiler starts its
    # workers with subprocess (worker_start_method), and those end when their parent does.
    process = mp.get_context("spawn").Process(target=_process_main, args=(job,), daemon=True)
    process.start()
    return process


def _process_main(job: PrecompileJob) -> None:
    """The life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    os.nice(NICENESS)
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    try:
        job()
    finally:
        os._exit(0)  # at once: a driver or a pool that hangs while it is taken down would hold up the task
