"""One process aside for work whose size nobody knows beforehand: bounded in time, and without the network.

    aside = Aside()
    aside.ask(plan_asked, home, asked)        # what it returns or raises

Planning a study reads its corpus and may train a vocabulary, and drawing a picture takes a whole JavaScript engine;
here neither fills the server's memory nor stops it.
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

TASK_TIMEOUT_SECONDS: Final = 30.0  # seconds for one question
MAX_TASKS_PER_PROCESS: Final = 200  # after which the process is replaced, and what it has kept in memory given back

Params = ParamSpec("Params")
Result = TypeVar("Result")


class ProcessPool:
    """A process that answers one question after the other; made when it is first asked."""

    def __init__(self, timeout: float = TASK_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """What the function makes of its arguments there."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Busy("other plans and pictures are being made; try again in a moment")
        try:
            self._executor = self._executor or _make_executor()
            return self._executor.submit(function, *args, **kwargs).result(self._timeout)
        except TimeoutError:
            self._kill()
            raise Busy(f"this takes longer than the page's {self._timeout:g} s; a terminal has no limit") from None
        except BrokenProcessPool:
            self._kill()
            raise OutOfResources("the process that plans and draws was killed, perhaps for want of memory") from None
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process; what it is busy with is of no use to anybody now."""
        self._kill()

    def _kill(self) -> None:
        pool, self._executor = self._executor, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _make_executor() -> ProcessPoolExecutor:
    # A fresh interpreter: a fork would copy the server's threads and locks.
    return ProcessPoolExecutor(1, mp.get_context("spawn"), _init_process, max_tasks_per_child=MAX_TASKS_PER_PROCESS)


def _init_process() -> None:
    """Ctrl-C reaches the whole group, and the server decides; no corpus is fetched."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["SEEDBED_OFFLINE"] = "1"


def _get_process_pool(request: Request) -> ProcessPool:
    found: ProcessPool = request.app.state.aside
    return found


ProcessPoolDep = Annotated[ProcessPool, Depends(_get_process_pool)]
