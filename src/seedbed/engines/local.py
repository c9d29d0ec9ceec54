"""This machine: packs in worker processes on the CPU, or one after another in this process.

    run_jobs(jobs, work, on_event, n_workers=2, stop=lambda: interrupted)

`work(job, stop)` yields events; each reaches `on_event(number of the job, event)` in the caller's process, which alone
writes. A job that raises, or whose process dies, is reported as `Failed` and the others go on.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event as SharedFlag
from pathlib import Path
from typing import Any, TypeAlias

from seedbed.records import Event, Stepped

TICK = 0.5  # seconds between progress events that cross a process border


@dataclass(frozen=True)
class Failed:
    """A job that ended with an error of its own."""

    cause: str
    trace: str = ""


Stop: TypeAlias = Callable[[], bool]  # looked at between updates
Job: TypeAlias = Any  # what `prepare` makes and `work` takes; it must be picklable
Work: TypeAlias = Callable[[Job, Stop], Iterator[Event]]
OnEvent: TypeAlias = Callable[[int, Event | Failed], None]


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_device() -> str:
    """`cuda` where an NVIDIA driver is loaded, else `cpu`; found without importing torch."""
    return "cuda" if Path("/dev/nvidia0").exists() else "cpu"


def run_jobs(
    jobs: Sequence[Callable[[], Job]], work: Work, on_event: OnEvent, n_workers: int, stop: Stop, n_lanes: int = 1
) -> None:
    """Does all jobs, each prepared just before it starts: in worker processes, or here, `n_lanes` of them in turn."""
    if n_workers > 1 and len(jobs) > 1:
        _run_in_workers(jobs, work, on_event, n_workers, stop)
    else:
        _run_here(jobs, work, on_event, n_lanes, stop)


def _run_here(jobs: Sequence[Callable[[], Job]], work: Work, on_event: OnEvent, n_lanes: int, stop: Stop) -> None:
    """Takes turns between lanes: each turn queues one update on the device, so lanes with own streams overlap there."""
    waiting, lanes = list(enumerate(jobs)), dict[int, Iterator[Event]]()
    while True:
        while waiting and len(lanes) < n_lanes and not stop():
            number, prepare = waiting.pop(0)
            lanes[number] = work(prepare(), stop)
        if not lanes:
            return
        for number, events in list(lanes.items()):
            event: Event | Failed | None
            try:
                event = next(events, None)
            except Exception as error:  # what training raised; what on_event raises is not caught
                event = Failed(_in_one_line(error), traceback.format_exc())
            if event is not None:
                on_event(number, event)
            if event is None or isinstance(event, Failed):
                del lanes[number]


def _run_in_workers(
    jobs: Sequence[Callable[[], Job]], work: Work, on_event: OnEvent, n_workers: int, stop: Stop
) -> None:
    context = mp.get_context("spawn")  # fresh interpreters: a fork would copy threads and open stores
    flag = context.Event()
    waiting = list(enumerate(jobs))
    workers = [_Worker(context, work, flag) for _ in range(min(n_workers, len(jobs)))]
    try:
        for worker in workers:
            worker.start(*waiting.pop(0))
        while busy := [worker for worker in workers if worker.number is not None]:
            ready = wait([worker.pipe for worker in busy], timeout=TICK)
            if stop():
                flag.set()
            for worker in busy:
                if worker.pipe in ready and worker.deliver(on_event) and waiting and not stop():
                    worker.start(*waiting.pop(0))
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process and the job it is busy with."""

    def __init__(self, context: Any, work: Work, stop: SharedFlag) -> None:
        self.number: int | None = None
        self._context, self._work, self._stop = context, work, stop
        self._open()

    def _open(self) -> None:
        self.pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs, self._work, self._stop), daemon=True)
        self._process.start()
        theirs.close()

    def start(self, number: int, prepare: Callable[[], Job]) -> None:
        self.pipe.send(prepare())
        self.number = number

    def deliver(self, on_event: OnEvent) -> bool:
        """Hands on one message; says whether the job is over."""
        number = self.number
        assert number is not None
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            message = Failed(f"its worker process died ({_ending(self._process.exitcode)})")
            self._open()
        if message is not None:
            on_event(number, message)
        if message is None or isinstance(message, Failed):
            self.number = None
        return self.number is None

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection, work: Work, stop: SharedFlag) -> None:
    """The worker's life: take a job, send its events, send None; ends when the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            job = pipe.recv()
            _send_events(pipe, work(job, stop.is_set))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _send_events(pipe: Connection, events: Iterator[Event]) -> None:
    last_tick = 0.0
    try:
        for event in events:
            if isinstance(event, Stepped):
                if time.monotonic() - last_tick < TICK:
                    continue
                last_tick = time.monotonic()
            pipe.send(event)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        pipe.send(Failed(_in_one_line(error), traceback.format_exc()))
        return
    pipe.send(None)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"{name}, perhaps out of memory" if name == "SIGKILL" else name
    return f"exit code {code}"
