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

from seedbed.engines.ahead import LOOK, Ahead, Piece
from seedbed.engines.memory import keep_freed_memory
from seedbed.records import Event, Stepped

TICK = 0.5  # seconds between progress events that cross a process border
NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "[CUDA]: out of memory", "STATUS_ALLOC_FAILED")
EXTRA = 3  # lanes besides, for tasks that something was done ahead for: the longest are among them
MOST_TURNS = 8  # of a long task while the shortest beside it has one


@dataclass(frozen=True)
class Failed:
    """A job that ended with an error of its own; `no_memory` where it did not fit, as far as that can be told."""

    cause: str
    trace: str = ""
    no_memory: bool = False


Stop: TypeAlias = Callable[[], bool]  # looked at between updates
Job: TypeAlias = Any  # what `prepare` makes and `work` takes; it must be picklable
Work: TypeAlias = Callable[[Job, Stop], Iterator[Event]]
OnEvent: TypeAlias = Callable[[int, Event | Failed], None]


@dataclass(frozen=True)
class Task:
    """A job to do, prepared just before it starts; `alone`: while nothing else is done on this machine.

    `ahead` makes its start short where it was done before in any process; it must be picklable. `length` is how many
    turns it needs, where that is known, so that long and short ones end together.
    """

    prepare: Callable[[], Job]
    alone: bool = False
    ahead: Piece | None = None
    length: int | None = None


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_age() -> float:
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
    tasks: list[Task],
    work: Work,
    on_event: OnEvent,
    n_workers: int,
    stop: Stop,
    n_lanes: int = 1,
    apart: bool = False,
) -> None:
    """Does all tasks: in worker processes (`apart`: in any case), or here, `n_lanes` of them in turn."""
    if apart or (n_workers > 1 and len(tasks) > 1):
        _run_in_workers(tasks, work, on_event, n_workers, stop)
    else:
        _run_here(tasks, work, on_event, n_lanes, stop)


class _Queue:
    """Which task starts next: in their order those that are ready, and those that must be alone after all others."""

    def __init__(self, tasks: list[Task], is_ready: Callable[[int], bool] = lambda _: True) -> None:
        self._tasks, self._is_ready = tasks, is_ready
        self._started: set[int] = set()
        self.extra = EXTRA

    def waiting(self) -> list[int]:
        """The tasks that have not been started."""
        return [number for number in range(len(self._tasks)) if number not in self._started]

    def take(self, busy: Collection[int], room: int = 1) -> int | None:
        """A task to start beside those that are being done; None where there is none yet, or none any more.

        Where there is no room, but not too little either, one whose start was made short may: it has waited already.
        """
        if room <= -self.extra or any(self._tasks[number].alone for number in busy):
            return None
        waiting = self.waiting()
        shared = [number for number in waiting if not self._tasks[number].alone]
        fit = [number for number in shared if self._is_ready(number)] if shared else [] if busy else waiting
        if room <= 0:
            fit = [number for number in fit if self._tasks[number].ahead is not None]
        if not fit:
            return None
        self._started.add(fit[0])
        return fit[0]


