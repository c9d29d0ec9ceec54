"""Compiles ahead of time, in background processes, what queued jobs need, while other jobs run.

    with PrecompilePool({3: compile_this, 5: compile_that}, max_processes=4) as pool:
        pool.poll()
        pool.is_ready(3)

Only what a process leaves on disk counts (the compiler's caches). Its failure is not reported: the job compiles again
itself and then reports the error. The processes have low priority, print nothing, and end with this one; if this one is
killed, after their current job.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from seedbed.engines.base import PrecompileJob
from seedbed.engines.child_process import start_process

POLL_INTERVAL_SECONDS = 0.1  # polling the processes takes system calls
NICENESS = 5  # of 19; the process that feeds the device goes first


class PrecompilePool:
    """Runs precompile jobs, given by job index, in order and at most `max_processes` at a time."""

    def __init__(self, jobs: Mapping[int, PrecompileJob], max_processes: int) -> None:
        self._pending, self._max_processes = dict(jobs), max_processes
        self._running: dict[int, subprocess.Popen[bytes]] = {}
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
            process.wait()

    def is_ready(self, job_index: int) -> bool:
        """Whether this job has nothing left to precompile, as of the last poll."""
        return job_index not in self._pending and job_index not in self._running

    @property
    def is_idle(self) -> bool:
        """Whether nothing at all is left to precompile, as of the last poll."""
        return not self._pending and not self._running

    def poll(self) -> None:
        """Removes processes that have ended and starts the next ones; cheap enough to be called on every iteration."""
        if not (self._pending or self._running) or time.monotonic() - self._last_poll < POLL_INTERVAL_SECONDS:
            return
        self._last_poll = time.monotonic()
        self._running = {job_index: process for job_index, process in self._running.items() if process.poll() is None}
        while self._pending and len(self._running) < self._max_processes:
            job_index = next(iter(self._pending))
            self._running[job_index], pipe = start_process(_process_main, self._pending.pop(job_index))
            pipe.close()


def _process_main(_: Connection, job: PrecompileJob) -> None:
    """Entry point of a background process."""
    os.nice(NICENESS)
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stdio in (1, 2):
        os.dup2(devnull, stdio)
    try:
        job()
    finally:
        os._exit(0)  # skips teardown: a driver or a process pool that hangs there would delay the job
