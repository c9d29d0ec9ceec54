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

PATIENCE: Final = 30.0  # seconds for one question
QUESTIONS: Final = 200  # after which the process is replaced, and what it has kept in memory given back

Given = ParamSpec("Given")
Found = TypeVar("Found")


class Aside:
    """A process that answers one question after the other; made when it is first asked."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._pool: ProcessPoolExecutor | None = None
        self._turn = threading.Lock()

    def ask(self, function: Callable[Given, Found], *args: Given.args, **kwargs: Given.kwargs) -> Found:
        """What the function makes of its arguments there."""
        if not self._turn.acquire(timeout=self._patience):
            raise Busy("other plans and pictures are being made; try again in a moment")
        try:
            self._pool = self._pool or _pool()
            return self._pool.submit(function, *args, **kwargs).result(self._patience)
        except TimeoutError:
            self._kill()
            raise Busy(f"this takes longer than the page's {self._patience:g} s; a terminal has no limit") from None
        except BrokenProcessPool:
            self._kill()
            raise OutOfResources("the process that plans and draws was killed, perhaps for want of memory") from None
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the process; what it is busy with is of no use to anybody now."""
        self._kill()

    def _kill(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    # A fresh interpreter: a fork would copy the server's threads and locks.
    return ProcessPoolExecutor(1, mp.get_context("spawn"), _begin, max_tasks_per_child=QUESTIONS)


def _begin() -> None:
    """Ctrl-C reaches the whole group, and the server decides; no corpus is fetched."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["SEEDBED_OFFLINE"] = "1"


def _aside_of(request: Request) -> Aside:
    found: Aside = request.app.state.aside
    return found


TheAside = Annotated[Aside, Depends(_aside_of)]
