"""A separate process for work of unknown size, with a time limit and without network access.

    pool = ProcessPool()
    pool.run(preview_plan, home, request)        # returns or raises what the function does

Planning a study reads its corpus and may train a BPE vocabulary, and rendering a chart runs a JavaScript engine; in a
process of their own neither can fill the server's memory or block it.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Annotated, Final, ParamSpec, TypeVar

from fastapi import Depends, Request

from seedbed.errors import Busy, OutOfResources

TASK_TIMEOUT_SECONDS: Final = 30.0
MAX_TASKS_PER_PROCESS: Final = 200  # then the process is replaced, which returns its memory

Params = ParamSpec("Params")
Result = TypeVar("Result")


class ProcessPool:
    """One worker process that runs one task at a time; started by the first task."""

    def __init__(self, timeout: float = TASK_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """The result of calling the function in the worker process; raises `Busy` after the timeout."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Busy("other plans and images are being made; try again in a moment")
        try:
            self._executor = self._executor or _make_executor()
            return self._executor.submit(function, *args, **kwargs).result(self._timeout)
        except TimeoutError:
            self._kill()
            raise Busy(
                f"this takes longer than the page's limit of {self._timeout:g} s; the command line has no limit"
            ) from None
        except BrokenProcessPool:
            self._kill()
            raise OutOfResources("the process that plans and draws was killed, probably out of memory") from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Kills the process, whatever it is running."""
        self._kill()

    def _kill(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            for process in list((executor._processes or {}).values()):
                process.kill()
            executor.shutdown(wait=True, cancel_futures=True)


def _make_executor() -> ProcessPoolExecutor:
    # Spawned, not forked: a fork would copy the locks of the server's threads in whatever state they are.
    return ProcessPoolExecutor(1, mp.get_context("spawn"), _init_process, max_tasks_per_child=MAX_TASKS_PER_PROCESS)


def _init_process() -> None:
    """Ignores Ctrl-C, which reaches the whole process group and is the server's to handle; forbids downloads."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["SEEDBED_OFFLINE"] = "1"


def _get_process_pool(request: Request) -> ProcessPool:
    pool: ProcessPool = request.app.state.process_pool
    return pool


ProcessPoolDep = Annotated[ProcessPool, Depends(_get_process_pool)]