def _run_here(tasks: list[Task], work: Work, on_event: OnEvent, n_lanes: int, stop: Stop) -> None:
    """Takes turns between lanes: each turn queues one update on the device, so lanes with own streams overlap there.

    Where one did not fit into memory beside others, there are no more lanes from then on than those others have.
    """
    lanes: dict[int, Iterator[Event]] = {}
    with Ahead(_pieces(tasks), most=max(1, n_cores() // 4)) as ahead:
        queue = _Queue(tasks, ahead.is_ready)
        if n_lanes == 1:
            queue.extra = 0  # there is no room for two
        while True:
            ahead.go_on()
            while not stop() and (number := queue.take(lanes, n_lanes - len(lanes))) is not None:
                lanes[number] = work(tasks[number].prepare(), stop)
            if not lanes:
                if not queue.waiting() or stop():
                    return
                time.sleep(LOOK)  # until what is done ahead has ended
            for number in _turns(tasks, lanes):
                if number in lanes and _lacks_memory(_give_turn(lanes, number, on_event)) and lanes:
                    n_lanes, queue.extra = min(n_lanes, len(lanes)), 0


def _turns(tasks: Sequence[Task], lanes: Collection[int]) -> list[int]:
    """Whose turns are next: each one's once, or as many times as a task is longer than the shortest of them."""
    lengths = {number: length for number in lanes if (length := tasks[number].length) is not None}
    least = max(1, min(lengths.values(), default=1))
    shares = {number: min(MOST_TURNS, round(lengths.get(number, least) / least)) for number in lanes}
    return [number for number, share in shares.items() for _ in range(max(1, share))]


def _pieces(tasks: Sequence[Task]) -> dict[int, Piece]:
    """What is done ahead, by task; where all that share the lanes need it, the first does it itself at once."""
    shared = [number for number, task in enumerate(tasks) if not task.alone]
    due = {number: piece for number in shared if (piece := tasks[number].ahead) is not None}
    if len(due) == len(shared):
        due.pop(next(iter(due), -1), None)
    return due


def _give_turn(lanes: dict[int, Iterator[Event]], number: int, on_event: OnEvent) -> Event | Failed | None:
    event: Event | Failed | None
    try:
        event = next(lanes[number], None)
    except Exception as error:  # what training raised; what on_event raises is not caught
        event = failure(error)
    if event is None or isinstance(event, Failed):
        del lanes[number]
    if _lacks_memory(event):
        _give_back()
    if event is not None:
        on_event(number, event)
    return event


def _give_back() -> None:
    """Frees what a job held of the device, also for libraries that do not ask torch, before the next one asks."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _lacks_memory(event: Event | Failed | None) -> bool:
    return isinstance(event, Failed) and event.no_memory


def _run_in_workers(tasks: list[Task], work: Work, on_event: OnEvent, n_workers: int, stop: Stop) -> None:
    context = mp.get_context("spawn")  # fresh interpreters: a fork would copy threads and open stores
    flag = context.Event()
    queue, workers = _Queue(tasks), list[_Worker]()
    try:
        while True:
            while not stop() and _start_next(queue, tasks, workers, n_workers, lambda: _Worker(context, work, flag)):
                pass
            busy = [worker for worker in workers if worker.number is not None]
            if not busy:
                return
            ready = wait([worker.pipe for worker in busy], timeout=TICK)
            if stop():
                flag.set()
            for worker in busy:
                if worker.pipe in ready:
                    worker.deliver(on_event)
    finally:
        for worker in workers:
            worker.end()


def _start_next(
    queue: _Queue, tasks: list[Task], workers: list[_Worker], n_workers: int, hire: Callable[[], _Worker]
) -> bool:
    """Gives one more task to an idle or a new worker; says whether there was one to give."""
    idle = [worker for worker in workers if worker.number is None]
    busy = [worker.number for worker in workers if worker.number is not None]
    number = queue.take(busy) if idle or len(workers) < n_workers else None
    if number is None:
        return False
    if not idle:
        workers.append(hire())
    (idle or workers)[-1].start(number, tasks[number].prepare)
    return True


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

    def deliver(self, on_event: OnEvent) -> None:
        """Hands on one message; the worker is free again after the last one of its job."""
        number = self.number
        assert number is not None
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            killed = self._process.exitcode == -signal.SIGKILL
            message = Failed(f"its worker process died ({_ending(self._process.exitcode)})", no_memory=killed)
            self._open()
        if message is None or isinstance(message, Failed):
            self.number = None
        if message is not None:
            on_event(number, message)

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


def _serve(pipe: Connection, work: Work, stop: SharedFlag) -> None:
    """The worker's life: take a job, send its events, send None; ends when the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    keep_freed_memory()
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
        pipe.send(failure(error))
        return
    pipe.send(None)


def failure(error: Exception) -> Failed:
    """What a job raised, as it is told; to be called while the error is being handled."""
    return Failed(_in_one_line(error), traceback.format_exc(), _is_no_memory(error))


def _is_no_memory(error: BaseException | None) -> bool:
    """A refusal of memory, or what one led to; torch's class is known by its name, since torch is not imported here.

    Libraries on a GPU that find none left say so in their own words.
    """
    if error is None:
        return False
    kinds = {kind.__name__ for kind in type(error).__mro__}
    refused = bool(kinds & {"MemoryError", "OutOfMemoryError"}) or any(said in str(error) for said in NO_MEMORY)
    return refused or _is_no_memory(error.__cause__ or error.__context__)


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"{name}, perhaps out of memory" if name == "SIGKILL" else name
    return f"exit code {code}"
